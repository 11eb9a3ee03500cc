"""Models compared where the true one is known."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import fitting
from jaxgrip.fitting import Bound

TIME, LATER = np.linspace(-1.0, 1.0, 120), np.linspace(-0.99, 0.99, 77)
CUBIC = np.array([0.3, -0.5, 0.8, 1.2])


def polynomial(p, x, y):
    return jnp.sum(p["c"][:, None] * x[None] ** jnp.arange(float(p["c"].size))[:, None], axis=0) - y


def values(x, seed, noise=0.1, kept=0.0):
    error = np.random.default_rng(seed).normal(size=x.size)
    for i in range(1, x.size):
        error[i] = kept * error[i - 1] + np.sqrt(1 - kept**2) * error[i]
    return np.polyval(CUBIC[::-1], x) + noise * error


def polynomials(seed, degrees=(1, 2, 3, 4, 6), times=(TIME, LATER), **kwargs):
    fits, held = {}, {}
    time, unseen = times
    y, later = values(time, seed, **kwargs), values(unseen, 1000 + seed, **kwargs)
    for degree in degrees:
        bounds = {"c": Bound(np.full(degree + 1, -20.0), 20.0, scale="linear")}
        name = f"degree {degree}"
        fits[name] = fitting.fit(polynomial, bounds, time, y, starts=2)
        held[name] = polynomial(fits[name].parameters, unseen, later)
    return fits, held


def test_criteria_are_those_of_their_definition():
    fits, held = polynomials(0)
    found = fitting.compare(fits, held_out=held)
    assert found.samples == 120
    for degree in (1, 3, 6):
        coefficients = np.polyfit(TIME, values(TIME, 0), degree)
        squares = np.sum((np.polyval(coefficients, TIME) - values(TIME, 0)) ** 2)
        k, score = degree + 2, found.scores[f"degree {degree}"]
        deviance = 120 * np.log(squares / 120)
        np.testing.assert_allclose(
            score.aicc, deviance + 2 * k + 2 * k * (k + 1) / (120 - k - 1), rtol=1e-9
        )
        np.testing.assert_allclose(score.bic, deviance + k * np.log(120), rtol=1e-9)
        error = np.polyval(coefficients, LATER) - values(LATER, 1000)
        np.testing.assert_allclose(score.held_out, np.sqrt(np.mean(error**2)), rtol=1e-6)
        assert score.parameters == degree + 1
    report = found.report()
    assert report.index("degree 1") < report.index("degree 3") < report.index("degree 6")
    assert "Recommended: degree 3" in report


@pytest.mark.long
@pytest.mark.parametrize("kept", [0.0, 0.9])
def test_the_true_degree_is_recommended(kept):
    times = np.linspace(-1.0, 1.0, 1200), np.linspace(-0.99, 0.99, 770)
    by_data, by_criterion, as_if_independent = [], [], []
    for seed in range(20):
        fits, held = polynomials(seed, times=times, kept=kept)
        by_data.append(fitting.compare(fits, held_out=held).recommended)
        by_criterion.append(fitting.compare(fits).recommended)
        bic = {
            name: 1200 * np.log(found.rms**2) + (len(found.names) + 1) * np.log(1200)
            for name, found in fits.items()
        }
        as_if_independent.append(min(bic, key=bic.get))
    for found in (by_data, by_criterion):
        assert found.count("degree 3") >= 18
    if kept:
        assert as_if_independent.count("degree 3") < 10


def test_friction_that_is_there_is_found_and_friction_that_is_not_is_left_out(
    swing_residuals, bounds, duty, true
):
    """A pendulum with and without dry friction."""
    smooth = {k: b for k, b in bounds.items() if k != "coulomb"}
    tiny = jnp.asarray(1e-9)

    def without(p, duty, angle):
        return swing_residuals({**p, "coulomb": tiny}, duty, angle)

    fitted, later = duty[:, :150], duty[::-1, 150:]
    for coulomb, expected in ((true["coulomb"], "Coulomb"), (1e-9, "viscous")):
        real = {k: jnp.asarray(v) for k, v in {**true, "coulomb": coulomb}.items()}
        rng = np.random.default_rng(3)
        angle, unseen = (
            np.asarray(swing_residuals(real, jnp.asarray(u), jnp.zeros(u.shape)))
            + 0.01 * rng.normal(size=u.shape)
            for u in (fitted, later)
        )
        fits, held = {}, {}
        for name, model, limits in (
            ("viscous", without, smooth),
            ("Coulomb", swing_residuals, bounds),
        ):
            fits[name] = fitting.fit(model, limits, fitted, angle)
            held[name] = model(fits[name].parameters, jnp.asarray(later), jnp.asarray(unseen))
        assert fitting.compare(fits, held_out=held).recommended == expected
        assert fitting.compare(fits).recommended == expected


def test_correlated_residuals_are_fewer_samples():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(20):
        error = rng.normal(size=(2, 4000))
        assert fitting.effective_samples(error) > 7000
        for i in range(1, 4000):
            error[:, i] += 0.9 * error[:, i - 1]
        found.append(fitting.effective_samples(error))
    # (1 - a) / (1 + a) of an autoregressive process of first order.
    np.testing.assert_allclose(np.mean(found), 8000 * 0.1 / 1.9, rtol=0.1)


def test_bad_input_gets_a_sentence():
    fits, held = polynomials(0, (1, 2))
    with pytest.raises(ValueError, match="no fits to compare"):
        fitting.compare({})
    with pytest.raises(ValueError, match="held_out is for degree 1, the fits are degree 1, degr"):
        fitting.compare(fits, held_out={"degree 1": held["degree 1"]})
    with pytest.raises(ValueError, match="The held-out residuals of degree 1 have the shapes"):
        fitting.compare(fits, held_out={**held, "degree 2": np.zeros(3)})
    with pytest.raises(ValueError, match="residuals of degree 2 are not finite"):
        fitting.compare(fits, held_out={**held, "degree 2": np.full(77, np.nan)})
    with pytest.raises(ValueError, match="threshold is 5"):
        fitting.compare(fits, threshold=5.0)
    one = fitting.fit(polynomial, {"c": Bound(np.full(2, -9.0), 9.0, scale="linear")}, TIME, TIME,
                      noise=1.0, starts=2)  # fmt: skip
    with pytest.raises(ValueError, match="the same given noise"):
        fitting.compare({**fits, "other": one})
