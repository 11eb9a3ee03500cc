"""Uncertainties: Fisher information, and coverage in repeated experiments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxgrip import fitting
from jaxgrip.fitting import _fisher as fisher

SEEDS = 20


def covered(fits, truths):
    """In how many fits every parameter is within three standard deviations of the truth."""
    return sum(
        all(abs(found.parameters[k] - truth[k]) <= 3 * found.standard_deviation[k] for k in truth)
        for found, truth in zip(fits, truths, strict=True)
    )


def test_the_information_is_that_of_finite_differences(swing_residuals, duty, angle, true):
    duty, angle = jnp.asarray(duty), jnp.asarray(angle)
    names = sorted(true)
    step = 1e-5

    def moved(name, factor):
        return swing_residuals({**true, name: true[name] * factor}, duty, angle)

    J = np.stack(
        [np.ravel(moved(k, 1 + step) - moved(k, 1 - step)) / (2 * step * true[k]) for k in names],
        axis=1,
    )
    found = fitting.information(swing_residuals, true, duty, angle, noise=0.1)
    np.testing.assert_allclose(found, J.T @ J / 0.01, rtol=1e-6)
    check_grads(
        lambda amplitude: fitting.information(swing_residuals, true, amplitude * duty, angle),
        (1.0,),
        order=1,
        modes=["fwd"],
        rtol=1e-5,
    )


def test_uncertainty_is_that_of_the_fit(swing_residuals, bounds, duty, angle, key):
    noisy = angle + 0.01 * np.random.default_rng(0).normal(size=angle.shape)
    found = fitting.fit(swing_residuals, bounds, duty, noisy, noise=0.01)
    known = fitting.uncertainty(swing_residuals, found.parameters, duty, noisy, noise=0.01)
    np.testing.assert_allclose(known.covariance, found.covariance, rtol=1e-9)
    information = fitting.information(
        swing_residuals, found.parameters, jnp.asarray(duty), jnp.asarray(noisy), noise=0.01
    )
    np.testing.assert_allclose(known.covariance, np.linalg.inv(information), rtol=1e-7)
    values = np.array([found.parameters[k] for k in found.names])
    largest = np.linalg.eigvalsh(found.covariance / np.outer(values, values))[-1]
    np.testing.assert_allclose(found.worst_direction.deviation, np.sqrt(largest), rtol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("sensor", ["white noise", "coarse", "drifting"])
def test_the_truth_is_within_three_standard_deviations(sensor, swing_residuals, bounds, duty, true):
    fits, truths = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        truth = {k: jnp.asarray(x * np.exp(0.15 * rng.normal())) for k, x in true.items()}
        angle = np.asarray(swing_residuals(truth, jnp.asarray(duty), jnp.zeros(duty.shape)))
        if sensor == "coarse":
            resolution = np.deg2rad(0.35)
            angle = np.round(angle / resolution) * resolution
        else:
            noise = 2e-3 * rng.normal(size=angle.shape)
            if sensor == "drifting":
                for i in range(1, noise.shape[1]):
                    noise[:, i] += 0.95 * noise[:, i - 1]
            angle = angle + noise
        fits.append(fitting.fit(swing_residuals, bounds, duty, angle, guess=truth, starts=2))
        truths.append(truth)
    assert covered(fits, truths) >= 18
    if sensor == "drifting":
        assert all(found.correlated for found in fits)


def test_a_repeated_error_counts_once():
    # Ten periods of the same error say no more than one of them.
    rng = np.random.default_rng(1)
    t = np.arange(1000)
    design = np.stack([np.cos(2 * np.pi * t / 100), np.sin(2 * np.pi * t / 100)], axis=1)
    scatter = []
    for _ in range(200):
        error = np.tile(rng.normal(size=100), 10)
        scatter.append(np.linalg.lstsq(design, error)[0])
    error = error - design @ scatter[-1]
    known = fisher.from_jacobian(
        {"a": 1.0, "b": 1.0}, [error], jnp.asarray(design), np.ones(2), None
    )
    assert known.correlated
    # sqrt(2 / 100), where independent errors would leave sqrt(2 / 1000).
    np.testing.assert_allclose(np.std(scatter, axis=0), 0.1 * 2**0.5, rtol=0.15)
    assert all(0.07 < s < 0.3 for s in known.standard_deviation.values())


def test_the_long_run_covariance_of_white_residuals_is_the_plain_one():
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(4000, 3)))[0]
    r = rng.normal(size=(2, 2000))
    found = fisher._long_run([r], basis)
    # The greater of the power and its average is 1 + 1/e of it in the mean.
    np.testing.assert_allclose(np.diag(found), 1 + np.exp(-1), rtol=0.1)
    assert np.max(np.abs(found - np.diag(np.diag(found)))) < 0.1
    assert not fisher._correlated([r])


def test_a_direction_reads_as_a_combination():
    direction = fitting.Direction({"stiction": 0.81, "stiffness": -0.56, "inertia": 0.05}, 0.01)
    assert str(direction) == "0.81 stiction - 0.56 stiffness"


def test_residuals_not_finite_get_a_sentence(swing_residuals, duty, true):
    with pytest.raises(ValueError, match="are not finite"):
        fitting.uncertainty(swing_residuals, true, duty, np.full(duty.shape, np.nan))


def test_single_precision_is_refused(swing_residuals, true, duty, angle):
    with jax.enable_x64(False), pytest.raises(RuntimeError, match="64-bit"):
        fitting.uncertainty(swing_residuals, true, duty, angle)
