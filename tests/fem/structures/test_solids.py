"""Solids within structures, against the body alone, beams and integrals over the body."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
import scipy.linalg

import jaxgrip as jg

js = jg.fem.structures
STEEL = jg.fem.Isotropic(210e9, 0.3, 7850.0)
LENGTH, WIDTH, HEIGHT = 1.2, 0.1, 0.2
FORCE, MOMENT = np.array([3e4, -1e3, 2e3]), np.array([200.0, 300.0, -400.0])
GRAVITY = np.array([1.0, 2.0, -9.81])
QUATERNION = np.array([0.5, 0.5, 0.5, 0.5])


def block(material=STEEL, element=None):
    element = jg.fem.Hex8Incompatible() if element is None else element
    return jg.fem.Body(jg.fem.box_mesh(LENGTH, WIDTH, HEIGHT, 6, 2, 2, element=element), material)


def cantilever(body, ends, elements=()):
    """A solid that is fixed at its end x = 0, and further elements of the part."""
    nodes = jnp.asarray(ends)
    solid = js.Solid((0, 1), body, ("x0", "x1"))
    part = js.FramePart(nodes, [solid, *elements], {"root": (0,), "tip": (len(ends) - 1,)})
    system = jg.mechanism.System([part.part("arm", quaternion=QUATERNION)], [])
    structure = js.Structure(system, {"arm": part}, supports={"arm.root": "all"})
    return structure, jg.mechanism.start(system)


def ends(body):
    nodes = np.asarray(body.mesh.nodes)
    low, high = nodes.min(axis=0), nodes.max(axis=0)
    middle = (low + high) / 2
    return np.array([[low[0], *middle[1:]], [high[0], *middle[1:]]])


@pytest.fixture(scope="module")
def loaded():
    body = block()
    structure, poses = cantilever(body, ends(body) + np.array([[-0.1, 0, 0], [0.05, 0.02, 0]]))
    loads = [js.NodalForce("arm.tip", FORCE, MOMENT), js.Inertia(GRAVITY)]
    return body, structure, poses, js.solve(structure, poses, loads)


def test_mesh_is_in_equilibrium_with_loads_at_its_interfaces(loaded):
    body, structure, poses, solution = loaded
    turn = np.asarray(poses.rotation[0])
    (u,) = map(np.asarray, solution.part("arm").solids)
    weight = np.asarray(jg.fem.gravity(body, jnp.asarray(turn.T @ GRAVITY)))
    out = np.asarray(jg.fem.stiffness(body) @ jnp.asarray(u)) - weight
    nodes, topology = np.asarray(body.mesh.nodes), body.mesh.topology
    root, tip = (topology.point_set(name) for name in ("x0", "x1"))
    inner = np.setdiff1d(np.arange(len(nodes)), [*root, *tip])
    np.testing.assert_allclose(out[inner], 0, atol=1e-7 * np.abs(out).max())
    at = np.asarray(structure.nodes())[1]
    np.testing.assert_allclose(out[tip].sum(axis=0), turn.T @ FORCE, rtol=1e-8)
    moment = np.cross(nodes[tip] - at, out[tip]).sum(axis=0)
    np.testing.assert_allclose(moment, turn.T @ MOMENT, rtol=1e-6, atol=1e-5)


def test_interfaces_are_rigid(loaded):
    body, structure, poses, solution = loaded
    part, turn = solution.part("arm"), np.asarray(poses.rotation[0])
    (u,) = map(np.asarray, part.solids)
    tip = body.mesh.topology.point_set("x1")
    arm = np.asarray(body.mesh.nodes)[tip] - np.asarray(structure.nodes())[1]
    rotation = turn.T @ np.asarray(part.rotations[1])
    expected = turn.T @ np.asarray(part.displacements[1]) + np.cross(rotation, arm)
    np.testing.assert_allclose(u[tip], expected, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(u[body.mesh.topology.point_set("x0")], 0, atol=1e-18)


def test_reactions_and_mass(loaded):
    body, structure, poses, solution = loaded
    mass, centre = js.centre_of_gravity(structure, poses)
    np.testing.assert_allclose(mass, 7850 * LENGTH * WIDTH * HEIGHT, rtol=1e-12)
    middle = np.asarray(body.mesh.nodes).mean(axis=0)
    np.testing.assert_allclose(centre, poses.rotation[0] @ middle, atol=1e-14)
    root = solution.reactions()["arm.root"]
    total = FORCE + float(mass) * GRAVITY
    np.testing.assert_allclose(root.force, -total, rtol=1e-9)
    places = np.asarray(structure.places(poses))
    about = np.cross(places[1] - places[0], FORCE) + MOMENT
    about += np.cross(np.asarray(centre) - places[0], float(mass) * GRAVITY)
    np.testing.assert_allclose(root.moment, -about, rtol=1e-8)


@pytest.mark.long
def test_slender_solid_and_beam_after_it_bend_as_beams():
    """A solid and a beam of the same section in a row, against the textbook's cantilever."""
    length, side = 4.0, 0.1
    smooth = jg.fem.Isotropic(210e9, 0.0, 7850.0)
    mesh = jg.fem.box_mesh(length, side, side, 24, 1, 1, element=jg.fem.Hex8Incompatible())
    body = jg.fem.Body(mesh, smooth)
    section = jg.fem.BeamSection.rectangle(smooth, side, side)
    points = [*ends(body), ends(body)[1] + np.array([length, 0, 0])]
    beam = js.Beams([(1, 2)], section, jg.fem.Timoshenko())
    structure, poses = cantilever(body, points, [beam])
    force = poses.rotation[0] @ jnp.array([0.0, 0.0, -100.0])
    solution = js.solve(structure, poses, js.NodalForce("arm.tip", force))
    moved = np.asarray(poses.rotation[0]).T @ np.asarray(solution.part("arm").displacements[2])
    bending = 100 * (2 * length) ** 3 / (3 * 210e9 * side**4 / 12)
    # Shear adds 2e-4 of the bending.
    np.testing.assert_allclose(moved[2], -bending, rtol=2e-3)
    loads = js.NodalForce("arm.tip", force)
    condensed = js.solve(js.condense(structure, loads), poses, loads)
    for found, expected in zip(condensed.solids, solution.solids, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * bending)


@pytest.mark.long
def test_frequencies_against_condensed_matrices():
    """Guyan's condensation of the whole matrices, in NumPy."""
    body = block()
    structure, poses = cantilever(body, ends(body))
    found = js.frequencies(structure, poses, 4)
    n = 3 * body.mesh.topology.n_nodes
    units = jnp.eye(n).reshape(n, -1, 3)
    k = np.asarray(jax.vmap(lambda u: jg.fem.stiffness(body) @ u)(units)).reshape(n, n)
    m = np.asarray(jax.vmap(lambda u: jg.fem.mass(body) @ u)(units)).reshape(n, n)
    nodes, topology = np.asarray(body.mesh.nodes), body.mesh.topology
    tip = topology.point_set("x1")
    fixed = np.array([3 * node + a for node in topology.point_set("x0") for a in range(3)])
    own = np.array([3 * node + a for node in tip for a in range(3)])
    inner = np.setdiff1d(np.arange(n), [*fixed, *own])
    rigid = np.zeros((n, 6))
    for node in tip:
        x, y, z = nodes[node] - ends(body)[1]
        rigid[3 * node : 3 * node + 3] = np.array(
            [[1, 0, 0, 0, z, -y], [0, 1, 0, -z, 0, x], [0, 0, 1, y, -x, 0]]
        )
    rigid[inner] = -np.linalg.solve(k[np.ix_(inner, inner)], k[inner] @ rigid)
    squared = scipy.linalg.eigh(rigid.T @ k @ rigid, rigid.T @ m @ rigid)[0]
    np.testing.assert_allclose(found, np.sqrt(squared[:4]), rtol=1e-8)
    whole = jg.fem.frequencies(jg.fem.Body(body.mesh, STEEL, clamp="x0"), 1)
    assert whole[0] < found[0] < 1.02 * whole[0]


@pytest.mark.long
def test_derivatives():
    body = block(element=jg.fem.Hex8())

    @jax.jit
    def tip(modulus, stretch):
        material = jg.fem.Isotropic(modulus, 0.3, 7850.0)
        mesh = eqx.tree_at(lambda m: m.nodes, body.mesh, body.mesh.nodes * stretch[None])
        structure, poses = cantilever(jg.fem.Body(mesh, material), ends(body) * stretch[None])
        loads = [js.NodalForce("arm.tip", FORCE), js.Inertia(GRAVITY)]
        solution = js.solve(structure, poses, loads, throw=False)
        return 1e3 * jnp.linalg.norm(solution.part("arm").displacements[1])

    jax.test_util.check_grads(
        lambda scale, stretch: tip(210e9 * scale, stretch),
        (jnp.array(1.0), jnp.array([1.0, 1.1, 0.9])),
        order=1,
        modes=["rev"],
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (((0, 1), "block", ("x0", "x1")), "give a fem.Body of solid elements"),
        (((0, 1), "clamped", ("x0", "x1")), "without supports"),
        (((0,), "whole", ("x0", "x1")), "1 nodes and 2 interfaces"),
        (((1, 1), "whole", ("x0", "x1")), "give each once"),
        (((0, 1), "whole", ("x0", "y0")), "have node .* in common"),
        (((0, 1), "whole", ("x0", "top")), "top"),
    ],
)
def test_wrong_solids_get_a_sentence(arguments, sentence):
    nodes, body, interfaces = arguments
    bodies = {"whole": block(), "clamped": jg.fem.Body(block().mesh, STEEL, clamp="x0")}
    with pytest.raises(ValueError, match=sentence):
        js.Solid(nodes, bodies.get(body, body), interfaces)


def test_large_displacements_are_refused():
    body = block()
    structure, poses = cantilever(body, ends(body))
    load = js.NodalForce("arm.tip", FORCE)
    with pytest.raises(ValueError, match="has solids; second_order"):
        js.second_order(structure, poses, load)
    with pytest.raises(ValueError, match="has solids"):
        js.frequencies(structure, poses, 2, load)
