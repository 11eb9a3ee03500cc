import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from tests.mechanism.parallel_cranks import crank_angle

me = jg.mechanism.loops


def energy(mechanism, motion):
    def total(q, qd):
        tree = mechanism.tree
        return jg.rigid.kinetic_energy(tree, q, qd) + jg.rigid.potential_energy(tree, q)

    return jax.vmap(total)(motion.q, motion.qd)


def spinning(link, rate):
    return me.consistent_velocity(link.mechanism, link.start, jnp.zeros(3), {"crank": rate})


# Of the Test Set for IVP Solvers: beta, Theta, gamma, Phi, delta, Omega, epsilon.
ORDER = ("K1", "K2", "K3", "K4", "K5", "K6", "K7")
ANGLES = (
    15.81077119629904,
    -15.75637105984298,
    0.04082224013073101,
    -0.5347301163226948,
    0.5244099658805304,
    0.5347301163226948,
    1.048080741042263,
)
RATES = (
    1139.920302151208,
    -1424.379294994111,
    11.03291221937134,
    19.29337464421385,
    0.5735699284790808,
    -19.29337464421385,
    0.3231791658026955,
)


@pytest.mark.long
def test_andrews_squeezer():
    squeezer = jg.models.andrews_squeezer()
    mechanism, rest = squeezer.mechanism, jnp.zeros(7)
    order = np.array([mechanism.coordinate(name) for name in ORDER])
    torque = squeezer.torque(0.0, squeezer.start, rest)
    qdd, _ = me.forward_dynamics(mechanism, squeezer.start, rest, torque)
    start = [14222.4439199541, -10666.8329399656, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(qdd[order], start, rtol=1e-13, atol=1e-9)
    # The multipliers there are forces of the crank side on K3, in base axes.
    force = me.reaction_forces(mechanism, squeezer.start, rest, torque).force
    exact = np.zeros((3, 3))
    exact[0, :2] = -98.5668703962411, 6.12268834425566
    np.testing.assert_allclose(force, exact, rtol=1e-12, atol=1e-11)

    motion = me.simulate(
        mechanism, squeezer.start, rest, jnp.linspace(0.0, 0.03, 31), squeezer.torque
    )
    np.testing.assert_allclose(motion.q[-1][order], ANGLES, rtol=0, atol=1e-8)
    np.testing.assert_allclose(motion.qd[-1][order], RATES, rtol=1e-6)
    assert np.abs(motion.gap).max() < 1e-15
    assert np.abs(motion.gap_rate).max() < 1e-12


@pytest.mark.long
@pytest.mark.parametrize(
    "make", [jg.models.four_bar, pytest.param(jg.models.slider_crank, marks=pytest.mark.soak)]
)
def test_energy_and_closure_over_ten_seconds(make):
    link = make()
    motion = me.simulate(link.mechanism, link.start, spinning(link, 20.0), jnp.linspace(0, 10, 101))
    total = energy(link.mechanism, motion)
    assert np.abs(total - total[0]).max() < 1e-8
    assert np.abs(motion.gap).max() < 1e-12
    assert np.abs(motion.gap_rate).max() < 1e-11
    assert motion.warnings() == ()


@pytest.mark.soak
def test_redundant_equations_change_nothing():
    times = jnp.linspace(0.0, 1.0, 101)
    hinge, ball = (
        me.simulate(link.mechanism, link.start, spinning(link, 20.0), times)
        for link in (jg.models.four_bar(), jg.models.four_bar(closure=jg.joints.Ball()))
    )
    np.testing.assert_allclose(hinge.q, ball.q, atol=1e-10)
    np.testing.assert_allclose(hinge.multipliers[:, :2], ball.multipliers[:, :2], atol=1e-8)
    np.testing.assert_allclose(hinge.multipliers[:, 2:], np.zeros((101, 3)), atol=1e-10)


@pytest.mark.soak
def test_one_coordinate_moves_as_the_whole():
    """J(s) s̈ + ½ J′(s) ṡ² = Q."""
    link = jg.models.four_bar()
    times = jnp.linspace(0.0, 0.5, 101)
    path = me.follow(link.mechanism, link.start, "crank", jnp.linspace(1.0, 15.0, 300))
    s, sd = me.reduced_motion(path, 1.0, 20.0, times)
    whole = me.simulate(link.mechanism, link.start, spinning(link, 20.0), times)
    np.testing.assert_allclose(s, whole.q[:, 0], atol=1e-8)
    np.testing.assert_allclose(sd, whole.qd[:, 0], atol=1e-7)
    with pytest.raises(me.MechanismError, match=r"leaves the path soon after t = 0\.\d+ s"):
        me.reduced_motion(path, 1.0, 40.0, times)
    with pytest.raises(me.MechanismError, match=r"stopped at t = \S+ s after 3 steps: raise"):
        me.reduced_motion(path, 1.0, 20.0, times, max_steps=3)

    def potential(s):
        return jg.rigid.potential_energy(link.mechanism.tree, path.position(s))

    at, rate, tau = jnp.asarray(1.3), jnp.asarray(2.0), jnp.array([0.3, -0.1, 0.2])
    force = path.transfer(at) @ tau - jax.jit(jax.grad(potential))(at)
    force = force - 0.5 * jax.jit(jax.grad(path.inertia))(at) * rate**2
    exact = force / path.inertia(at)
    np.testing.assert_allclose(path.acceleration(at, rate, tau), exact, rtol=1e-9)


@pytest.mark.long
def test_a_path_ends_where_the_linkage_does():
    link = jg.models.four_bar()
    down = jnp.linspace(float(link.start[2]), 0.0, 30)
    with pytest.raises(me.MechanismError, match=r"does not reach 'rocker' = 1\.7"):
        me.follow(link.mechanism, link.start, "rocker", down)
    free = me.Mechanism(link.mechanism.tree)
    with pytest.raises(me.MechanismError, match="has 3 degrees of freedom"):
        me.follow(free, link.start, "crank", jnp.ones(1))


@pytest.mark.soak
def test_gradient_through_a_motion():
    """Derivatives by lengths, through assembly, initial rates and motion."""
    times = jnp.linspace(0.0, 0.2, 3)

    def end(lengths, rate):
        mechanism, start = jg.models.four_bar(lengths=lengths)
        qd = me.consistent_velocity(mechanism, start, jnp.zeros(3), {"crank": rate})
        motion = me.simulate(mechanism, start, qd, times, lambda t, q, qd: -0.05 * qd)
        return motion.q[-1, 0] + 0.1 * motion.qd[-1, 2] + 0.01 * motion.multipliers[-1, 0]

    point = (jnp.array([0.4, 0.1, 0.35, 0.3]), jnp.asarray(3.0))
    gradient = jax.jit(jax.grad(end, argnums=(0, 1)))(*point)
    value = jax.jit(end)
    for i, x in enumerate(point):
        for k in np.ndindex(x.shape):
            e = jnp.zeros_like(x).at[k].set(1e-4)
            up, down = (value(*point[:i], x + s, *point[i + 1 :]) for s in (e, -e))
            np.testing.assert_allclose(gradient[i][k], (up - down) / 2e-4, rtol=1e-5, atol=1e-8)


@pytest.mark.soak
def test_forward_derivatives_of_a_motion():
    """By gravity, against differences; the error of the other mode is tested with `solve`."""
    link = jg.models.four_bar()
    qd, times = spinning(link, 3.0), jnp.array([0.0, 0.05])

    @jax.jit
    def end(factor):
        tree = eqx.tree_at(
            lambda t: t.gravity, link.mechanism.tree, factor * link.mechanism.tree.gravity
        )
        mechanism = eqx.tree_at(lambda m: m.tree, link.mechanism, tree)
        options = {"rtol": 1e-9, "atol": 1e-9, "adjoint": diffrax.ForwardMode()}
        return me.simulate(mechanism, link.start, qd, times, **options).q[-1, 0]

    difference = (end(1.001) - end(0.999)) / 2e-3
    np.testing.assert_allclose(jax.jvp(end, (1.0,), (1.0,))[1], difference, rtol=1e-7)


@pytest.mark.soak
def test_sentences():
    link = jg.models.four_bar()
    mechanism, start = link
    times, rest = jnp.linspace(0.0, 1.0, 6), jnp.zeros(3)
    cases = [
        (lambda: me.simulate(mechanism, start + 0.01, rest, times), "violates loop 'pin' by 0.007"),
        (lambda: me.simulate(mechanism, start, rest + 1.0, times), "velocity violates loop 'pin'"),
        (lambda: me.simulate(mechanism, start[:2], rest[:2], times), r"q0 has the shape \(2,\)"),
        (lambda: me.simulate(mechanism, start, rest, times[::-1]), "finite and must not decrease"),
        (lambda: me.simulate(mechanism, start + jnp.nan, rest, times), "q0 is not finite"),
        (lambda: me.simulate(mechanism, start, rest, times, rtol=0.0), "rtol is 0; it must be pos"),
        (
            lambda: me.simulate(mechanism, start, rest, times, lambda t: t),
            r"torque .* of \(t\); it",
        ),
        (
            lambda: me.simulate(mechanism, start, rest, times, lambda t, q, qd: 0.0),
            r"The result of the torque has the shape \(\); it must be \(3,\)",
        ),
        (
            lambda: me.simulate(mechanism, start, rest, times, max_steps=5),
            r"stopped at t = 0\.\d+ s after 5 steps: raise max_steps",
        ),
    ]
    for make, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            make()


@pytest.mark.long
@pytest.mark.parametrize("beyond", [-1e-6, -1e-8, 0.0, 1e-6])
def test_a_motion_into_a_singular_position_says_so(beyond):
    """A parallelogram may fold to both sides where it is flat."""
    link = jg.models.four_bar(lengths=(0.4, 0.1, 0.4, 0.1), gravity=(0.0, 0.0, 0.0))
    assert me.mobility(link.mechanism, link.start).degrees_of_freedom == 1
    qd = spinning(link, 15.0)
    end = (np.pi - 1.0) / 15.0 + beyond
    motion = me.simulate(link.mechanism, link.start, qd, jnp.linspace(0.0, end, 101))
    assert motion.warnings()[0].startswith(f"At t = {end:g} s the mechanism is near a singular")


def parallel_cranks(count):
    """Cranks of 1 m and 1 kg in a row, a metre apart, with couplers of 1 kg between their tips."""
    bodies, loops = [], []
    for k in range(count):
        rod = {"mass": 1.0, "com": (0.5, 0.0, 0.0), "inertia": (1 / 12, 1 / 12, 1 / 12)}
        crank = f"crank{k}"
        bodies.append(jg.rigid.Placement(crank, None, translation=(float(k), 0.0, 0.0), **rod))
        if k + 1 < count:
            bodies.append(
                jg.rigid.Placement(f"coupler{k}", crank, translation=(1.0, 0.0, 0.0), **rod)
            )
            tip = jg.joints.frame(jnp.array([[1.0, 0, 0], [1.0, 0, 1], [2.0, 0, 0]]))
            pin = jg.joints.Hinge()
            loops.append(me.Loop(f"pin{k}", pin, f"coupler{k}", f"crank{k + 1}", tip, tip))
    return me.Mechanism(jg.rigid.from_placements(bodies, gravity=(0.0, -9.81, 0.0)), loops)


@pytest.mark.long
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.soak), 3])
def test_singular_positions_are_passed_at_any_tolerance(count):
    """Cranks that stay parallel are one pendulum; where all is flat they could also fold.

    Three are the double four-bar of González 2006, at 1 m/s over the top.
    """
    mechanism = parallel_cranks(count)
    coordinates = mechanism.coordinates
    turn = jnp.array([-1.0 if name.startswith("coupler") else 1.0 for name in coordinates])
    times = jnp.linspace(0.0, 2.0, 21)
    exact = crank_angle(count, times)
    crossings = np.sum(np.diff(np.floor(exact / np.pi)) != 0)
    assert crossings >= 2
    for tolerance in (1e-8, 1e-10, 1e-11, 1e-12):
        motion = me.simulate(
            mechanism,
            np.pi / 2 * turn,
            -turn,
            times,
            rtol=tolerance,
            atol=tolerance,
            max_steps=5000,
        )
        expected = exact[:, None] * np.asarray(turn)[None]
        np.testing.assert_allclose(motion.q, expected, rtol=0, atol=300 * tolerance)
        assert motion.passages == crossings
        assert abs(np.interp(motion.passed_at, times, exact) / np.pi % 1) < 0.1
        assert "went through a singular position" in motion.warnings()[0]


class Wheel(me.Path):
    """One coordinate that nothing accelerates, in closed form: it compiles in no time."""

    def position(self, s):
        return s[None]

    def transfer(self, s):
        return jnp.ones_like(s)[None]

    def acceleration(self, s, sd, tau):
        return jnp.zeros_like(s)


@pytest.mark.parametrize("rate", [2.0, -2.0])
def test_a_motion_that_leaves_its_path_is_told(rate):
    """A wheel that turns steadily leaves ±1 rad after half a second."""
    wheel = jg.rigid.Placement("wheel", None, (0.0, 0.0, 0.0), 1.0, (0.0, 0.0, 0.0), (0.1,) * 3)
    mechanism, values = me.Mechanism(jg.rigid.from_placements([wheel])), jnp.linspace(-1.0, 1.0, 3)
    path = Wheel(mechanism, values, values[:, None], "wheel")
    with pytest.raises(me.MechanismError, match=r"leaves the path soon after t = 0\.4 s; follow"):
        me.reduced_motion(path, 0.0, rate, jnp.array([0.0, 0.2, 0.4, 0.6]))
    s, _ = me.reduced_motion(path, 0.0, rate, jnp.array([0.0, 0.1, 0.2, 0.4]))
    np.testing.assert_allclose(s, rate * np.array([0.0, 0.1, 0.2, 0.4]), atol=1e-12)
