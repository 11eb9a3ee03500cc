"""Mass properties against closed forms, each other, and quadrature by points."""

import jax
import jax.numpy as jnp
import meshio
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

import jaxgrip as jg
from jaxgrip import shapes
from jaxgrip.shapes import Surface

STEEL = 7850.0
CUBE = np.array([[x, y, z] for x in (0.0, 1.0) for y in (0.0, 1.0) for z in (0.0, 1.0)])
TURN = jnp.asarray(Rotation.from_rotvec([0.3, -0.5, 0.9]).as_matrix())
SHIFT = jnp.array([12.0, -7.0, 30.0])


def hull(points):
    """The convex hull of points, counter-clockwise seen from outside."""
    found = ConvexHull(points)
    triangles = found.simplices.copy()
    a, b, c = np.moveaxis(points[triangles], 1, 0)
    inward = np.sum(np.cross(b - a, c - a) * found.equations[:, :3], axis=1) < 0
    triangles[inward] = triangles[inward][:, ::-1]
    return Surface(jnp.asarray(points), triangles)


def ball(refinements):
    """An octahedron whose edges are halved again and again, on the unit sphere."""
    points = np.vstack([np.eye(3), -np.eye(3)])
    for _ in range(refinements):
        one = hull(points)
        edges = one.triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
        edges = np.unique(np.sort(edges, axis=1), axis=0)
        points = np.vstack([points, points[edges].mean(axis=1)])
        points /= np.linalg.norm(points, axis=1)[:, None]
    return hull(points)


def alike(found, expected, rtol=1e-12):
    np.testing.assert_allclose(found.mass, expected.mass, rtol=rtol)
    size = float(jnp.sqrt(jnp.trace(expected.inertia) / expected.mass))
    np.testing.assert_allclose(found.centre, expected.centre, rtol=rtol, atol=rtol * size)
    scale = float(jnp.trace(expected.inertia))
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=rtol, atol=rtol * scale)


def test_a_box_of_triangles_is_a_box():
    size = np.array([0.2, 0.05, 0.7])
    surface = hull((CUBE - 0.5) * size)
    alike(shapes.mass_properties(surface, STEEL), shapes.box(size, STEEL))
    inertia = (
        STEEL * size.prod() / 12 * np.diag([0.05**2 + 0.7**2, 0.2**2 + 0.7**2, 0.2**2 + 0.05**2])
    )
    np.testing.assert_allclose(shapes.box(size, STEEL).inertia, inertia, rtol=1e-12)


def test_moved_surfaces_have_moved_properties():
    """Also far from the origin."""
    surface = hull((CUBE - 0.3) * np.array([0.2, 0.05, 0.7]))
    moved = Surface(surface.vertices @ TURN.T + SHIFT[None], surface.triangles)
    expected = shapes.mass_properties(surface, STEEL).moved(SHIFT, TURN)
    alike(shapes.mass_properties(moved, STEEL), expected, rtol=1e-11)
    np.testing.assert_allclose(
        expected.about(SHIFT),
        TURN @ shapes.mass_properties(surface, STEEL).about(jnp.zeros(3)) @ TURN.T,
        rtol=1e-12,
    )


def test_refined_balls_converge_at_second_order():
    exact = shapes.sphere(1.0, 1.0)
    found = [shapes.mass_properties(ball(k), 1.0) for k in (1, 2, 3, 4)]
    for errors in (
        [float(exact.mass - one.mass) for one in found],
        [float(jnp.trace(exact.inertia - one.inertia)) for one in found],
    ):
        ratios = np.array(errors[:-1]) / np.array(errors[1:])
        np.testing.assert_allclose(ratios[-1], 4.0, rtol=0.05)
        assert errors[-1] > 0


@pytest.mark.long
def test_a_polygon_of_many_corners_is_a_cylinder():
    corners = 4000
    angle = 2 * np.pi * np.arange(corners) / corners
    outline = 0.3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for one in (outline, outline[::-1]):
        found = shapes.extruded(jnp.asarray(one), 0.4, 2.0)
        alike(found, shapes.cylinder(0.3, 0.4, 2.0), rtol=2e-6)


def test_a_capsule_is_the_sum_of_thin_discs():
    radius, length = 0.2, 0.7
    # Gauss and Legendre in each of the three pieces, exact for these polynomials.
    nodes, weights = np.polynomial.legendre.leggauss(8)
    parts = []
    for low, high in ((-0.55, -0.35), (-0.35, 0.35), (0.35, 0.55)):
        z = 0.5 * (low + high) + 0.5 * (high - low) * nodes
        beyond = np.maximum(np.abs(z) - length / 2, 0.0)
        squared = radius**2 - beyond**2
        parts.append((0.5 * (high - low) * weights * np.pi * squared, z, squared))
    mass = sum(m.sum() for m, _, _ in parts)
    along = sum((m * r / 2).sum() for m, _, r in parts)
    across = sum((m * (r / 4 + z**2)).sum() for m, z, r in parts)
    found = shapes.capsule(radius, length, 1.0)
    np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
    np.testing.assert_allclose(jnp.diag(found.inertia), [across, across, along], rtol=1e-12)


def test_bodies_add_up():
    """A box of two halves, and a pipe as a cylinder less another."""
    half = shapes.box([0.1, 0.2, 0.3], STEEL)
    alike(
        shapes.combined(half.moved([0.05, 0, 0]), half.moved([-0.05, 0, 0])),
        shapes.box([0.2, 0.2, 0.3], STEEL),
    )
    outer, inner = (shapes.cylinder(r, 0.5, STEEL) for r in (0.1, 0.08))
    pipe = shapes.combined(outer, inner.scaled(-1.0))
    mass = STEEL * np.pi * (0.1**2 - 0.08**2) * 0.5
    np.testing.assert_allclose(pipe.mass, mass, rtol=1e-12)
    np.testing.assert_allclose(pipe.inertia[2, 2], mass * (0.1**2 + 0.08**2) / 2, rtol=1e-12)


def test_a_link_with_round_ends_has_its_closed_form():
    """Bar of 30 x 10 mm: a rectangle with two half discs."""
    outline = shapes.link_outline(jnp.array([0.0, 0.2]), jnp.array([0.015, 0.015]), 400)
    found = shapes.extruded(outline, 0.01, STEEL)
    area = 0.2 * 0.03 + np.pi * 0.015**2
    np.testing.assert_allclose(found.mass, STEEL * 0.01 * area, rtol=1e-5)
    np.testing.assert_allclose(found.centre, [0.1, 0.0, 0.0], atol=1e-12)
    disc, r = np.pi * 0.015**2, 0.015
    polar = 0.2 * 0.03 * (0.2**2 + 0.03**2) / 12
    polar += disc * (r**2 / 2 + 0.1**2 + 2 * 0.1 * 4 * r / (3 * np.pi))
    np.testing.assert_allclose(found.inertia[2, 2], STEEL * 0.01 * polar, rtol=1e-5)


@pytest.mark.parametrize("first", [(0.0, 0.0), (0.05, 0.1), (0.1, 0.0)])
@pytest.mark.long
def test_three_masses_move_as_the_body(first):
    outline = jnp.array([[0.0, -0.01], [0.3, -0.02], [0.3, 0.03], [0.0, 0.01]])
    body = shapes.extruded(outline, 0.01, STEEL)
    masses, points = shapes.three_masses(body, first, (0.3, 0.0))
    assert np.all(masses >= 0)
    np.testing.assert_allclose(masses.sum(), body.mass, rtol=1e-12)
    np.testing.assert_allclose(masses @ points, body.mass * body.centre[:2], rtol=1e-12)
    apart = points - body.centre[None, :2]
    moment = masses @ jnp.sum(apart**2, axis=1)
    np.testing.assert_allclose(moment, body.inertia[2, 2], rtol=1e-12)


@pytest.mark.long
def test_derivatives_are_differences():
    surface = ball(1)

    def of_mesh(vertices, density):
        body = shapes.mass_properties(Surface(vertices, surface.triangles), density)
        return body.mass, body.centre, body.inertia

    def of_outline(outline, thickness):
        body = shapes.extruded(outline, thickness, 2.0)
        return body.mass, body.centre, body.inertia

    bent = surface.vertices + 0.1 * surface.vertices[:, :1] * jnp.array([[0.3, 1.0, -0.4]])
    check_grads(of_mesh, (bent, 2.0), order=2, rtol=1e-4)
    outline = shapes.link_outline(jnp.array([0.0, 0.5, 1.0]), jnp.array([0.1, 0.2, 0.05]), 3)
    check_grads(of_outline, (outline, 0.3), order=2, rtol=1e-4)
    body = shapes.box([0.3, 0.1, 0.2], 1.0).moved([0.1, 0.2, 0.0])

    def masses(x):
        return shapes.three_masses(body, jnp.stack([x, 0.2]), (0.1 - x, 0.2))[1]

    # Also where the centre is in the middle of both points.
    check_grads(masses, (jnp.asarray(0.02),), order=1, rtol=1e-4)
    many = jax.vmap(lambda r: shapes.sphere(r, STEEL).mass)(jnp.linspace(0.1, 0.2, 5))
    assert many.shape == (5,)


@pytest.mark.long
def test_a_shape_is_carried_by_a_robot():
    """A torque to hold it is weight times lever."""
    tree = jg.models.two_finger_gripper()
    shape = shapes.sphere(0.02, STEEL).moved([0.01, 0.0, 0.0])
    frame = jg.rigid.Frame(jnp.eye(3), jnp.zeros(3), tree.n - 1)
    still = jnp.zeros(tree.n)

    def held(density):
        body = shapes.sphere(0.02, density).moved([0.01, 0.0, 0.0])
        heavier = jg.rigid.with_payload(tree, frame, body.mass, body.centre, body.inertia)
        return jg.rigid.rnea(heavier, still, still, still)

    extra = held(STEEL) - jg.rigid.rnea(tree, still, still, still)
    np.testing.assert_allclose(jax.jvp(held, (STEEL,), (STEEL,))[1], extra, rtol=1e-9, atol=1e-12)
    assert shape.mass > 0
    assert np.max(np.abs(extra)) > 0


@pytest.mark.parametrize("ending", ["stl", "obj", "ply", "binary.stl"])
@pytest.mark.long
def test_files_are_read(tmp_path, ending):
    """In millimetres, with every corner written once for each triangle in STL."""
    surface = hull(1000 * CUBE * np.array([0.2, 0.1, 0.3]))
    path = tmp_path / f"mine.{ending}"
    points = np.asarray(surface.vertices)
    mesh = meshio.Mesh(points, [("triangle", surface.triangles)])
    meshio.write(path, mesh, **({"binary": True} if ending == "binary.stl" else {}))
    found = shapes.read_surface(path, scale=1e-3)
    expected = shapes.box([0.2, 0.1, 0.3], STEEL).moved([0.1, 0.05, 0.15])
    alike(shapes.mass_properties(found, STEEL), expected, rtol=1e-6)
    assert len(found.vertices) == 8
    assert "give scale=1e-3" in " ".join(shapes.read_surface(path).notes)


def test_quadrilaterals_are_split(tmp_path):
    faces = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    text = "".join(f"v {x} {y} {z}\n" for x, y, z in CUBE)
    text += "".join("f " + " ".join(str(i + 1) for i in face) + "\n" for face in faces)
    (tmp_path / "cube.obj").write_text(text, encoding="utf-8")
    found = shapes.read_surface(tmp_path / "cube.obj")
    alike(shapes.mass_properties(found, 1.0), shapes.box(np.ones(3), 1.0).moved([0.5, 0.5, 0.5]))


def test_surfaces_that_are_none_get_a_sentence():
    cube = hull(CUBE)
    open_ = cube._replace(triangles=cube.triangles[1:])
    with pytest.raises(ValueError, match="is not closed: it is open along 3 edges; one is from"):
        shapes.check(open_)
    with pytest.raises(ValueError, match="faces inward: its volume is -1"):
        shapes.check(cube._replace(triangles=cube.triangles[:, ::-1]))
    turned = cube.triangles.copy()
    turned[0] = turned[0, ::-1]
    with pytest.raises(ValueError, match="face the other way than their neighbours"):
        shapes.check(cube._replace(triangles=turned))
    both = np.vstack([cube.triangles, cube.triangles])
    with pytest.raises(ValueError, match="more than two triangles meet"):
        shapes.check(cube._replace(triangles=both))
    with pytest.raises(ValueError, match="encloses no volume"):
        shapes.check(
            Surface(cube.vertices, np.vstack([cube.triangles[:1], cube.triangles[:1, ::-1]]))
        )
    with pytest.raises(ValueError, match="has no triangles"):
        shapes.check(Surface(cube.vertices, np.zeros((0, 3), int)))
    with pytest.raises(ValueError, match="not finite"):
        shapes.check(cube._replace(vertices=cube.vertices * jnp.nan))


def test_parts_may_be_cavities_but_not_inside_out():
    cube, room = hull(CUBE), hull(0.5 * CUBE + 0.25)
    inside_out = room.triangles[:, ::-1] + 8
    hollow = Surface(
        jnp.concatenate([cube.vertices, room.vertices]),
        np.vstack([cube.triangles, inside_out]),
    )
    shapes.check(hollow)
    expected = shapes.combined(
        *(
            shapes.box(np.full(3, size), 1.0).scaled(sign).moved(np.full(3, 0.5))
            for size, sign in ((1.0, 1.0), (0.5, -1.0))
        )
    )
    alike(shapes.mass_properties(hollow, 1.0), expected)
    beside = hollow._replace(
        vertices=jnp.concatenate([cube.vertices, room.vertices + jnp.array([[3.0, 0, 0]])])
    )
    with pytest.raises(
        ValueError, match=r"2 parts, one of which faces inward .* from \(3.25, 0.25"
    ):
        shapes.check(beside)
    shapes.check(beside._replace(triangles=np.vstack([cube.triangles, room.triangles + 8])))


def test_torques_are_differentiable_by_the_outline_of_a_link():
    """Of a pendulum: the drive torque at rest is weight times lever, by Green's theorem again."""
    place = jg.rigid.Placement("link", None, (0.0, 0.0, 0.0), 1.0, (0.1, 0, 0), (1.0, 1.0, 1.0))
    tree = jg.rigid.from_placements(
        [place],
        (0.0, -9.81, 0.0),
        frames=[jg.rigid.FramePlacement("side", "link", (0.0, 0.1, 0.0), TURN)],
    )
    zero, one = jnp.zeros(1), jnp.ones(1)

    def outline(widths):
        return shapes.link_outline(jnp.array([-0.05, 0.1, 0.3]), widths, 4)

    @jax.jit
    def torque(widths, acceleration):
        body = shapes.extruded(outline(widths), 0.01, STEEL)
        own = jg.rigid.with_mass_properties(tree, "link", body.mass, body.centre, body.inertia)
        return jg.rigid.rnea(own, zero, zero, acceleration)[0]

    widths = jnp.array([0.01, 0.03, 0.02])
    points = np.asarray(outline(widths))
    x, y = (points - points[0]).T
    cross = x * np.roll(y, -1) - np.roll(x, -1) * y
    area = cross.sum() / 2
    at = (cross @ (points + np.roll(points, -1, axis=0) + points[:1])) / 6 / area
    weight = STEEL * 0.01 * area * 9.81
    np.testing.assert_allclose(torque(widths, zero), weight * at[0], rtol=1e-12)
    body = shapes.extruded(jnp.asarray(points), 0.01, STEEL)
    about = float(body.about(jnp.zeros(3))[2, 2])
    np.testing.assert_allclose(torque(widths, one) - torque(widths, zero), about, rtol=1e-12)
    check_grads(torque, (widths, one), order=1, rtol=1e-5)
    # Given in another frame of the body, it is the same body.
    seen = body.moved(-TURN.T @ jnp.array([0.0, 0.1, 0.0]), TURN.T)
    other = jg.rigid.with_mass_properties(tree, "side", seen.mass, seen.centre, seen.inertia)
    np.testing.assert_allclose(
        jg.rigid.rnea(other, zero, zero, one)[0], torque(widths, one), rtol=1e-12
    )


@pytest.mark.long
def test_bad_files_get_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        shapes.read_surface(tmp_path / "none.stl")
    solid = meshio.Mesh(CUBE[[0, 1, 2, 4]], [("tetra", np.array([[0, 1, 2, 3]]))])
    meshio.write(tmp_path / "solid.vtu", solid)
    with pytest.raises(ValueError, match="solid elements"):
        shapes.read_surface(tmp_path / "solid.vtu")
    open_ = hull(CUBE)
    mesh = meshio.Mesh(CUBE, [("triangle", open_.triangles[2:])])
    meshio.write(tmp_path / "open.ply", mesh)
    with pytest.raises(ValueError, match=r"open\.ply is not closed"):
        shapes.read_surface(tmp_path / "open.ply")


def test_numbers_that_are_none_get_a_sentence():
    with pytest.raises(ValueError, match="size of a box is"):
        shapes.box([1.0, -1.0, 1.0], STEEL)
    with pytest.raises(ValueError, match="density"):
        shapes.sphere(1.0, -1.0)
    eight = jnp.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="edges that begin at corners 0 and 2, counted from 0"):
        shapes.extruded(eight, 0.1, 1.0)
    # A corner on an edge, and an edge that returns on itself, as where a hole is cut in.
    slit = [[0, 0], [3, 0], [3, 3], [0, 3], [0, 0], [1, 1], [1, 2], [2, 2], [2, 1], [1, 1]]
    ring = shapes.extruded(jnp.asarray(slit, float), 1.0, 1.0)
    assert float(ring.mass) == pytest.approx(8.0)
    with pytest.raises(ValueError, match=r"has the shape \(2, 2\)"):
        shapes.extruded(jnp.zeros((2, 2)), 0.1, 1.0)
