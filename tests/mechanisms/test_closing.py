import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

me = jg.mechanisms
GROUND, CRANK, COUPLER, ROCKER = LENGTHS = (0.4, 0.1, 0.35, 0.3)


def four_bar_angles(crank, lengths=LENGTHS):
    """Coordinates by the law of cosines."""
    ground, a, b, c = lengths
    way = ground - a * np.exp(1j * crank)
    d = abs(way)
    coupler = np.angle(way) + np.arccos((d**2 + b**2 - c**2) / (2 * d * b))
    rocker = np.angle(a * np.exp(1j * crank) + b * np.exp(1j * coupler) - ground)
    return np.array([crank, coupler - crank, rocker])


@pytest.fixture(scope="module")
def link():
    return jg.models.four_bar()


def test_positions_by_the_law_of_cosines(link):
    angles = np.linspace(0.0, 2 * np.pi, 13)

    exact = jnp.stack([four_bar_angles(angle) for angle in angles])

    def position(angle, guess):
        return me.assemble(link.mechanism, guess, {"crank": angle}, throw=False)

    closed = jax.jit(jax.vmap(position))(jnp.asarray(angles), exact + 0.2)
    np.testing.assert_allclose(closed.q, exact, atol=1e-13)
    assert np.all(closed.result == me.RESULTS.successful)


def test_derivatives_of_positions_and_rates(link):
    def position(angle, lengths):
        loop = jg.models.four_bar(lengths=lengths, angle=angle)
        return loop.start

    by_angle, by_lengths = jax.jit(jax.jacrev(position, argnums=(0, 1)))(
        jnp.asarray(1.0), jnp.asarray(LENGTHS)
    )
    e = 1e-6
    difference = (four_bar_angles(1 + e) - four_bar_angles(1 - e)) / (2 * e)
    np.testing.assert_allclose(by_angle, difference, atol=1e-9)
    for k in range(4):
        step = e * np.eye(4)[k]
        up, down = (four_bar_angles(1.0, np.array(LENGTHS) + s) for s in (step, -step))
        np.testing.assert_allclose(by_lengths[:, k], (up - down) / (2 * e), atol=1e-8)
    rates = me.consistent_velocity(link.mechanism, link.start, jnp.zeros(3), {"crank": 1.0})
    np.testing.assert_allclose(rates, difference, atol=1e-9)


def test_what_an_impact_leaves_has_least_kinetic_distance(link):
    asked = jnp.array([1.0, -2.0, 0.5])
    left = me.consistent_velocity(link.mechanism, link.start, asked)
    mass = jg.rigid.crba(link.mechanism.tree, link.start)
    free = me.consistent_velocity(link.mechanism, link.start, asked, {"crank": 1.0})
    np.testing.assert_allclose(free @ mass @ (asked - left), 0.0, atol=1e-13)
    np.testing.assert_allclose(left, left[0] * free, atol=1e-13)


def test_sentences(link):
    mechanism, start = link
    cases = [
        (lambda: jg.models.four_bar(lengths=(0.9, 0.1, 0.35, 0.3)), "misses loop 'pin' by 0.2 m"),
        (lambda: me.assemble(mechanism, start, {"crank": 1.0, "rocker": 2.5}), "rocker held"),
        (lambda: me.assemble(mechanism, start * jnp.nan), "are not finite"),
        (lambda: me.assemble(mechanism, start, {"crnk": 1.0}), "perhaps 'crank'"),
        (lambda: me.assemble(mechanism, start, {"crank": [1.0, 2.0]}), r"'crank' is held at has"),
        (lambda: me.assemble(mechanism, start, {"crank": np.nan}), "'crank' is held at is not fin"),
        (lambda: me.assemble(mechanism, start[:2]), r"guess has the shape \(2,\)"),
        (
            lambda: me.consistent_velocity(mechanism, start, start, {"crank": 1.0, "rocker": 2.0}),
            "do not go together here",
        ),
    ]
    for make, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            make()
    result = me.assemble(mechanism, start, {"crank": 1.0, "rocker": 2.5}, throw=False).result
    assert bool(result == me.RESULTS.open)


def test_traced_rods_that_do_not_meet_give_no_start():
    def start(lengths):
        return jg.models.four_bar(lengths=lengths).start

    found = jax.vmap(start)(jnp.array([LENGTHS, (0.9, 0.1, 0.35, 0.3)]))
    np.testing.assert_allclose(found[0], four_bar_angles(1.0), atol=1e-13)
    assert np.all(np.isnan(found[1]))


def test_a_joint_turned_by_180_degrees_is_named():
    """A door on two hinges whose second axis runs the other way."""
    box = ((1.0, 0.0, 0.0), 1.0, (0.1, 0.0, 0.0), (0.1, 0.1, 0.1))
    tree = jg.rigid.from_placements([jg.rigid.Placement("door", None, *box)])
    axis = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 0.6]])
    seat = axis - np.array([1.0, 0.0, 0.0])
    right = me.Mechanism(tree, [me.Loop("hinge", jg.joints.Hinge(), None, "door", axis, seat)])
    assert me.mobility(right, jnp.zeros(1)).freedoms == 1
    wrong = np.array([seat[0], seat[0] - [0.0, 0.0, 0.1]])
    turned = me.Mechanism(tree, [me.Loop("hinge", jg.joints.Hinge(), None, "door", axis, wrong)])
    with pytest.raises(me.MechanismError, match="turned by 180°"):
        me.assemble(turned, jnp.zeros(1))


def test_new_numbers_do_not_recompile(link):
    traces = []

    @jax.jit
    def position(mechanism, angle):
        traces.append(None)
        return me.assemble(mechanism, jnp.array([1.0, 0.0, 1.5]), {"crank": angle}, throw=False).q

    for angle in (1.0, 1.1):
        position(jg.models.four_bar(lengths=np.array(LENGTHS) * angle).mechanism, angle)
    assert len(traces) == 1
