import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

me = jg.mechanism.loops
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


@pytest.mark.long
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


@pytest.mark.long
def test_sentences(link):
    mechanism, start = link
    cases = [
        (lambda: jg.models.four_bar(lengths=(0.9, 0.1, 0.35, 0.3)), "misses loop 'pin' by 0.2 m"),
        (lambda: me.assemble(mechanism, start, {"crank": 1.0, "rocker": 2.5}), "rocker prescribed"),
        (lambda: me.assemble(mechanism, start * jnp.nan), "are not finite"),
        (lambda: me.assemble(mechanism, start, {"crnk": 1.0}), "perhaps 'crank'"),
        (lambda: me.assemble(mechanism, start, {"crank": [1.0, 2.0]}), r"value of 'crank' has"),
        (lambda: me.assemble(mechanism, start, {"crank": np.nan}), "value of 'crank' is not fin"),
        (lambda: me.assemble(mechanism, start[:2]), r"guess has the shape \(2,\)"),
        (
            lambda: me.consistent_velocity(mechanism, start, start, {"crank": 1.0, "rocker": 2.0}),
            "are inconsistent here",
        ),
    ]
    for make, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            make()
    result = me.assemble(mechanism, start, {"crank": 1.0, "rocker": 2.5}, throw=False).result
    assert bool(result == me.RESULTS.not_converged)


@pytest.mark.long
def test_traced_rods_that_do_not_meet_give_no_start():
    def start(lengths):
        return jg.models.four_bar(lengths=lengths).start

    found = jax.vmap(start)(jnp.array([LENGTHS, (0.9, 0.1, 0.35, 0.3)]))
    np.testing.assert_allclose(found[0], four_bar_angles(1.0), atol=1e-13)
    assert np.all(np.isnan(found[1]))


@pytest.mark.long
def test_a_joint_turned_by_180_degrees_is_named():
    """A door on two hinges with opposite axes."""
    box = ((1.0, 0.0, 0.0), 1.0, (0.1, 0.0, 0.0), (0.1, 0.1, 0.1))
    tree = jg.rigid.from_placements([jg.rigid.Placement("door", None, *box)])
    axis = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 0.6]])
    seat = axis - np.array([1.0, 0.0, 0.0])
    right = me.Mechanism(tree, [me.Loop("hinge", jg.joints.Hinge(), None, "door", axis, seat)])
    assert me.mobility(right, jnp.zeros(1)).degrees_of_freedom == 1
    wrong = np.array([seat[0], seat[0] - [0.0, 0.0, 0.1]])
    turned = me.Mechanism(tree, [me.Loop("hinge", jg.joints.Hinge(), None, "door", axis, wrong)])
    with pytest.raises(me.MechanismError, match="rotated by 180°"):
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


@pytest.mark.long
def test_the_position_found_is_near_the_guess():
    """Newton's step is unbounded where constraints depend on each other, as in a flat four-bar."""
    mechanism = jg.models.four_bar(lengths=(2.0, 4.0, 4.0, 4.0)).mechanism
    guesses = np.random.default_rng(3).uniform(-np.pi, np.pi, (200, 3))
    guesses[0] = [1e-3, 0.0, 0.0]
    close = jax.jit(jax.vmap(lambda guess: me.assemble(mechanism, guess, throw=False)))
    closed = close(jnp.asarray(guesses))
    assert np.all(closed.result == me.RESULTS.successful)
    assert np.abs(np.asarray(closed.q) - guesses).max() < 2 * np.pi


@pytest.mark.long
def test_slides_stay_near_too():
    """A crank of 0.1 m, a rod of 0.3 m, a slider: 0.4 m is its largest distance."""
    zero = (0.0, 0.0, 0.0)
    body = {"translation": zero, "mass": 1.0, "com": zero, "inertia": (0.1, 0.1, 0.1)}
    tree = jg.rigid.from_placements(
        [
            jg.rigid.Placement("crank", None, **body),
            jg.rigid.Placement("slider", None, joint="prismatic", axis=(1.0, 0.0, 0.0), **body),
        ]
    )
    tip, origin = (jg.joints.Frame(jnp.array([x, 0.0, 0.0]), jnp.eye(3)) for x in (0.1, 0.0))
    rod = me.Loop("rod", jg.joints.Distance(0.3), "crank", "slider", tip, origin)
    mechanism = me.Mechanism(tree, [rod])
    guesses = np.random.default_rng(5).uniform([-np.pi, -0.6], [np.pi, 0.6], (200, 2))
    guesses[0] = [0.0, 1e-9]
    close = jax.jit(jax.vmap(lambda guess: me.assemble(mechanism, guess, throw=False)))
    closed = close(jnp.asarray(guesses))
    assert np.all(closed.result == me.RESULTS.successful)
    change = np.abs(np.asarray(closed.q) - guesses)
    assert change[:, 0].max() < np.pi
    assert change[:, 1].max() < 0.8


def bennett(a=1.0, b=2.0, alpha=0.5):
    """Four skew hinges that move although counting says they cannot (Bennett 1903)."""
    beta = np.arcsin(b / a * np.sin(alpha))
    first = 1.0
    ratio = np.sin((beta + alpha) / 2) / np.sin((beta - alpha) / 2)
    second = 2 * np.arctan(ratio / np.tan(first / 2))
    angles = np.array([first, second, -first])
    rows = [
        jg.rigid.DHRow(
            name=f"b{k}",
            parent=f"b{k - 1}" if k else None,
            a=length,
            alpha=twist,
            mass=1.0,
            com=(0.0, 0.0, 0.0),
            inertia=(0.1, 0.1, 0.1),
        )
        for k, (length, twist) in enumerate([(0.0, 0.0), (a, alpha), (b, beta)])
    ]
    tree = jg.rigid.from_dh(rows)
    # The fourth hinge is a row of a and alpha after the third body, and one of b and beta before
    # the base.
    place = jg.rigid.forward_kinematics(tree, jnp.asarray(angles))
    tip = np.array([[a, 0.0, 0.0], [a, -np.sin(alpha), np.cos(alpha)]])
    points = np.asarray(place.translation[2]) + tip @ np.asarray(place.rotation[2]).T
    points = np.vstack([points, points[0] + [0.3, 0.1, -0.2]])
    # Its axis is that of the base as well.
    base = np.array([[-b, 0.0, 0.0], [-b, np.sin(beta), np.cos(beta)]])
    np.testing.assert_allclose(points[:2], base, atol=1e-12)
    loop = me.closed_at(tree, jnp.asarray(angles), "fourth", jg.joints.Hinge(), "b2", None, points)
    return me.Mechanism(tree, [loop]), jnp.asarray(angles)


@pytest.mark.long
def test_equations_that_always_depend_on_others_are_no_singularity(link):
    for mechanism, start in (bennett(), (link.mechanism, link.start)):
        closed = me.assemble(mechanism, start + 0.01)
        assert me.mobility(mechanism, closed.q).degrees_of_freedom == 1
        assert closed.conditioning > 1e-2
        assert not closed.warnings()


@pytest.mark.long
def test_derivatives_at_a_bifurcation_come_with_a_word():
    """A flat parallelogram may continue parallel or crossed: rocker over crank is 1 or -1."""
    mechanism = jg.models.four_bar(lengths=(1.0, 0.5, 1.0, 0.5)).mechanism
    flat = jnp.array([np.pi, -np.pi, np.pi])

    def rocker(crank, guess):
        return me.assemble(mechanism, guess, {"crank": crank}).q[2]

    near = jnp.array([3.0, -3.0, 3.0])
    assert abs(jax.grad(rocker)(3.0, near) - 1.0) < 1e-10
    with pytest.warns(UserWarning, match="singular position"):
        slope = jax.grad(rocker)(np.pi, flat)
    assert abs(abs(slope) - 1.0) > 0.1
    with pytest.warns(UserWarning, match="independent to 0 only"):
        closed = me.assemble(mechanism, flat)
    assert closed.conditioning == 0.0
    batch = jax.jit(jax.vmap(lambda q: me.assemble(mechanism, q, throw=False)))
    conditioning = batch(jnp.stack([near, flat])).conditioning
    assert conditioning[0] > 1e-3
    assert conditioning[1] == 0.0
