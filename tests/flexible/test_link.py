import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

from .conftest import elastic_body, elastic_link


@pytest.mark.long
def test_moments_of_a_box():
    a, b, c, rho = 0.3, 0.04, 0.02, 500.0
    body = elastic_body(a, (b, c), rho=rho)
    link = elastic_link(body, 3)
    mass = rho * a * b * c
    np.testing.assert_allclose(link.mass, mass, rtol=1e-12)
    np.testing.assert_allclose(link.first, [mass * a / 2, 0, 0], atol=1e-12 * mass)
    wanted = mass * np.diag([a**2 / 3, b**2 / 12, c**2 / 12])
    np.testing.assert_allclose(link.second, wanted, atol=1e-12 * mass)
    np.testing.assert_allclose(link.modal_mass, np.eye(3), atol=1e-10)
    off = link.stiffness - jnp.diag(jnp.diagonal(link.stiffness))
    assert float(jnp.abs(off).max()) < 1e-8 * float(link.stiffness.max())


@pytest.mark.long
def test_published_frequencies():
    """Link 2 of the gripper on the mesh of Schanzer 2007, section 7.3."""
    link = elastic_link(elastic_body(0.06, cells=(13, 6, 6)), 6)
    found = np.sqrt(np.diagonal(link.stiffness))
    wanted = [13346.541, 13346.541, 77106.76, 77106.76, 77243.02, 137024.1]
    np.testing.assert_allclose(found, wanted, rtol=2e-7)


@pytest.mark.long
def test_rigid_shapes_carry_rigid_inertia():
    """Translations and turns as shapes: their integrals are those of the rigid body."""
    body = jg.fem.Body(jg.fem.box_mesh(0.3, 0.04, 0.02, 4, 2, 2), jg.fem.Isotropic(1e9, 0.3, 500.0))
    x = np.asarray(body.mesh.nodes)
    unit = np.eye(3)
    shapes = np.stack([np.tile(e, (len(x), 1)) for e in unit] + [np.cross(e, x) for e in unit])
    link = jg.flexible.elastic_link(body, shapes)
    first, second = np.asarray(link.first), np.asarray(link.second)
    inertia = np.trace(second) * unit - second
    swing = np.cross(unit, first).T  # columns e_a x S
    np.testing.assert_allclose(link.shape_first[:, :3], link.mass * unit, atol=1e-14)
    np.testing.assert_allclose(link.shape_first[:, 3:], swing, atol=1e-14)
    np.testing.assert_allclose(link.modal_mass[3:, 3:], inertia, atol=1e-14)
    np.testing.assert_allclose(link.shape_second[0, :, 0], first, atol=1e-14)
    face = link.interface
    np.testing.assert_allclose(face.centre[0], [0.3, 0, 0], atol=1e-14)
    np.testing.assert_allclose(face.rotation[0], np.eye(3, 6, 3), atol=1e-11)
    arm = np.cross(unit, [0.3, 0, 0]).T
    np.testing.assert_allclose(face.translation[0], np.hstack([unit, arm]), atol=1e-12)


@pytest.mark.long
def test_attachment_modes_make_static_tip_loads_exact():
    body = elastic_body(0.06)
    link = elastic_link(body, 4, ("x1",))
    assert link.k == 10
    force, moment = jnp.array([3.0, -1.0, 2.0]), jnp.array([0.02, 0.05, -0.03])
    u = jg.fem.solve_static(body, jg.fem.tip_wrench(body, "x1", force, moment))
    motion = jnp.concatenate([link.interface.translation[0], link.interface.rotation[0]])
    found = motion @ jnp.linalg.solve(link.stiffness, motion.T @ jnp.concatenate([force, moment]))
    loads = [jg.fem.tip_wrench(body, "x1", f, jnp.zeros(3)) for f in jnp.eye(3)]
    loads += [jg.fem.tip_wrench(body, "x1", jnp.zeros(3), m) for m in jnp.eye(3)]
    wanted = [float(jnp.vdot(load, u)) for load in loads]
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "element",
    ["Hex8", *(pytest.param(e, marks=pytest.mark.soak) for e in ("EulerBernoulli", "Timoshenko"))],
)
def test_stiffening_of_a_rotating_beam(element):
    """Southwell's coefficients of the first mode: 1.193 across the plane, 0.193 in it."""
    if element == "Hex8":
        body = elastic_body(1.0, (0.02, 0.03), (40, 2, 2), nu=0.0)
    else:
        mesh = jg.fem.line_mesh(1.0, 16, element=getattr(jg.fem, element)())
        section = jg.fem.BeamSection.rectangle(jg.fem.Isotropic(7.22e10, 0.0, 2700.0), 0.02, 0.03)
        body = jg.fem.Body(mesh, section, clamp="x0")
    shapes = jg.flexible.shapes(body, 2)
    rows = [jg.rigid.DHRow("beam", None, 0.0, 0.0, 9.0, (0.5, 0.0, 0.0), (1.0, 1.0, 1.0))]
    plain = jg.rigid.from_dh(rows, (0.0, 0.0, 0.0))

    def coefficients(**options):
        link = jg.flexible.elastic_link(body, shapes, **options)
        tree = jg.flexible.with_link_inertia(plain, {"beam": link})
        model = jg.flexible.FlexibleTree(tree, {"beam": link})
        rest, zero = jnp.zeros(2), jnp.zeros(1)

        def force(eta, speed):
            state = (zero, eta, speed, rest, zero, rest)
            return jg.flexible.inverse_dynamics(model, *state)[1]

        slope = jax.jit(jax.jacfwd(force))
        k = [slope(rest, jnp.array([w])) for w in (0.0, 10.0)]
        return np.diagonal(k[1] - k[0]) / 100.0

    # The first mode bends in the plane of rotation, where the beam is thinner.
    np.testing.assert_allclose(coefficients(stiffening=False), [-1.0, 0.0], atol=2e-3)
    np.testing.assert_allclose(coefficients(), [0.193, 1.193], atol=0.01)


@pytest.mark.long
def test_foreshortening_of_a_bent_beam():
    """The end of a beam of constant length comes nearer by half the integral of slope²."""
    body = elastic_body(1.0, (0.02, 0.03), (40, 2, 2), nu=0.0)
    shapes = jg.flexible.shapes(body, 1)
    link = jg.flexible.elastic_link(body, shapes)
    x = np.asarray(body.mesh.nodes)
    middle = (np.abs(x[:, 1]) < 1e-12) & (np.abs(x[:, 2]) < 1e-12)
    slope = np.diff(np.asarray(shapes)[0, middle, 1]) / np.diff(x[middle, 0])
    wanted = -np.sum(slope**2 * np.diff(x[middle, 0]))
    np.testing.assert_allclose(link.stiffening.translation[0, 0, 0, 0], wanted, rtol=0.01)


@pytest.mark.long
def test_a_link_in_a_plane():
    """Particles in a plane have no moment across it; the check of the inertia can do without."""
    link = elastic_link(elastic_body(0.3), 1)
    flat = eqx.tree_at(
        lambda x: (x.first, x.second),
        link,
        (link.first.at[2].set(0.0), link.second.at[2].set(0.0).at[:, 2].set(0.0)),
    )
    rows = [jg.rigid.DHRow("beam", None, 0.0, 0.0, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))]
    tree = jg.rigid.from_dh(rows)
    tree = jg.flexible.with_link_inertia(tree, {"beam": flat})
    assert jg.flexible.FlexibleTree(tree, {"beam": flat}).k == 1
    heavy = eqx.tree_at(lambda x: x.mass, flat, 2 * flat.mass)
    with pytest.raises(ValueError, match=r"has more inertia than the body in the tree"):
        jg.flexible.FlexibleTree(tree, {"beam": heavy})


@pytest.mark.long
def test_bad_input(finger):
    body = elastic_body(0.06)
    link = elastic_link(body, 2)
    with pytest.raises(ValueError, match=r"No body is called 'hand'"):
        jg.flexible.FlexibleTree(finger.tree, {"hand": link})
    with pytest.raises(ValueError, match=r"The link has no interface 'y9'; it has x1"):
        jg.flexible.FlexibleTree(finger.tree, {"link2": link}, {"link3": "y9"})
    two = elastic_link(body, 2, faces=("x1", "y0"))
    with pytest.raises(ValueError, match=r"Body 'link3' is joined to no face of 'link2'"):
        jg.flexible.FlexibleTree(finger.tree, {"link2": two})
    heavy = elastic_link(elastic_body(0.06, rho=5e4), 2)
    with pytest.raises(ValueError, match=r"has more inertia than the body in the tree"):
        jg.flexible.FlexibleTree(finger.tree, {"link2": heavy})
    with pytest.raises(ValueError, match=r"no face called 'tip'"):
        jg.flexible.elastic_link(body, jnp.zeros((1, *body.free.shape)), ("tip",))
    with pytest.raises(ValueError, match=r"The array of shapes has the shape"):
        jg.flexible.elastic_link(body, jnp.zeros((1, 3, 3)))
    loose = jg.fem.Body(body.mesh, body.material)
    with pytest.raises(ValueError, match="leave 6 rigid motions"):
        jg.flexible.shapes(loose, 2)
    with pytest.raises(ValueError, match="The number of modes is 0"):
        jg.flexible.shapes(body, 0)
    model = jg.flexible.FlexibleTree(finger.tree, {"link2": link})
    with pytest.raises(ValueError, match=r"eta has the shape \(3,\); it must be \(2,\)"):
        jg.flexible.mass_matrix(model, jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(ValueError, match=r"Body 'link1' is not elastic"):
        model.link("link1")
