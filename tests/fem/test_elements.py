import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg

import jaxgrip as jg
from jaxgrip.fem.elements import _hexahedron as hexahedron
from jaxgrip.fem.elements import _tetrahedron as tetrahedron

HEXAHEDRA = [jg.fem.Hex8(), jg.fem.Hex8BBar(), jg.fem.Hex8Incompatible(), jg.fem.Hex27()]
TETRAHEDRA = [jg.fem.Tet4(), jg.fem.Tet10()]
ELEMENTS = HEXAHEDRA + TETRAHEDRA
SIDES = ("x0", "x1", "y0", "y1", "z0", "z1")
STEEL = jg.fem.Isotropic(210e9, 0.3, 7850.0)
every_element = pytest.mark.parametrize("element", ELEMENTS, ids=lambda e: type(e).__name__)


def cube(element) -> bool:
    return element.nodes.min() < 0


def distorted(element, n, spread=0.25):
    """Unit cubes with the nodes inside moved at random, those on edges and faces too."""
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, n, n, n, element=element)
    x = np.array(mesh.nodes)
    inside = np.setdiff1d(np.arange(len(x)), np.concatenate([*mesh.topology.points.values()]))
    gap = 1 / round(len(x) ** (1 / 3) - 1)
    shift = np.random.default_rng(2007).uniform(-spread, spread, (len(inside), 3)) * gap
    x[inside] += shift
    return jg.fem.Mesh(x, mesh.topology)


def voigt(gradient):
    shear = gradient + gradient.T
    return np.array([*np.diag(gradient), shear[0, 1], shear[1, 2], shear[2, 0]])


@eqx.filter_jit
def strains(mesh, u, material):
    def one(x, ue):
        return mesh.element.strain(x, ue, material, mesh.element.stiffness_rule)

    return jax.vmap(one)(mesh.cell_nodes, u[mesh.topology.cells])


@every_element
def test_shape_functions(element):
    value, _ = element.tabulate(element.nodes)
    np.testing.assert_allclose(value, np.eye(len(element.nodes)), atol=1e-14)
    points = np.random.default_rng(0).uniform(0, 0.3, (5, 3))
    value, slope = element.tabulate(points)
    np.testing.assert_allclose(value.sum(axis=1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(value @ element.nodes, points, atol=1e-14)
    for k, axis in enumerate(np.eye(3) * 1e-5):
        numeric = (element.tabulate(points + axis)[0] - element.tabulate(points - axis)[0]) / 2e-5
        np.testing.assert_allclose(slope[..., k], numeric, atol=1e-9)


@pytest.mark.parametrize(
    ("rule", "degree"),
    [
        (tetrahedron.four_points(), 2),
        (tetrahedron.eight_points(), 3),
        (tetrahedron.volume_rule(1), 1),
        (tetrahedron.volume_rule(3), 5),
    ],
)
def test_rules_of_tetrahedra(rule, degree):
    assert (rule.weights > 0).all()
    assert (rule.points > 0).all()
    assert (rule.points.sum(axis=1) < 1).all()
    for powers in np.ndindex(*[degree + 1] * 3):
        if sum(powers) <= degree:
            exact = math.prod(map(math.factorial, powers)) / math.factorial(sum(powers) + 3)
            found = rule.weights @ np.prod(rule.points ** np.array(powers), axis=1)
            np.testing.assert_allclose(found, exact, rtol=1e-12)


@every_element
def test_mass_of_an_undistorted_element_is_exact(element):
    sides = np.array([[1.0, 0.2, 0.1], [0.1, 0.9, -0.3], [0.2, 0.1, 0.8]])
    x = jnp.asarray(element.nodes @ sides)
    fine = hexahedron.volume_rule(5) if cube(element) else tetrahedron.volume_rule(5)
    shape = element.tabulate(fine.points)[0]
    weights = fine.weights * np.linalg.det(sides)
    exact = STEEL.rho * np.einsum("q,qi,qj->ij", weights, shape, shape)
    np.testing.assert_allclose(
        element.scalar_mass(x, STEEL), exact, rtol=1e-12, atol=1e-14 * float(STEEL.rho)
    )


@every_element
def test_six_rigid_motions_and_no_other_without_energy(element):
    x = element.nodes + np.random.default_rng(1).uniform(-0.05, 0.05, element.nodes.shape)
    n = len(x)
    matrix = np.asarray(element.stiffness(jnp.asarray(x), STEEL)).reshape(3 * n, 3 * n)
    assert abs(matrix - matrix.T).max() < 1e-14 * abs(matrix).max()
    eigenvalues = np.linalg.eigvalsh(matrix)
    assert abs(eigenvalues[:6]).max() < 1e-13 * eigenvalues[-1]
    assert eigenvalues[6] > 1e-4 * eigenvalues[-1]
    for axis in np.eye(3):
        turn = np.cross(axis, x).reshape(-1)
        assert abs(matrix @ turn).max() < 1e-13 * eigenvalues[-1]


@pytest.mark.long
@every_element
def test_patch(element):
    """A linear displacement field strains a distorted mesh evenly and loads no node inside."""
    mesh = distorted(element, 2 if len(element.nodes) > 8 else 3)
    body = jg.fem.Body(mesh, STEEL, supports=[jg.fem.Support(side) for side in SIDES])
    gradient = np.random.default_rng(5).normal(size=(3, 3)) * 1e-4
    u = mesh.nodes @ gradient.T
    strain = strains(mesh, u, STEEL)
    np.testing.assert_allclose(strain, np.broadcast_to(voigt(gradient), strain.shape), atol=1e-16)
    force = np.asarray(jg.fem.stiffness(body) @ u)
    # On the surface the forces are those of the even stress, so their moments are volume times it.
    assert abs(force[body.free]).max() < 1e-12 * abs(force).max()
    stress = np.asarray(STEEL.stress(jnp.asarray(voigt(gradient))))
    moments = np.asarray(mesh.nodes).T @ force
    np.testing.assert_allclose(
        [moments[0, 0], moments[1, 1], moments[2, 2], moments[0, 1], moments[1, 2], moments[2, 0]],
        stress,
        rtol=1e-11,
        atol=1e-12 * abs(stress).max(),
    )


def field(r):
    """A smooth displacement field to be reproduced."""
    x, y, z = r
    return jnp.stack(
        [jnp.sin(x + 2 * y) * jnp.cos(z), jnp.cos(2 * x - z) * y, jnp.exp(x * z) * jnp.sin(y)]
    )


def force_of_field(material):
    """Minus the divergence of the stress of `field`."""

    def stress(r):
        gradient = jax.jacfwd(field)(r)
        lam, mu = material.lame
        return lam * jnp.trace(gradient) * jnp.eye(3) + mu * (gradient + gradient.T)

    return lambda r: -jnp.trace(jax.jacfwd(stress)(r), axis1=1, axis2=2)


MATERIAL = jg.fem.Isotropic(1.0, 0.3, 1.0)


@eqx.filter_jit
def system(mesh, places):
    body = jg.fem.Body(mesh, MATERIAL)
    load = jg.fem.body_force(body, force_of_field(MATERIAL))
    return jg.fem.stiffness(body), load, jax.vmap(field)(mesh.nodes), jax.vmap(field)(places)


def error_of_manufactured_solution(element, n):
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, n, n, n, element=element)
    body = jg.fem.Body(mesh, MATERIAL, supports=[jg.fem.Support(side) for side in SIDES])
    fine = hexahedron.volume_rule(4) if cube(element) else tetrahedron.volume_rule(4)
    shape, slope = element.tabulate(fine.points)
    x, cells = np.asarray(mesh.nodes), mesh.topology.cells
    volume = np.linalg.det(np.einsum("ena,qni->eqai", x[cells], slope)) * fine.weights
    places = np.einsum("qn,ena->eqa", shape, x[cells]).reshape(-1, 3)
    matrix, load, exact, wanted = system(mesh, jnp.asarray(places))
    free, full = body.free.ravel(), matrix.to_scipy()
    u = np.where(free, 0.0, np.ravel(exact))
    rest = np.ravel(load) - full @ u
    u[free] = scipy.sparse.linalg.spsolve(full[free][:, free].tocsc(), rest[free])
    found = np.einsum("qn,ena->eqa", shape, u.reshape(-1, 3)[cells])
    return np.sqrt(
        np.einsum("eq,eqa->", volume, (found - np.asarray(wanted).reshape(found.shape)) ** 2)
    )


@pytest.mark.long
@every_element
def test_order_of_convergence(element):
    quadratic = len(element.nodes) > 8
    counts = (2, 3, 4) if quadratic else (4, 6, 9)
    errors = [error_of_manufactured_solution(element, n) for n in counts]
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert order > (3 if quadratic else 2) - 0.1


@pytest.mark.long
@pytest.mark.parametrize(
    ("element", "least", "most"),
    [(jg.fem.Hex8(), 0.0, 0.1), (jg.fem.Hex8BBar(), 0.98, 1.0)],
    ids=lambda e: type(e).__name__,
)
def test_thick_cylinder_of_nearly_incompressible_material(element, least, most):
    """MacNeal-Harder, ν = 0.4999: hex8 locks, with a mean dilatation it does not."""
    inner, outer, nu = 3.0, 9.0, 0.4999
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, 5, 9, 1, element=element)
    x, y, z = np.asarray(mesh.nodes).T
    radius = np.interp(x, np.linspace(0, 1, 6), [inner, 3.5, 4.2, 5.2, 6.75, outer])
    angle = (y + 0.5) * np.pi / 2
    nodes = np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)
    supports = [("y0", "y"), ("y1", "x"), ("z0", "z"), ("z1", "z")]
    body = jg.fem.Body(
        jg.fem.Mesh(nodes, mesh.topology),
        jg.fem.Isotropic(1000.0, nu, 1.0),
        supports=[jg.fem.Support(side, (axis,)) for side, axis in supports],
    )
    u = jg.fem.solve_static(body, jg.fem.pressure(body, "x0", 1.0))
    exact = (1 + nu) * inner**2 / (1000.0 * (outer**2 - inner**2))
    exact *= outer**2 / inner + (1 - 2 * nu) * inner
    assert least < u[mesh.nearest((0.0, -0.5, 0.0)), 0] / exact < most


def test_inverted_and_degenerate_elements_are_named():
    for element in (jg.fem.Hex8(), jg.fem.Tet10()):
        mesh = jg.fem.box_mesh(2.0, 1.0, 1.0, 2, 1, 1, element=element)
        cells = mesh.topology.cells.copy()
        swapped = cells[1].copy()
        order = [4, 5, 6, 7, 0, 1, 2, 3] if len(element.nodes) == 8 else [0, 2, 1, 3, 6, 5, 4, 7]
        order += [] if len(element.nodes) == 8 else [9, 8]
        cells[1] = swapped[order]
        with pytest.raises(ValueError, match="Element 1 is inverted"):
            jg.fem.mesh(mesh.nodes, cells, element)
        flat = np.array(mesh.nodes)
        flat[cells[1], 2] = 0.0
        with pytest.raises(ValueError, match=r"Element \d+ is (degenerate|inverted).* its nodes"):
            jg.fem.Mesh(flat, mesh.topology)
    twin = np.array(jg.fem.Tet4.nodes)
    twin[3] = twin[2]
    with pytest.raises(ValueError, match="Element 0 is degenerate: its nodes"):
        jg.fem.mesh(twin, [[0, 1, 2, 3]], jg.fem.Tet4())
    with pytest.raises(ValueError, match=r"^The array of nodes is not finite: \[\["):
        jg.fem.mesh(twin * np.nan, [[0, 1, 2, 3]], jg.fem.Tet4())
    with pytest.raises(ValueError, match="Cells of Tet4 need 4 nodes each"):
        jg.fem.mesh(twin, [[0, 1, 2]], jg.fem.Tet4())
    with pytest.raises(ValueError, match="Element 0 uses a node that does not exist"):
        jg.fem.mesh(twin, [[0, 1, 2, 4]], jg.fem.Tet4())
    with pytest.raises(ValueError, match="Node 3 belongs to no element"):
        jg.fem.mesh(np.eye(4, 3), [[3, 0, 1, 2]][:0] or [[0, 1, 2, 2]], jg.fem.Tet4())


def test_impossible_materials():
    with pytest.raises(ValueError, match=r"nu is 0\.5; it must lie between -1 and 0\.5"):
        jg.fem.Isotropic(1.0, 0.5, 1.0)
    with pytest.raises(ValueError, match="modulus E is -1 Pa"):
        jg.fem.Isotropic(-1.0, 0.3, 1.0)
    with pytest.warns(UserWarning, match=re.escape("density of 0.0027 kg/m^3 is lighter than air")):
        jg.fem.Isotropic(1.0, 0.3, 2.7e-3)


def test_impossible_supports_and_loads():
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1)
    loose = jg.fem.Body(mesh, STEEL)
    with pytest.raises(ValueError, match="leave 6 rigid motions of the body: it can move along x"):
        jg.fem.solve_static(loose, loose.zeros())
    hinged = jg.fem.Body(mesh, STEEL, supports=[jg.fem.Support((0, 1))])
    with pytest.raises(
        ValueError, match=r"leave 1 rigid motion of the body: it can .*rotate about z"
    ):
        jg.fem.solve_static(hinged, hinged.zeros())
    body = jg.fem.Body(mesh, STEEL, clamp="x0")
    with pytest.raises(ValueError, match="load is not finite"):
        jg.fem.solve_static(body, body.zeros().at[3, 1].set(jnp.nan))
    with pytest.raises(ValueError, match="no face called 'front'; it has 'x0', 'x1', 'y0'"):
        jg.fem.pressure(body, "front", 1.0)
    with pytest.raises(ValueError, match="no set of nodes called 'wall'"):
        jg.fem.Body(mesh, STEEL, clamp="wall")


@pytest.mark.parametrize("element", [jg.fem.Hex27, "hex27"])
def test_a_class_or_a_name_is_no_element(element):
    with pytest.raises(ValueError, match=r"give an instance such as Hex27\(\)"):
        jg.fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1, element=element)
