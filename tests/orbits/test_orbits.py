"""Periodic orbits against closed forms, SciPy and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.integrate import solve_ivp

from jaxgrip import orbits


def van_der_pol(t, y, mu):
    return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


def rayleigh(t, y, p):
    """Free Rayleigh-van der Pol oscillator, whose limit cycle is a sine."""
    size = (y[1] / p["rate"]) ** 2 + y[0] ** 2 - p["amplitude"] ** 2
    return jnp.stack([y[1], -p["growth"] * size * y[1] - p["rate"] ** 2 * y[0]])


RAYLEIGH = {"rate": 3.0, "amplitude": 0.02, "growth": 400.0}


def driven(t, y, p):
    """A linear oscillator with a force of 1 at the angular frequency p["drive"]."""
    return jnp.stack([y[1], jnp.sin(p["drive"] * t) - 0.2 * y[1] - p["stiffness"] * y[0]])


DRIVEN = {"drive": 1.3, "stiffness": 2.0}


@pytest.fixture(scope="module")
def settled():
    start, period = orbits.approached(van_der_pol, [1.0, 0.0], 60.0, jnp.asarray(1.0))
    return start, period, orbits.periodic(van_der_pol, start, period, 1.0)


def test_van_der_pol_is_that_of_scipy(settled):
    """The period is known to ten digits."""
    _, _, found = settled
    np.testing.assert_allclose(found.period, 6.6632868593, rtol=1e-10)
    assert found.gap < 1e-11
    other = solve_ivp(
        lambda t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]],
        (0.0, float(found.period)),
        np.asarray(found.states[0]),
        method="DOP853",
        t_eval=np.linspace(0.0, float(found.period), 30),
        rtol=1e-12,
        atol=1e-12,
    )
    np.testing.assert_allclose(other.y[:, -1], found.states[0], atol=1e-9)
    times = jnp.asarray(other.t) + 3 * found.period
    states = orbits.motion(van_der_pol, found, times, jnp.asarray(1.0))
    np.testing.assert_allclose(states, other.y.T, atol=1e-8)


def test_the_multiplier_is_the_mean_of_the_divergence(settled):
    """Liouville: the product of the multipliers is the exponential of the divergence."""
    _, _, found = settled
    stability = orbits.floquet(van_der_pol, found, jnp.asarray(1.0))
    assert stability.trivial == 0
    assert stability.stable
    np.testing.assert_allclose(stability.multipliers[0], 1.0, atol=1e-8)
    times = found.period * jnp.linspace(0.0, 1.0, 401)[:-1]
    x = orbits.motion(van_der_pol, found, times, jnp.asarray(1.0))[:, 0]
    divergence = jnp.mean(1 - x**2) * found.period
    np.testing.assert_allclose(stability.largest, np.exp(divergence), rtol=1e-6)


@pytest.mark.long
def test_derivatives_of_period_and_orbit_are_differences(settled):
    start, period, _ = settled

    def look(mu):
        found = orbits.periodic(van_der_pol, start, period, mu, throw=False)
        largest = orbits.motion(van_der_pol, found, jnp.asarray([0.5, 2.0]), mu)[:, 0]
        return jnp.append(largest, found.period)

    forward, reverse = jax.jacfwd(look)(1.1), jax.jacrev(look)(1.1)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    step = 1e-5
    np.testing.assert_allclose(
        forward, (look(1.1 + step) - look(1.1 - step)) / (2 * step), rtol=1e-6
    )


@pytest.mark.long
def test_a_sine_is_found_in_small_units():
    """Amplitude of 2 cm, 3 rad/s; the multiplier by the closed form of the linear equation."""
    found = orbits.periodic(rayleigh, [0.017, 0.01], 2.0, RAYLEIGH)
    np.testing.assert_allclose(found.period, 2 * np.pi / 3.0, rtol=1e-9)
    size = found.states[:, 0] ** 2 + (found.states[:, 1] / 3.0) ** 2
    np.testing.assert_allclose(size, 0.02**2, rtol=1e-9)
    stability = orbits.floquet(rayleigh, found, RAYLEIGH)
    # The energy's deviation decays with -2 growth x'²/rate², whose mean is amplitude².
    decay = np.exp(-2 * 400.0 * 0.02**2 / 2 * 2 * np.pi / 3.0)
    np.testing.assert_allclose(stability.largest, decay, rtol=1e-6)


@pytest.mark.long
def test_a_driven_linear_oscillator_is_its_closed_form():
    omega, stiffness = 1.3, 2.0
    period = 2 * np.pi / omega
    found = orbits.periodic(driven, [0.0, 0.0], period, DRIVEN, driven=True)
    response = 1 / (stiffness - omega**2 + 0.2j * omega)
    times = np.linspace(0.0, period, 9)[:-1]
    exact = np.imag(response * np.exp(1j * omega * times))
    np.testing.assert_allclose(found.states[:, 0], exact, atol=1e-9)
    stability = orbits.floquet(driven, found, DRIVEN)
    rate = np.roots([1.0, 0.2, stiffness])
    np.testing.assert_allclose(
        np.sort_complex(stability.multipliers), np.sort_complex(np.exp(rate * period)), atol=1e-9
    )
    assert stability.trivial is None
    many = jax.vmap(
        lambda k: orbits.periodic(
            driven, jnp.zeros(2), period, {**DRIVEN, "stiffness": k}, driven=True, throw=False
        ).states[0, 0]
    )(jnp.asarray([1.5, 2.0, 3.0]))
    exact = [np.imag(1 / (k - omega**2 + 0.2j * omega)) for k in (1.5, 2.0, 3.0)]
    np.testing.assert_allclose(many, exact, atol=1e-9)


@pytest.mark.long
def test_a_multiple_of_the_period_is_an_orbit_too():
    period = 4 * np.pi / 1.3
    found = orbits.periodic(driven, [0.0, 0.0], period, DRIVEN, driven=True)
    np.testing.assert_allclose(found.states[0], found.states[4], atol=1e-9)


def test_other_numbers_compile_nothing(settled):
    start, period, _ = settled
    before = orbits._periodic._solve._cached._cache_size()
    orbits.periodic(van_der_pol, start, period, 1.05)
    assert orbits._periodic._solve._cached._cache_size() == before


@pytest.mark.long
def test_what_is_no_orbit_gets_a_sentence(settled):
    start, period, _ = settled
    with pytest.raises(RuntimeError, match="it is an equilibrium"):
        orbits.periodic(van_der_pol, [1e-9, 0.0], 6.0, 1.0)
    with pytest.raises(RuntimeError, match="found no periodic orbit"):
        orbits.periodic(lambda t, y, p: jnp.stack([y[1], 1.0 + 0.0 * y[0]]), [1.0, 1.0], 1.0)
    with pytest.raises(ValueError, match="period is -1"):
        orbits.periodic(van_der_pol, start, -1.0, 1.0)
    with pytest.raises(ValueError, match="gives the shape"):
        orbits.periodic(lambda t, y, p: y[:1], start, period)
    with pytest.raises(RuntimeError, match="does not come back"):
        orbits.approached(lambda t, y, p: -y, [1.0, 0.0], 10.0)
    with pytest.raises(RuntimeError, match="not finite from t"):
        orbits.approached(lambda t, y, p: y**2, [1.0], 10.0)


def duffing(t, y, omega):
    force = 0.3 * jnp.cos(omega * t)
    return jnp.stack([y[1], force - 0.1 * y[1] - y[0] - 0.5 * y[0] ** 3])


@pytest.mark.long
def test_a_branch_passes_its_folds():
    """Duffing's oscillator: at folds a multiplier is one, and harmonic balance is near."""

    def period_of(omega):
        return 2 * jnp.pi / omega

    start = orbits.periodic(duffing, [0.0, 0.0], period_of(0.6), 0.6, driven=True)
    found = orbits.continuation(duffing, start, 0.6, (0.5, 2.2), period_of=period_of, most=300)
    assert found.sentence == "The branch reaches a limit of the parameter."
    assert len(found.folds) == 2
    assert np.all(found.stable[: found.folds[0]])
    assert not np.any(found.stable[found.folds[0] + 2 : found.folds[1]])
    for k in found.folds:
        near = found.multipliers[k : k + 2].real
        assert np.min(np.abs(near - 1)) < 0.1
    # Amplitude of the first harmonic against one-term balance.
    turn = np.exp(-2j * np.pi * np.arange(8) / 8)
    amplitude = np.abs(found.states[:, :, 0] @ turn) / 4
    k = int(np.argmin(np.abs(found.value - 2.0)))
    stiff = 1 - found.value[k] ** 2
    lost = (0.1 * found.value[k]) ** 2
    a = np.roots([0.375**2, 0, 0.75 * stiff, 0, stiff**2 + lost, 0, -(0.3**2)])
    a = a[np.isreal(a) & (a.real > 0)].real
    assert np.min(np.abs(a - amplitude[k])) < 0.01 * amplitude[k]


@pytest.mark.long
def test_bad_branches_get_a_sentence(settled):
    _, _, found = settled
    with pytest.raises(ValueError, match="must lie within"):
        orbits.continuation(van_der_pol, found, 1.0, (2.0, 3.0))
    linear = orbits.periodic(driven, [0.0, 0.0], 2 * np.pi / 1.3, DRIVEN, driven=True)
    with pytest.raises(ValueError, match="period_of"):
        orbits.continuation(driven, linear, 1.0, (0.0, 3.0))


def test_a_chain_of_masses_has_its_frequencies():
    n = 5
    mass, stiffness = 2.0 * jnp.eye(n), 3.0 * (2 * jnp.eye(n) - jnp.eye(n, k=1) - jnp.eye(n, k=-1))
    found = orbits.modes(mass, stiffness)
    exact = 2 * np.sqrt(3.0 / 2.0) * np.sin(np.arange(1, n + 1) * np.pi / (2 * (n + 1)))
    np.testing.assert_allclose(2 * np.pi * found.frequency, exact, rtol=1e-12)
    np.testing.assert_allclose(jnp.sum(found.shape**2, axis=0), 1.0, rtol=1e-12)
    for matrix in (mass, stiffness):
        product = found.shape.T @ matrix @ found.shape
        np.testing.assert_allclose(product - jnp.diag(jnp.diag(product)), 0.0, atol=1e-12)
    check_grads(lambda k: orbits.modes(mass, k * stiffness).frequency, (1.1,), order=1, rtol=1e-5)
    free = orbits.modes(mass, stiffness.at[0, 0].add(-3.0).at[-1, -1].add(-3.0))
    assert free.frequency[0] == 0.0
    assert np.all(
        np.isfinite(jax.grad(lambda k: orbits.modes(mass, k * stiffness).frequency.sum())(1.0))
    )


def arm(q):
    """Tip of two links of length one, by angles and the tip's own coordinates."""
    x = jnp.stack([jnp.cos(q[0]) + jnp.cos(q[1]), jnp.sin(q[0]) + jnp.sin(q[1])])
    return x - q[2:]


def test_constraints_are_those_of_the_eliminated_coordinates():
    """Energies of tip and angles, at an equilibrium, against the function of angles alone."""
    angles = jnp.asarray([0.4, 1.7])

    def potential(q):
        return 3.0 * q[3] + q[2] ** 2 + 0.5 * jnp.sum(stiff * (q[:2] - rest) ** 2)

    def of_angles(angles):
        x = jnp.stack([jnp.cos(angles).sum(), jnp.sin(angles).sum()])
        return potential(jnp.concatenate([angles, x]))

    stiff = jnp.asarray([4.0, 7.0])
    rest = jnp.zeros(2)
    # Springs whose torques make it an equilibrium.
    others = jax.grad(of_angles)(angles) - stiff * angles
    rest = angles + others / stiff
    q = jnp.concatenate([angles, jnp.stack([jnp.cos(angles).sum(), jnp.sin(angles).sum()])])
    np.testing.assert_allclose(jax.grad(of_angles)(angles), 0.0, atol=1e-12)
    free = orbits.freedoms(arm, q, (0, 1))
    np.testing.assert_allclose(jax.jacfwd(arm)(q) @ free, 0.0, atol=1e-12)
    exact = jax.hessian(of_angles)(angles)
    found = free.T @ orbits.static_stiffness(potential, q, arm) @ free
    np.testing.assert_allclose(found, exact, rtol=1e-10)
    springs = orbits.spring_stiffness(lambda x: x[:2], stiff, q)
    np.testing.assert_allclose(free.T @ springs @ free, jnp.diag(stiff), atol=1e-12)
    with pytest.raises(ValueError, match="have 2 independent ones, not 1"):
        orbits.freedoms(arm, q, (0,))


def test_a_pendulum_swings_through_in_the_time_of_the_elliptic_integral():
    """With twice the energy that the upper position needs."""
    from scipy.special import ellipk

    energy = 4.0 * 9.81
    found = orbits.natural_motion(
        lambda x: 1.0 + 0.0 * x,
        jnp.linspace(0.0, 2 * jnp.pi, 65),
        energy,
        lambda x: 9.81 * (1 - jnp.cos(x)),
    )
    exact = 2 * np.sqrt(2 / energy) * ellipk(2 * 9.81 / energy)
    np.testing.assert_allclose(found.time[-1], exact, rtol=1e-12)
    np.testing.assert_allclose(found.rate[32], np.sqrt(2 * (energy - 2 * 9.81)), rtol=1e-12)
    slope = jax.grad(
        lambda e: orbits.natural_motion(
            lambda x: 1.0 + 0.0 * x,
            jnp.linspace(0.0, 2 * jnp.pi, 65),
            e,
            lambda x: 9.81 * (1 - jnp.cos(x)),
        ).time[-1]
    )(energy)
    step = 1e-4
    above, below = (
        2 * np.sqrt(2 / e) * ellipk(2 * 9.81 / e) for e in (energy + step, energy - step)
    )
    np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-6)


def sprung(t, y, p):
    return jnp.stack([y[1], p["stiffness"] / 0.3 * (p["rest"] - y[0])])


@pytest.mark.long
def test_a_spring_carries_a_mass_in_half_a_period():
    """T = pi sqrt(J/k), the spring's rest in the middle."""
    found = orbits.rest_to_rest(
        sprung, [0.2, 0.0], [1.0, 0.0], 0.5, {"stiffness": 9.0, "rest": 0.5}
    ).parameters
    np.testing.assert_allclose(found["stiffness"], 0.3 * (np.pi / 0.5) ** 2, rtol=1e-8)
    np.testing.assert_allclose(found["rest"], 0.6, rtol=1e-8)

    def stiffness(duration):
        ends = ([0.2, 0.0], [1.0, 0.0])
        guess = {"stiffness": 9.0, "rest": 0.5}
        return orbits.rest_to_rest(sprung, *ends, duration, guess, throw=False).parameters[
            "stiffness"
        ]

    exact = -2 * 0.3 * np.pi**2 / 0.5**3
    np.testing.assert_allclose(jax.grad(stiffness)(0.5), exact, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(stiffness)(0.5), exact, rtol=1e-6)
    with pytest.raises(ValueError, match="there are 1 parameters"):
        orbits.rest_to_rest(sprung, [0.2, 0.0], [1.0, 0.0], 0.5, {"stiffness": 9.0})
