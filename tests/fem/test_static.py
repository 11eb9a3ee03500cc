import jax
import numpy as np
import pytest

from jaxgrip import fem


def block(e=70e9, length=1.0):
    mesh = fem.box_mesh(length, 0.4, 0.5, 6, 3, 4)
    return fem.Body(mesh, fem.Isotropic(e, 0.3, 2700.0), clamp="x0")


def push(body):
    return fem.traction(body, "z1", [1e5, 2e5, -1e6]) + fem.gravity(body, [0.0, 0.0, -9.81])


@pytest.mark.long
def test_iterative_against_direct():
    body = block()
    direct = fem.solve_static(body, push(body))
    iterative = fem.solve_static(body, push(body), method="iterative")
    np.testing.assert_allclose(iterative, direct, rtol=0, atol=1e-9 * np.abs(direct).max())


@pytest.mark.long
def test_derivatives_of_the_iterative_solution():
    def tip(length, method):
        body = block(length=length)
        return 1e6 * fem.solve_static(body, push(body), method=method)[-1, 2]

    exact = jax.grad(tip)(1.0, "direct")
    np.testing.assert_allclose(jax.grad(tip)(1.0, "iterative"), exact, rtol=1e-8)


@pytest.mark.long
def test_compact_bodies_are_solved_iteratively():
    """A cube whose direct solution would need dense blocks of 3267 degrees of freedom."""
    mesh = fem.box_mesh(1.0, 1.0, 1.0, 32, 32, 32)
    body = fem.Body(
        mesh,
        fem.Isotropic(70e9, 0.3, 2700.0),
        supports=[fem.Support("x0", ["x"]), fem.Support("y0", ["y"]), fem.Support("z0", ["z"])],
    )
    u = fem.solve_static(body, fem.traction(body, "x1", [7e7, 0.0, 0.0]))
    # The sides y0 and z0 lie half a width beside the axes.
    x, y, z = (np.asarray(mesh.nodes) + np.array([0.0, 0.5, 0.5])).T
    exact = 1e-3 * np.stack([x, -0.3 * y, -0.3 * z], axis=1)
    np.testing.assert_allclose(u, exact, rtol=0, atol=1e-11)


def test_prescribed_displacements_stretch_a_bar():
    mesh = fem.box_mesh(2.0, 0.1, 0.1, 4, 1, 1)
    body = fem.Body(mesh, fem.Isotropic(1e9, 0.0, 1.0), clamp="x0", supports=[fem.Support("x1")])
    moved = np.zeros((20, 3))
    moved[mesh.topology.point_set("x1"), 0] = 1e-3
    u = fem.solve_static(body, body.zeros(), prescribed=moved)
    np.testing.assert_allclose(u[:, 0], 5e-4 * mesh.nodes[:, 0], atol=1e-16)


def test_unknown_methods_are_refused():
    body = block()
    with pytest.raises(ValueError, match="'direct' or 'iterative'"):
        fem.solve_static(body, push(body), method="magic")


def test_each_part_of_a_mesh_needs_its_supports():
    one = fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1)
    nodes = np.concatenate([one.nodes, np.asarray(one.nodes) + np.array([5.0, 0.0, 0.0])])
    cells = np.concatenate([one.topology.cells, one.topology.cells + 8])
    two = fem.mesh(nodes, cells, fem.Hex8(), points={"left": np.arange(4)})
    body = fem.Body(two, fem.Isotropic(1e9, 0.3, 1.0), clamp="left")
    with pytest.raises(ValueError, match="6 rigid motions of the part with node 8"):
        fem.solve_static(body, body.zeros())


def test_sets_of_nodes_that_are_not_there():
    one = fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1)
    given = (one.nodes, one.topology.cells, fem.Hex8())
    with pytest.raises(ValueError, match="set 'a' has a node that does not exist"):
        fem.mesh(*given, points={"a": np.array([-1])})
    with pytest.raises(ValueError, match="face 'b' names an element or a side"):
        fem.mesh(*given, faces={"b": np.array([[0, 6]])})
