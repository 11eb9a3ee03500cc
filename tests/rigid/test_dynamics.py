import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg
from jaxgrip.rigid import _recursion as recursion

from .conftest import random_state, random_tree

SOAK = {"marks": pytest.mark.soak}
# Seed and number of joints of random trees.
TREES = [(1, 4), (4, 20), pytest.param(3, 12, **SOAK)]
BRANCHED = [(3, 12), pytest.param(1, 4, **SOAK)]


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * float(np.abs(b).max()))


def without_gravity(tree):
    return eqx.tree_at(lambda t: t.gravity, tree, jnp.zeros(3))


@pytest.mark.long
@pytest.mark.parametrize(("seed", "size"), TREES)
def test_mass_matrix_is_the_columns_of_inverse_dynamics(seed, size):
    tree = random_tree(seed, size)
    q, *_ = random_state(seed, tree.n)
    still = without_gravity(tree)
    columns = jax.vmap(lambda e: jg.rigid.rnea(still, q, jnp.zeros_like(q), e))(jnp.eye(tree.n))
    m = jg.rigid.crba(tree, q)
    close(m, columns.T)
    np.testing.assert_array_equal(m, m.T)
    assert np.linalg.eigvalsh(m).min() > 0


@pytest.mark.long
@pytest.mark.parametrize(("seed", "size"), TREES)
def test_the_ways_to_accelerations_agree(seed, size):
    tree = random_tree(seed, size)
    q, qd, qdd, tau = random_state(seed, tree.n)
    m, h = jg.rigid.crba(tree, q), jg.rigid.bias_forces(tree, q, qd)
    acceleration = jnp.linalg.solve(m, tau - h)
    close(jg.rigid.forward_dynamics(tree, q, qd, tau), acceleration)
    close(jg.rigid.aba(tree, q, qd, tau), acceleration)
    close(jg.rigid.rnea(tree, q, qd, qdd), m @ qdd + h)
    close(jg.rigid.solve_mass(tree, q, tau), jnp.linalg.solve(m, tau))


@pytest.mark.long
@pytest.mark.parametrize(("seed", "size"), BRANCHED)
def test_unrolled_and_scanned_sweeps_agree(monkeypatch, seed, size):
    tree = random_tree(seed, size)
    q, qd, qdd, tau = random_state(seed, tree.n)

    def everything():
        return (
            jg.rigid.rnea_bodies.__wrapped__(tree, q, qd, qdd),
            jg.rigid.crba.__wrapped__(tree, q),
            jg.rigid.aba.__wrapped__(tree, q, qd, tau),
            jg.rigid.forward_kinematics.__wrapped__(tree, q),
        )

    results = []
    for limit in (0, 99):
        monkeypatch.setattr(recursion, "UNROLL_LIMIT", limit)
        results.append(jax.jit(lambda: everything())())
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        close(a, b)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "size"), BRANCHED)
def test_passivity(seed, size):
    tree = random_tree(seed, size)
    q, qd, *_ = random_state(seed, tree.n)
    c = jg.rigid.coriolis_matrix(tree, q, qd)
    _, mdot = jax.jvp(lambda x: jg.rigid.crba(tree, x), (q,), (qd,))
    skew = mdot - 2 * c
    close(skew.T, -skew, 1e-11)
    close(c @ qd, jg.rigid.bias_forces(tree, q, qd) - jg.rigid.gravity_forces(tree, q), 1e-11)
    gamma = jg.rigid.christoffel(tree, q)
    close(gamma, jnp.swapaxes(gamma, 0, 1))


@pytest.mark.long
@pytest.mark.parametrize(("seed", "size"), BRANCHED)
def test_energies(seed, size):
    tree = random_tree(seed, size)
    q, qd, *_ = random_state(seed, tree.n)
    force = jax.grad(jg.rigid.potential_energy, argnums=1)(tree, q)
    close(force, jg.rigid.gravity_forces(tree, q), 1e-11)
    jacobian = jg.rigid.body_jacobians(tree, q)
    spin, speed = (jacobian @ qd)[:, :3], (jacobian @ qd)[:, 3:]
    rotation = jg.rigid.forward_kinematics(tree, q).rotation
    arm = jnp.einsum("bij,bj->bi", rotation, tree.com)
    centre = speed + jnp.cross(spin, arm)
    inertia = jnp.einsum("bij,bjk,blk->bil", rotation, tree.inertia, rotation)
    energy = 0.5 * (
        jnp.sum(tree.mass * jnp.sum(centre**2, axis=1))
        + jnp.einsum("bi,bij,bj->", spin, inertia, spin)
    )
    close(jg.rigid.kinetic_energy(tree, q, qd), energy)


@pytest.mark.parametrize(("seed", "size"), BRANCHED)
def test_jacobians_are_derivatives_of_poses(seed, size):
    tree = random_tree(seed, size)
    q, *_ = random_state(seed, tree.n)
    jacobian = jg.rigid.body_jacobians(tree, q)
    rate = jax.jacfwd(jg.rigid.forward_kinematics, argnums=1)(tree, q)
    rotation = jg.rigid.forward_kinematics(tree, q).rotation
    close(jacobian[:, 3:], rate.translation)
    spin = jnp.einsum("bijn,bkj->bikn", rate.rotation, rotation)
    close(jacobian[:, 0], spin[:, 2, 1])
    close(jacobian[:, 1], spin[:, 0, 2])
    close(jacobian[:, 2], spin[:, 1, 0])


def test_external_load_does_the_work_of_its_jacobian():
    tree = random_tree(2, 7)
    q, qd, qdd, _ = random_state(2, tree.n)
    force, moment, point = jnp.array([1.0, -2, 3]), jnp.array([0.3, 0.1, -0.2]), jnp.ones(3) / 9
    load = jg.rigid.point_load(tree, "body6", force, moment, point)
    change = jg.rigid.rnea(tree, q, qd, qdd, load) - jg.rigid.rnea(tree, q, qd, qdd)
    jacobian = jg.rigid.body_jacobians(tree, q)[6]
    r = jg.rigid.forward_kinematics(tree, q).rotation[6]
    wrench = jnp.concatenate([r @ (moment + jnp.cross(point, force)), r @ force])
    close(change, -jacobian.T @ wrench)


def test_golden_arm():
    """Planar two-link arm; independent values in closed form."""
    shape = {"inertia": None, "translation": (0.0, 0.0, 0.0), "axis": (0.0, 0.0, 1.0)}
    first = {"mass": 1.0, "com": (0.0, -0.25, 0.0), "inertia": (0.02, 0.02, 0.02)}
    second = {"mass": 0.8, "com": (0.0, -0.2, 0.0), "inertia": (0.01, 0.01, 0.01)}
    tree = jg.rigid.from_placements(
        [
            jg.rigid.Placement("upper", None, **(shape | first)),
            jg.rigid.Placement(
                "lower", "upper", **(shape | second | {"translation": (0.0, -0.5, 0.0)})
            ),
        ],
        gravity=(0.0, -9.81, 0.0),
    )
    q, qd, u = jnp.array([0.3, -0.7]), jnp.array([1.1, -0.4]), jnp.array([0.5, -0.1])
    d = [[0.44687475, 0.10318737], [0.10318737, 0.042]]
    np.testing.assert_allclose(jg.rigid.crba(tree, q), d, rtol=1e-7)
    h = -0.051537415
    gamma = [[[0, h], [-h, 0]], [[-h, 0], [-h, 0]]]
    np.testing.assert_allclose(jg.rigid.christoffel(tree, q), gamma, rtol=1e-7, atol=1e-15)
    c = [[-0.02061497, 0.03607619], [-0.05669116, 0]]
    np.testing.assert_allclose(jg.rigid.coriolis_matrix(tree, q, qd), c, rtol=2e-7, atol=1e-15)
    np.testing.assert_allclose(
        jg.rigid.gravity_forces(tree, q), [1.27315357, -0.61123103], rtol=1e-8
    )
    np.testing.assert_allclose(
        jg.rigid.forward_dynamics(tree, q, qd, u), [-11.09471403, 40.91489809], rtol=1e-9
    )


def functions(tree, q, qd, tau):
    r = jg.rigid
    return {
        "rnea": (lambda t, x, v, a: r.rnea(t, x, v, a), (tree, q, qd, tau)),
        "bias": (lambda t, x, v: r.bias_forces(t, x, v), (tree, q, qd)),
        "gravity": (lambda t, x: r.gravity_forces(t, x), (tree, q)),
        "crba": (lambda t, x: r.crba(t, x), (tree, q)),
        "aba": (lambda t, x, v, f: r.aba(t, x, v, f), (tree, q, qd, tau)),
        "dynamics": (lambda t, x, v, f: r.forward_dynamics(t, x, v, f), (tree, q, qd, tau)),
        "kinetic": (lambda t, x, v: r.kinetic_energy(t, x, v), (tree, q, qd)),
        "potential": (lambda t, x: r.potential_energy(t, x), (tree, q)),
        "poses": (lambda t, x: tuple(r.forward_kinematics(t, x)), (tree, q)),
        "bodies": (lambda t, x, v, a: tuple(r.rnea_bodies(t, x, v, a)), (tree, q, qd, tau)),
        "jacobians": (lambda t, x: r.body_jacobians(t, x), (tree, q)),
        "coriolis": (lambda t, x, v: r.coriolis_matrix(t, x, v), (tree, q, qd)),
    }


def small_tree():
    row = jg.rigid.DHRow("a", None, 0.0, 0.0, 1.3, (0.1, 0.02, 0.0), (0.02, 0.03, 0.025), d=0.1)
    rows = [
        row,
        row._replace(name="b", parent="a", a=0.3, alpha=-1.2, joint="prismatic", d=0.0),
        row._replace(name="c", parent="b", a=0.2, alpha=0.4, d=0.0),
    ]
    return jg.rigid.from_dh(rows)


def varied(tree, change):
    """The tree with every number changed; rotations stay rotations, inertias symmetric."""
    relative, shift, turn = change

    def spin(rotation, w):
        k = jg.spatial.skew(w)
        return rotation @ (jnp.eye(3) + k + k @ k / 2)

    return eqx.tree_at(
        lambda t: (t.mass, t.inertia, t.com, t.translation, t.gravity, t.rotation),
        tree,
        (
            tree.mass * (1 + relative[0]),
            tree.inertia * (1 + relative[1])[:, None, None],
            tree.com + shift[0],
            tree.translation + shift[1],
            tree.gravity + shift[2, 0],
            jax.vmap(spin)(tree.rotation, turn),
        ),
    )


@pytest.mark.long
@pytest.mark.parametrize("name", list(functions(None, None, None, None)))
def test_derivatives_both_modes(name):
    """By states and by the numbers of the model, also at zero angle and velocity."""
    tree = small_tree()
    function, _ = functions(tree, *jnp.zeros((3, 3)))[name]
    compiled = jax.jit(lambda change, *state: function(varied(tree, change), *state))
    change = (jnp.zeros((2, 3)), jnp.zeros((3, 3, 3)), jnp.zeros((3, 3)))
    for q, qd, _, tau in (random_state(8, 3), jnp.zeros((4, 3))):
        _, (_, *state) = functions(tree, q, qd, tau)[name]
        check_grads(compiled, (change, *state), order=1, modes=("fwd", "rev"), rtol=1e-5, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("at_zero", [False, True])
def test_implicit_derivative_by_every_number_of_the_model(at_zero):
    """Against differentiating through the articulated bodies; off rotations both mean nothing."""
    tree = small_tree()
    q, qd, _, tau = jnp.zeros((4, 3)) if at_zero else random_state(8, 3)
    ours = jax.jit(jax.jacrev(jg.rigid.forward_dynamics))(tree, q, qd, tau)
    through = jax.jit(jax.jacrev(jg.rigid.aba))(tree, q, qd, tau)
    for name in ("translation", "mass", "com", "inertia", "gravity"):
        close(getattr(ours, name), getattr(through, name), 1e-11)


@pytest.mark.long
def test_second_derivatives_of_forward_dynamics():
    tree = small_tree()
    q, qd, _, tau = random_state(8, 3)
    x = jnp.concatenate([q, qd])
    weight = jnp.array([0.3, -0.7, 0.2])

    def value(x, mass):
        t = eqx.tree_at(lambda t: t.mass, tree, mass)
        return weight @ jg.rigid.forward_dynamics(t, x[:3], x[3:], tau)

    forward_over_reverse = jax.jit(jax.jacfwd(jax.grad(value)))(x, tree.mass)
    step = 1e-5
    gradient = jax.jit(jax.grad(value))
    for k in range(6):
        e = step * jnp.eye(6)[k]
        difference = (gradient(x + e, tree.mass) - gradient(x - e, tree.mass)) / (2 * step)
        np.testing.assert_allclose(forward_over_reverse[:, k], difference, rtol=1e-6, atol=1e-6)
    close(forward_over_reverse, forward_over_reverse.T)


@pytest.mark.long
def test_large_tree_derivatives_match_small_tree_derivatives(monkeypatch):
    tree = random_tree(5, 5)
    q, qd, _, tau = random_state(5, tree.n)

    def jacobians():
        return jax.jit(
            lambda: (
                jax.jacfwd(jg.rigid.forward_dynamics.__wrapped__, (1, 2, 3))(tree, q, qd, tau),
                jax.grad(lambda t: jg.rigid.forward_dynamics.__wrapped__(t, q, qd, tau).sum())(
                    tree
                ),
            )
        )()

    small = jacobians()
    jax.clear_caches()
    monkeypatch.setattr(recursion, "UNROLL_LIMIT", 0)
    large = jacobians()
    jax.clear_caches()
    for a, b in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        close(a, b, 1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    "make", [small_tree, pytest.param(jg.models.two_finger_gripper, marks=pytest.mark.soak)]
)
def test_jacobians_of_many_states(make):
    tree = make()
    states = jnp.asarray(np.random.default_rng(6).normal(size=(3, tree.n, 4)))
    ours = jg.rigid.forward_dynamics_derivatives(tree, *states)
    each = jax.vmap(
        jax.jacfwd(jg.rigid.forward_dynamics, argnums=(1, 2, 3)),
        in_axes=(None, -1, -1, -1),
        out_axes=-1,
    )
    for a, b in zip(ours, jax.jit(each)(tree, *states), strict=True):
        close(a, b)


def fixed_chain(size):
    row = jg.rigid.DHRow("b0", None, 0.1, 0.0, 2.0, (0.05, 0.0, 0.0), (0.02, 0.03, 0.025))
    rows = [row._replace(name=f"b{i}", parent=f"b{i - 1}" if i else None) for i in range(size)]
    return jg.rigid.from_dh([row._replace(joint="fixed") for row in rows], (-10.0, 0.0, 0.0))


@pytest.mark.parametrize("size", [1, 8])
def test_tree_that_cannot_move(size):
    tree, none = fixed_chain(size), jnp.zeros(0)
    energy = 20.0 * sum(0.1 * (i + 1) + 0.05 for i in range(size))
    np.testing.assert_allclose(jg.rigid.potential_energy(tree, none), energy, rtol=1e-14)
    assert jg.rigid.kinetic_energy(tree, none, none) == 0.0
    assert jg.rigid.crba(tree, none).shape == (0, 0)
    assert jg.rigid.coriolis_matrix(tree, none, none).shape == (0, 0)
    assert jg.rigid.body_jacobians(tree, none).shape == (size, 6, 0)
    for name in ("rnea", "aba", "forward_dynamics"):
        assert getattr(jg.rigid, name)(tree, none, none, none).shape == (0,)
    held = jg.rigid.rnea_bodies(tree, none, none, none).F[0]
    np.testing.assert_allclose(held, (20.0 * size, 0.0, 0.0), rtol=1e-14)
    expansion = jg.rigid.StateSpace(tree).expand(none, none, none)
    assert [a.shape for a in expansion] == [(0,), (0, 0), (0, 0)]


@pytest.mark.long
@pytest.mark.parametrize("size", [3, pytest.param(8, marks=pytest.mark.soak)])
def test_single_precision_stays_single(size):
    tree = random_tree(9, size)
    model = (tree, *random_state(9, tree.n))
    rough = single, *state = jax.tree.map(lambda a: a.astype("float32"), model)
    for name, which in (("rnea", (0, 1, 2, 3)), ("crba", (0, 1)), ("aba", (0, 1, 2, 4))):
        ours, exact = (getattr(jg.rigid, name)(*(m[k] for k in which)) for m in (rough, model))
        assert ours.dtype == jnp.float32
        close(ours, exact, 1e-4)
    x = jnp.concatenate(state[:2])
    expansion = jg.rigid.StateSpace(single).expand(x, state[3], x)
    assert all(a.dtype == jnp.float32 for a in expansion)


@pytest.mark.usefixtures("unchecked")
def test_wrong_shapes_are_named():
    tree = random_tree(9, 3)
    right, long = jnp.zeros(3), jnp.zeros(4)
    with pytest.raises(ValueError, match=r"q has the shape \(4,\); it must be \(3,\)"):
        jg.rigid.rnea(tree, long, long, long)
    with pytest.raises(ValueError, match=r"q has the shape \(4,\)"):
        jg.rigid.forward_kinematics(tree, long)
    with pytest.raises(ValueError, match=r"tau has the shape \(4,\)"):
        jg.rigid.forward_dynamics(tree, right, right, long)
    with pytest.raises(ValueError, match=r"external has the shape \(4, 6\); it must be \(3, 6\)"):
        jg.rigid.rnea(tree, right, right, right, jnp.zeros((4, 6)))


@pytest.fixture
def unchecked(monkeypatch):
    """As users call: without the check of annotations at run time that tests have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


STATE_FUNCTIONS = [
    ("forward_dynamics", 3),
    ("aba", 3),
    ("rnea", 3),
    ("rnea_bodies", 3),
    ("bias_forces", 2),
    ("gravity_forces", 1),
    ("crba", 1),
    ("christoffel", 1),
    ("coriolis_matrix", 2),
    ("kinetic_energy", 2),
    ("potential_energy", 1),
    ("forward_kinematics", 1),
    ("body_jacobians", 1),
    ("solve_mass", 2),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("name", "count"), STATE_FUNCTIONS)
@pytest.mark.parametrize("size", [2, 8])
def test_whole_numbers_and_other_precisions(name, count, size):
    """Unrolled and scanned: whole numbers are converted, float32 and complex are refused."""
    tree, function = random_tree(9, size), getattr(jg.rigid, name)
    n = tree.n
    whole, mixed = jnp.ones(n, int), jnp.ones(n, jnp.float32)
    shapes = jax.eval_shape(function, tree, *[jnp.ones(n)] * count)
    assert jax.eval_shape(function, tree, *[whole] * count) == shapes
    with pytest.raises(
        ValueError, match=r"^\w+ has dtype float32; it must be float64, as in the model"
    ):
        jax.eval_shape(function, tree, *[mixed] * count)
    with pytest.raises(ValueError, match=r"^\w+ has dtype complex128; it must be float64"):
        jax.eval_shape(function, tree, *[jnp.ones(n, complex)] * count)
    with pytest.raises(ValueError, match=r"^\w+ is None; it must be a number"):
        function(tree, *[None] * count)


@pytest.mark.usefixtures("unchecked")
def test_whole_numbers_have_the_values_of_floats():
    """A level pendulum of 2 kg at 0.5 m: moment of gravity m g r = 10, inertia m r^2 + 0.5 = 1."""
    inertia = (0.5, 0.5, 0.5)
    rod = jg.rigid.Placement("rod", None, (0.0, 0.0, 0.0), 2.0, (0.5, 0.0, 0.0), inertia)
    tree = jg.rigid.from_placements([rod], gravity=(0.0, -10.0, 0.0))
    zero = jnp.zeros(1, int)
    np.testing.assert_allclose(jg.rigid.forward_dynamics(tree, zero, zero, zero), [-10.0])
    np.testing.assert_allclose(jg.rigid.forward_dynamics(tree, [0], [0], [0]), [-10.0])
    many = jg.rigid.forward_dynamics_derivatives(tree, *[zero[None]] * 3)
    np.testing.assert_allclose(many[2], [[[1.0]]])
    load = jg.rigid.point_load(tree, "rod", [0, 1, 0], None, [1, 0, 0])
    np.testing.assert_allclose(load, [[0.0, 1.0, 0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(jg.rigid.body_point(tree, zero, "rod", [1, 0, 0]), [1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        (((3, 4), (3, 5), (3, 4)), r"^qd has the shape \(3, 5\); it must be \(3, 4\)"),
        (((3, 4), (3, 4), (3, 1)), r"^tau has the shape \(3, 1\); it must be \(3, 4\)"),
        (
            ((4096, 3),) * 3,
            r"^q has the shape \(4096, 3\); it must be \(3, batch\), one state a col",
        ),
        (((3,),) * 3, r"^q has the shape \(3,\); it must be \(3, batch\), one state a column"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_shapes_of_many_states(shapes, sentence):
    tree = jg.models.gripper_finger("A").tree
    with pytest.raises(ValueError, match=sentence):
        jg.rigid.forward_dynamics_derivatives(tree, *map(jnp.zeros, shapes))


def test_new_numbers_do_not_recompile():
    tree = random_tree(9, 3)
    q, qd, _, tau = random_state(9, tree.n)
    jg.rigid.forward_dynamics(tree, q, qd, tau)
    compiled = jg.rigid.forward_dynamics._cache_size()
    jg.rigid.forward_dynamics(eqx.tree_at(lambda t: t.mass, tree, 2 * tree.mass), 2 * q, qd, tau)
    assert jg.rigid.forward_dynamics._cache_size() == compiled


def test_batches_of_states_and_of_models():
    tree = random_tree(9, 3)
    states = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5, tree.n)))
    alone = [jg.rigid.forward_dynamics(tree, *(s[k] for s in states)) for k in range(5)]
    batch = jax.vmap(jg.rigid.forward_dynamics, in_axes=(None, 0, 0, 0))(tree, *states)
    close(batch, jnp.stack(alone))
    heavier = eqx.tree_at(lambda t: t.mass, tree, tree.mass[None] * jnp.array([[1.0], [2.0]]))
    axes = eqx.tree_at(
        lambda t: t.mass, jax.tree.map(lambda _: None, tree), 0, is_leaf=lambda x: x is None
    )
    models = jax.vmap(jg.rigid.forward_dynamics, in_axes=(axes, None, None, None))(
        heavier, *(s[0] for s in states)
    )
    close(models[0], alone[0])
    double = eqx.tree_at(lambda t: t.mass, tree, 2 * tree.mass)
    close(models[1], jg.rigid.forward_dynamics(double, *(s[0] for s in states)))


@pytest.mark.long
def test_chain_of_a_hundred_bodies():
    row = jg.rigid.DHRow("b0", None, 0.0, 0.0, 1.0, (0.05, 0.0, 0.0), (0.02, 0.03, 0.025))
    rows = [row]
    for i in range(1, 100):
        rows.append(row._replace(name=f"b{i}", parent=f"b{i - 1}", a=0.1, alpha=(-1.0) ** i))
    tree = jg.rigid.from_dh(rows)
    q, qd, _, tau = 0.3 * random_state(3, 100)
    acceleration = jg.rigid.aba(tree, q, qd, tau)
    close(jg.rigid.forward_dynamics(tree, q, qd, tau), acceleration, 1e-9)
    close(jg.rigid.rnea(tree, q, qd, acceleration), tau, 1e-9)
    program = jax.make_jaxpr(jg.rigid.rnea)(tree, q, qd, tau)
    assert len(str(program).splitlines()) < 1000


def test_inverse_masses_of_chains_beside_each_other():
    """Three joints in a row and one of its own, at two states."""
    row = jg.rigid.DHRow("a0", None, 0.3, 0.4, 2.0, (0.1, 0.05, 0.0), (0.02, 0.03, 0.025))
    rows = [row._replace(name=f"a{i}", parent=f"a{i - 1}" if i else None) for i in range(3)]
    tree = jg.rigid.from_dh([*rows, row._replace(name="b")])
    states = np.random.default_rng(6).normal(size=(3, 4, 2))
    by_tau = jg.rigid.forward_dynamics_derivatives(tree, *states)[2]
    for k in range(2):
        close(by_tau[:, :, k], np.linalg.inv(jg.rigid.crba(tree, states[0, :, k])))
