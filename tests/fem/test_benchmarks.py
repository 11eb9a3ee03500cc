"""Published problems on stated meshes, with the better elements within 1 % and hex8 far off."""

import numpy as np
import pytest
import scipy.sparse.linalg

import jaxgrip as jg

HEX8, INCOMPATIBLE, HEX27 = jg.fem.Hex8(), jg.fem.Hex8Incompatible(), jg.fem.Hex27()


def kind(value):
    return type(value).__name__ if isinstance(value, jg.fem.Hex8 | jg.fem.Hex27) else None


def moved(mesh, function):
    return jg.fem.Mesh(np.stack(function(*np.asarray(mesh.nodes).T), axis=1), mesh.topology)


def tip(body, force):
    """Mean displacement of the end x1 along a force on it, its direction being (3,)."""
    u = jg.fem.solve_static(body, jg.fem.tip_wrench(body, "x1", force, (0, 0, 0)))
    end = body.mesh.topology.point_set("x1")
    return float(np.mean(np.asarray(u)[end] @ np.array(force, dtype=float)))


def straight_beam(element, counts):
    """MacNeal-Harder: 6 x 0.2 x 0.1."""
    mesh = jg.fem.box_mesh(6.0, 0.2, 0.1, *counts, element=element)
    body = jg.fem.Body(mesh, jg.fem.Isotropic(1e7, 0.3, 1.0), clamp="x0")
    return np.array([tip(body, (1, 0, 0)) / 3e-5, tip(body, (0, 1, 0)) / 0.1081])


def curved_beam(element, counts):
    """MacNeal-Harder: a quarter of a circle between the radii 4.12 and 4.32, 0.1 thick."""
    mesh = moved(
        jg.fem.box_mesh(np.pi / 2, 0.2, 0.1, *counts, element=element),
        lambda a, y, z: ((4.22 + y) * np.sin(a), (4.22 + y) * np.cos(a), z),
    )
    body = jg.fem.Body(mesh, jg.fem.Isotropic(1e7, 0.25, 1.0), clamp="x0")
    return np.array([tip(body, (1, 0, 0)) / 0.08734])


def twisted_beam(element, counts):
    """MacNeal-Harder: 12 x 1.1 x 0.32, turned by a right angle from root to tip."""
    mesh = moved(
        jg.fem.box_mesh(12.0, 1.1, 0.32, *counts, element=element),
        lambda x, y, z: (
            x,
            y * np.cos(np.pi * x / 24) - z * np.sin(np.pi * x / 24),
            y * np.sin(np.pi * x / 24) + z * np.cos(np.pi * x / 24),
        ),
    )
    body = jg.fem.Body(mesh, jg.fem.Isotropic(29e6, 0.22, 1.0), clamp="x0")
    # At the tip the width of 1.1 points along z.
    return np.array([tip(body, (0, 0, 1)) / 5.424e-3, tip(body, (0, 1, 0)) / 1.754e-3])


@pytest.mark.long
@pytest.mark.parametrize(
    ("problem", "element", "counts"),
    [
        (straight_beam, HEX27, (12, 2, 2)),
        (curved_beam, HEX27, (12, 2, 2)),
        (twisted_beam, HEX27, (12, 2, 2)),
        (straight_beam, INCOMPATIBLE, (24, 4, 2)),
        (curved_beam, INCOMPATIBLE, (12, 2, 2)),
        (twisted_beam, INCOMPATIBLE, (24, 4, 2)),
    ],
    ids=kind,
)
def test_macneal_harder(problem, element, counts):
    np.testing.assert_allclose(problem(element, counts), 1.0, rtol=0.01)


@pytest.mark.parametrize("problem", [straight_beam, curved_beam, twisted_beam])
def test_hex8_locks_in_slender_beams(problem):
    # The first number of the straight beam is its extension, in which nothing locks.
    bending = problem(HEX8, (12, 2, 2))[-1]
    assert bending < 0.4


def cook(element, n):
    """Cook's membrane as a slice of half the thickness 0.4, in plane stress."""
    half = 0.2
    mesh = moved(
        jg.fem.box_mesh(48.0, 1.0, half, n, n, 1, element=element),
        lambda x, y, z: (x, 44 * x / 48 + (44 - 28 * x / 48) * (y + 0.5), z + half / 2),
    )
    supports = [jg.fem.Support("x0", ("x", "y")), jg.fem.Support("z0", ("z",))]
    body = jg.fem.Body(mesh, jg.fem.Isotropic(1.0, 1 / 3, 1.0), supports=supports)
    u = jg.fem.solve_static(body, jg.fem.traction(body, "x1", (0.0, 1 / 16, 0.0)))
    node = mesh.nearest((48.0, 52.0, 0.0))
    np.testing.assert_allclose(mesh.nodes[node], [48.0, 52.0, 0.0], atol=1e-12)
    return float(u[node, 1])


@pytest.mark.long
@pytest.mark.parametrize(("element", "n"), [(INCOMPATIBLE, 16), (HEX27, 8)], ids=kind)
def test_cook(element, n):
    np.testing.assert_allclose(cook(element, n), 23.96, rtol=0.01)


def test_hex8_is_too_stiff_for_cook():
    assert cook(HEX8, 8) < 0.92 * 23.96


@pytest.mark.long
def test_le10():
    """NAFEMS LE10, a thick elliptic plate: stress yy on top of the inner edge."""
    # Radially, around, through the thickness.
    mesh = moved(
        jg.fem.box_mesh(1.0, 1.0, 0.6, 4, 6, 6, element=HEX27),
        lambda x, y, z: (
            (2 + 1.25 * x) * np.cos(np.pi / 2 * (y + 0.5)),
            (1 + 1.75 * x) * np.sin(np.pi / 2 * (y + 0.5)),
            z + 0.3,
        ),
    )
    rim = mesh.topology.point_set("x1")
    middle = rim[np.abs(np.asarray(mesh.nodes)[rim, 2] - 0.3) < 1e-9]
    supports = [("y0", "y"), ("y1", "x"), ("x1", "xy"), (middle.tolist(), "z")]
    body = jg.fem.Body(
        mesh,
        jg.fem.Isotropic(210e9, 0.3, 7850.0),
        supports=[jg.fem.Support(where, axes) for where, axes in supports],
    )
    u = jg.fem.solve_static(body, jg.fem.pressure(body, "z1", 1e6))
    cells = mesh.topology.cells
    point = mesh.nearest((2.0, 0.0, 0.6))
    ((cell, corner),) = np.argwhere(cells == point)
    at_nodes = HEX27.stiffness_rule._replace(points=HEX27.nodes, weights=np.ones(27))
    strain = HEX27.strain(mesh.nodes[cells[cell]], u[cells[cell]], body.material, at_nodes)
    np.testing.assert_allclose(body.material.stress(strain)[corner, 1], -5.38e6, rtol=0.01)


def cantilever(element, counts):
    """Tip under 1 kN [m] and frequencies [Hz] of a steel bar 1 x 0.1 x 0.1."""
    mesh = jg.fem.box_mesh(1.0, 0.1, 0.1, *counts, element=element)
    body = jg.fem.Body(mesh, jg.fem.Isotropic(210e9, 0.3, 7850.0), clamp="x0")
    u = jg.fem.solve_static(body, jg.fem.traction(body, "x1", (0.0, 0.0, -1e5)))
    squares = scipy.sparse.linalg.eigsh(
        jg.fem.stiffness(body).to_scipy(body.free).tocsc(),
        8,
        jg.fem.mass(body).to_scipy(body.free).tocsc(),
        sigma=0,
        v0=np.ones(int(body.free.sum())),
        return_eigenvectors=False,
    )
    frequencies = np.sqrt(np.sort(squares)) / (2 * np.pi)
    return u[mesh.nearest((1.0, 0.0, 0.0)), 2], frequencies


@pytest.mark.long
def test_cantilever():
    deflection, frequencies = cantilever(HEX27, (10, 2, 2))
    np.testing.assert_allclose(deflection, -1.90442e-4, rtol=0.01)
    # Two bending pairs, torsion, extension, the third bending pair.
    expected = [83.330, 83.330, 499.73, 499.73, 738.00, 1297.0, 1315.8, 1315.8]
    np.testing.assert_allclose(frequencies, expected, rtol=0.01)
    deflection, frequencies = cantilever(HEX8, (10, 2, 2))
    assert abs(deflection) < 0.75 * 1.90442e-4
    assert frequencies[0] > 1.15 * 83.330
    np.testing.assert_allclose(frequencies[5], 1297.0, rtol=0.01)
