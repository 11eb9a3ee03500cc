"""Data that a sensor has rounded, against the probability of its steps."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from jaxgrip import fitting
from jaxgrip.fitting import Bound
from jaxgrip.fitting import _rounding as rounding
from jaxgrip.fitting._fit import _rounded

STEP = 0.1
TIME = np.linspace(0.0, 1.0, 200)
TRUE = {"amplitude": 1.0, "decay": 3.0, "offset": 0.5, "rate": 9.0}
BOUNDS = {name: Bound(x / 3, 3 * x) for name, x in TRUE.items()}


def swinging(p, time):
    return p["amplitude"] * jnp.exp(-p["decay"] * time) * jnp.cos(p["rate"] * time) + p["offset"]


def swinging_residuals(p, time, y):
    return swinging(p, time) - y


def measured(noise, seed, time=TIME):
    """Samples of a sensor whose steps lie anywhere."""
    rng = np.random.default_rng(seed)
    zero = STEP * rng.uniform()
    y = np.asarray(swinging(TRUE, time)) + noise * STEP * rng.normal(size=time.shape) - zero
    return np.round(y / STEP) * STEP + zero


def log_probability(r, noise, step):
    upper = scipy.stats.norm.logcdf((step / 2 - np.abs(r)) / noise)
    lower = scipy.stats.norm.logcdf((-step / 2 - np.abs(r)) / noise)
    return upper + np.log1p(-np.exp(lower - upper))


@pytest.mark.parametrize(("noise", "step"), [(0.3, 1.0), (1.0, 0.4), (0.05, 1.0)])
def test_derivatives_are_those_of_differences(noise, step):
    r, h = np.array([-2.1, -0.4, 0.0, 0.3, 0.6, 3.0]) * max(noise, step), 1e-5
    found = rounding.terms(jnp.asarray(r), jnp.asarray(noise), jnp.full(r.shape, step))

    def moved(i, j):
        return log_probability(r + i * h * noise, noise * np.exp(j * h), step)

    size = np.abs(moved(0, 0)) + 1
    np.testing.assert_allclose(found.value, moved(0, 0), rtol=1e-11, atol=1e-11)
    for value, expected in (
        (found.r * noise, (moved(1, 0) - moved(-1, 0)) / (2 * h)),
        (found.l, (moved(0, 1) - moved(0, -1)) / (2 * h)),
        (found.rr * noise**2, (moved(1, 0) + moved(-1, 0) - 2 * moved(0, 0)) / h**2),
        (found.ll, (moved(0, 1) + moved(0, -1) - 2 * moved(0, 0)) / h**2),
        (
            found.rl * noise,
            (moved(1, 1) + moved(-1, -1) - moved(1, -1) - moved(-1, 1)) / (4 * h**2),
        ),
    ):
        np.testing.assert_allclose(value / size, expected / size, atol=2e-5, rtol=1e-6)


def test_the_probabilities_of_all_steps_add_up_to_one():
    steps = np.arange(-40, 41) * 0.5
    for noise in (0.02, 0.2, 2.0):
        t = rounding.terms(
            jnp.asarray(0.13 - steps), jnp.asarray(noise), jnp.full(steps.shape, 0.5)
        )
        np.testing.assert_allclose(np.sum(np.exp(t.value)), 1.0, rtol=1e-12)


def test_without_a_resolution_errors_are_normal():
    r = np.array([-1.0, 0.2, 3.0])
    t = rounding.terms(jnp.asarray(r), jnp.asarray(0.7), jnp.zeros(3))
    np.testing.assert_allclose(t.value, scipy.stats.norm.logpdf(r, scale=0.7), rtol=1e-13)
    # A fine resolution leaves the density times the step, whichever formula is used.
    for step in (0.9e-3 * 0.7, 1.1e-3 * 0.7):
        fine = rounding.terms(jnp.asarray(r), jnp.asarray(0.7), jnp.full(3, step))
        np.testing.assert_allclose(fine.value, t.value + np.log(step), atol=1e-6)
        np.testing.assert_allclose(fine.rr, t.rr, rtol=1e-5)


def test_the_maximum_is_that_of_another_optimizer():
    y = measured(0.25, 5)
    found = fitting.fit(swinging_residuals, BOUNDS, TIME, y, resolution=STEP, guess=TRUE, starts=1)

    def lowered(x):
        r = np.asarray(swinging(dict(zip(TRUE, x[:4], strict=True)), TIME)) - y
        return -np.sum(log_probability(r, np.exp(x[4]), STEP))

    start = [*TRUE.values(), np.log(0.3 * STEP)]
    options = {"xatol": 1e-9, "fatol": 1e-11, "maxiter": 20_000, "maxfev": 20_000}
    best = scipy.optimize.minimize(lowered, start, method="Nelder-Mead", options=options)
    np.testing.assert_allclose([found.parameters[k] for k in TRUE], best.x[:4], rtol=1e-6)
    np.testing.assert_allclose(found.noise, np.exp(best.x[4]), rtol=1e-5)
    np.testing.assert_allclose(found.log_likelihood, -best.fun, rtol=1e-10)

    def curvature(x, h=1e-4):
        scale = h * np.append(np.abs(x[:4]), 1.0)
        moves = np.diag(scale)
        return np.array(
            [
                [
                    (lowered(x + a + b) - lowered(x + a - b) - lowered(x - a + b)
                     + lowered(x - a - b)) / (4 * np.sum(a) * np.sum(b))
                    for b in moves
                ]
                for a in moves
            ]
        )  # fmt: skip

    deviation = np.sqrt(np.diag(np.linalg.inv(curvature(best.x))))[:4]
    ratio = np.array([found.standard_deviation[k] for k in TRUE]) / deviation
    # The unbiased noise is a few per cent greater, and curvature of the model is left out.
    assert np.all((ratio > 0.97) & (ratio < 1.1))


def test_no_rounding_leaves_the_least_squares():
    y = np.asarray(swinging(TRUE, TIME)) + 0.03 * np.random.default_rng(3).normal(size=TIME.shape)
    plain = fitting.fit(swinging_residuals, BOUNDS, TIME, y, guess=TRUE, starts=1)
    for resolution in (0.0, 1e-6):
        found = fitting.fit(
            swinging_residuals, BOUNDS, TIME, y, resolution=resolution, guess=TRUE, starts=1
        )
        for name in TRUE:
            np.testing.assert_allclose(found.parameters[name], plain.parameters[name], rtol=1e-7)
            np.testing.assert_allclose(
                found.standard_deviation[name], plain.standard_deviation[name], rtol=0.02
            )


def test_perfect_data_and_other_numbers_do_no_harm():
    y = np.asarray(swinging(TRUE, TIME))
    kwargs = {"guess": TRUE, "starts": 1}
    found = fitting.fit(swinging_residuals, BOUNDS, TIME, y, resolution=0.0, **kwargs)
    np.testing.assert_allclose([found.parameters[k] for k in TRUE], list(TRUE.values()))
    before = _rounded._cached._cache_size()
    fitting.fit(swinging_residuals, BOUNDS, TIME, measured(0.3, 1), resolution=STEP, **kwargs)
    fitting.fit(swinging_residuals, BOUNDS, TIME, measured(0.3, 2), resolution=0.9, **kwargs)
    assert _rounded._cached._cache_size() == before


def test_series_have_resolutions_of_their_own():
    y = measured(0.25, 2)
    fine = np.asarray(swinging(TRUE, TIME))
    fine = fine + 0.25 * STEP * np.random.default_rng(8).normal(size=TIME.shape)

    def both(p, time, y, fine):
        return {"coarse": swinging(p, time) - y, "fine": swinging(p, time) - fine}

    kwargs = {"guess": TRUE, "starts": 1}
    found = fitting.fit(
        both, BOUNDS, TIME, y, fine, resolution={"coarse": STEP, "fine": 0.0}, **kwargs
    )
    coarse = fitting.fit(swinging_residuals, BOUNDS, TIME, y, resolution=STEP, **kwargs)
    for name in TRUE:
        assert found.standard_deviation[name] < coarse.standard_deviation[name]
    with pytest.raises(ValueError, match="one for each of the 2 series"):
        fitting.fit(both, BOUNDS, TIME, y, fine, resolution={"coarse": STEP}, **kwargs)
    with pytest.raises(ValueError, match="resolution is -1"):
        fitting.fit(both, BOUNDS, TIME, y, fine, resolution=-1.0, **kwargs)


def test_samples_without_noise_are_told():
    y = measured(0.0, 1)
    found = fitting.fit(swinging_residuals, BOUNDS, TIME, y, resolution=STEP, guess=TRUE, starts=1)
    assert "show no noise before rounding" in found.report()
    # The truth rounds to every sample.
    assert np.all(np.abs(swinging_residuals(TRUE, TIME, y)) <= STEP / 2 + 1e-12)
    for name, value in TRUE.items():
        assert abs(found.parameters[name] - value) < 3 * found.standard_deviation[name]


@pytest.mark.long
@pytest.mark.parametrize(("noise", "samples"), [(0.0, 2000), (0.05, 2000), (0.29, 200)])
def test_intervals_of_rounded_data_hold_the_truth(noise, samples):
    time = np.linspace(0.0, 1.0, samples)
    kwargs = {"guess": TRUE, "starts": 1}
    errors, plain = [], []
    for seed in range(100):
        y = measured(noise, seed, time)
        found = fitting.fit(swinging_residuals, BOUNDS, time, y, resolution=STEP, **kwargs)
        errors.append([(found.parameters[k] - TRUE[k]) / found.standard_deviation[k] for k in TRUE])
        if noise == 0.05:
            usual = {**kwargs, "noise": STEP * np.sqrt(noise**2 + 1 / 12)}
            found = fitting.fit(swinging_residuals, BOUNDS, time, y, **usual)
            plain.append(
                [(found.parameters[k] - TRUE[k]) / found.standard_deviation[k] for k in TRUE]
            )
    # Binomial: 0.95 and, of four parameters at once, 0.99, less three standard deviations.
    assert np.all(np.mean(np.abs(errors) < 1.96, axis=0) > 0.885)
    assert np.mean(np.all(np.abs(errors) < 3, axis=1)) > 0.96
    if plain:
        # Independent errors of the variance of noise and rounding do not describe them.
        assert np.mean(np.all(np.abs(plain) < 3, axis=1)) < 0.5
