import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.solve.integration import integrate

TIMES = jnp.array([0.0, 0.5, 1.0])


def decay(t, y, rate):
    return -rate * y


def broken_from_half(t, y, rate):
    return jnp.where(t > 0.5, jnp.nan, -rate) * y


def solve(rate=1.0, field=decay, times=TIMES, **options):
    options = {"rtol": 1e-8, "atol": 1e-8, "max_steps": 200, **options}
    start = jnp.ones(1)
    return integrate(field, diffrax.Bosh3(), times, start, jnp.asarray(rate, float), **options)


def last(rate, **options):
    return solve(rate, **options).ys[-1, 0]


@pytest.mark.long
def test_states_and_both_kinds_of_derivatives():
    solution = solve()
    np.testing.assert_allclose(solution.ys[:, 0], np.exp(-TIMES), rtol=1e-7)
    assert solution.t == 1.0
    np.testing.assert_allclose(jax.grad(last)(1.0), -np.exp(-1.0), rtol=1e-6)
    forward = jax.jacfwd(lambda rate: last(rate, adjoint=diffrax.ForwardMode()))
    np.testing.assert_allclose(forward(1.0), -np.exp(-1.0), rtol=1e-6)


def test_forward_derivatives_the_wrong_way_say_what_to_do():
    with pytest.raises(TypeError, match=r"need adjoint=diffrax\.ForwardMode\(\)"):
        jax.jacfwd(last)(1.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_steps": 4}, r"^The motion stopped at t = 0\.\d+ s after 4 steps: raise max_steps"),
        pytest.param(
            {"field": broken_from_half},
            r"^The motion stopped at t = 0\.5 s .* no longer finite",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_motion_that_stops(options, sentence):
    """Looked at, a sentence, also while derivatives are taken; compiled, nothing finite."""
    with pytest.raises(RuntimeError, match=sentence):
        solve(**options)
    with pytest.raises(RuntimeError, match=r"^The motion stopped at t = 0"):
        jax.grad(last)(1.0, **options)
    value, slope = jax.jit(jax.value_and_grad(lambda rate: last(rate, **options)))(1.0)
    assert not np.isfinite(value)
    assert not np.isfinite(slope)
    flagged = solve(throw=False, **options)
    assert not diffrax.is_successful(flagged.result)
    assert np.isfinite(flagged.ys[0]).all()
    assert not np.isfinite(flagged.ys[-1]).any()


@pytest.mark.long
@pytest.mark.parametrize("jumps", [None, [0.0, 0.25]])
@pytest.mark.parametrize(
    ("value", "start"),
    [
        (jnp.nan, 0.0),
        pytest.param(jnp.inf, 0.0, marks=pytest.mark.soak),
        pytest.param(jnp.nan, 1e6, marks=pytest.mark.soak),
        pytest.param(jnp.inf, 1e6, marks=pytest.mark.soak),
    ],
)
def test_rates_that_are_lost_end_the_integration(start, value, jumps):
    """At once or later, at small and large times: not after so many steps as are allowed."""

    def lost(t, y, at):
        return jnp.where(t > at, value, -1.0) * y

    times = start + TIMES
    for at in (start - 1.0, start, start + 0.5):
        options = {
            "max_steps": 100_000,
            "jumps": None if jumps is None else start + jnp.array(jumps),
        }
        found = solve(at, lost, times, throw=False, **options)
        assert found.result == diffrax.RESULTS.dt_min_reached
        assert found.stats["num_steps"] < 1000
        np.testing.assert_allclose(found.t, max(at, start), rtol=1e-15, atol=1e-15)


def test_a_failure_is_explained_without_another_program():
    calls = []

    def lost(t, y, rate):
        calls.append(t)
        return jnp.nan * y

    for _ in range(2):
        before = len(calls)
        with pytest.raises(RuntimeError, match="no longer finite"):
            solve(field=lost, max_steps=1000)
    solved = len(calls) - before
    solve(field=lost, max_steps=1000, throw=False)
    assert len(calls) - before - solved == solved


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"times": jnp.array([0.0, jnp.inf])}, "times must be finite and must not decrease"),
        ({"times": jnp.array([0.0, 1.0, 0.5])}, "times must be finite and must not decrease"),
        ({"times": jnp.zeros(0)}, r"times has the shape \(0,\); it must be \(k,\), k at least 1"),
        ({"rtol": jnp.nan}, "rtol is not finite"),
        ({"rtol": 0.0}, "rtol is 0; it must be positive"),
        ({"atol": -1.0}, "atol is -1; it must not be negative"),
        ({"max_steps": 0}, "max_steps is 0; it must be a whole number, at least 1"),
        ({"jumps": jnp.array([jnp.inf])}, "jumps must be finite and must not decrease"),
    ],
)
def test_bad_input(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        solve(**options)


@pytest.mark.parametrize("latest", [-1.0, 0.3])
def test_a_latest_end_that_has_passed_is_no_limit(latest):
    found = integrate(
        lambda t, y, args: -y,
        diffrax.Dopri5(),
        jnp.array([0.0, 1.0]),
        jnp.ones(1),
        None,
        rtol=1e-8,
        atol=1e-10,
        max_steps=1000,
        latest=lambda t, y, args: jnp.asarray(latest),
    )
    np.testing.assert_allclose(found.ys[-1, 0], np.exp(-1.0), rtol=1e-7)
