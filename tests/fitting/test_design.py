"""The experiment to do next, against what it then brings."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import fitting
from jaxgrip.fitting import Bound

TRUE = {"gain": 2.0, "lag": 0.4, "offset": 0.3}
BOUNDS = {
    "gain": Bound(0.1, 40.0),
    "lag": Bound(0.02, 8.0),
    "offset": Bound(-5.0, 5.0, scale="linear"),
}
FIRST = np.linspace(5.0, 6.0, 30)
CANDIDATES = np.stack([np.linspace(a, a + 1.0, 30) for a in (0.0, 0.2, 1.0, 2.0, 3.0)])
NOISE = 0.05


def rise(p, t):
    """A step response: late samples show the sum of gain and offset only."""
    return p["gain"] * (1 - jnp.exp(-t / p["lag"])) + p["offset"]


def rise_residuals(p, t, y):
    return rise(p, t) - y


def measured(t, rng):
    return np.asarray(rise(TRUE, t)) + NOISE * rng.normal(size=t.shape)


def design(t):
    """Derivatives by hand, relative to gain and lag and to the range of the offset."""
    e = np.exp(-t / TRUE["lag"])
    return np.stack([2.0 * (1 - e), -2.0 * e * t / TRUE["lag"], np.full(t.shape, 10.0)], axis=-1)


def fitted(t, y, **kwargs):
    return fitting.fit(rise_residuals, BOUNDS, t, y, noise=NOISE, **kwargs)


@pytest.mark.parametrize(("criterion", "score"), [("worst", 0), ("volume", 1)])
def test_the_choice_is_that_of_the_closed_form(criterion, score):
    exact = fitted(np.append(FIRST, 0.5), np.asarray(rise(TRUE, np.append(FIRST, 0.5))))
    found = fitting.next_experiment(rise, exact, CANDIDATES, criterion=criterion)
    J = design(np.append(FIRST, 0.5))
    totals = [(J.T @ J + design(t).T @ design(t)) / NOISE**2 for t in CANDIDATES]
    least = np.array([np.linalg.eigvalsh(x)[0] for x in totals])
    np.testing.assert_allclose(found.worst, 1 / np.sqrt(least), rtol=1e-5)
    scores = (least, [np.linalg.slogdet(x)[1] for x in totals])
    assert found.index == int(np.argmax(scores[score]))
    np.testing.assert_array_equal(found.candidate, CANDIDATES[found.index])
    unit = np.array([2.0, 0.4, 10.0])
    covariance = np.linalg.inv(totals[found.index]) * np.outer(unit, unit)
    np.testing.assert_allclose(found.after.covariance, covariance, rtol=1e-5)


def test_what_is_unknown_becomes_known_first():
    first = fitted(FIRST, measured(FIRST, np.random.default_rng(0)), guess=TRUE, starts=1)
    fixed = {k: jnp.asarray(v) for k, v in TRUE.items()}
    exact = first._replace(parameters=fixed)
    assert first.unidentifiable or first.worst_direction.deviation > 10
    found = fitting.next_experiment(rise, exact, CANDIDATES)
    assert found.index in (0, 1)
    assert np.isfinite(found.worst[found.index])
    assert f"Record candidate {found.index} of 5 next" in found.report()


def test_a_product_stays_unknown_and_is_told():
    def product(p, t):
        return p["a"] * p["b"] * t

    found = fitting.fit(
        lambda p, t, y: product(p, t) - y,
        {"a": Bound(0.1, 10.0), "b": Bound(0.1, 10.0)},
        FIRST,
        2.0 * FIRST,
        noise=0.1,
    )
    proposal = fitting.next_experiment(product, found, CANDIDATES)
    assert np.all(np.isinf(proposal.worst))
    assert proposal.after.unidentifiable == (("a", "b"),)
    assert "stays unknown even after it" in proposal.report()


@pytest.mark.long
def test_the_prediction_is_what_repeated_experiments_scatter():
    before = np.append(FIRST, [0.3, 0.5])
    exact = fitted(before, np.asarray(rise(TRUE, before)))
    found = fitting.next_experiment(rise, exact, CANDIDATES)
    t = np.append(before, CANDIDATES[found.index])
    scatter = []
    for seed in range(200):
        y = measured(t, np.random.default_rng(seed))
        again = fitted(t, y, guess=TRUE, starts=1)
        scatter.append([again.parameters[k] for k in TRUE])
    predicted = [found.after.standard_deviation[k] for k in TRUE]
    # A standard deviation of 200 is known to 1 / sqrt(400); three times that.
    np.testing.assert_allclose(np.std(scatter, axis=0) / predicted, 1.0, atol=0.15)
    other = [j for j in range(5) if j != found.index][-1]
    t = np.append(before, CANDIDATES[other])
    worse = [
        fitted(t, measured(t, np.random.default_rng(seed)), guess=TRUE, starts=1).parameters["gain"]
        for seed in range(50)
    ]
    assert np.std(worse) > np.std(scatter, axis=0)[0]


def test_correlated_residuals_are_worth_fewer_samples():
    t = np.linspace(0.0, 6.0, 400)
    error = np.random.default_rng(0).normal(size=400)
    for i in range(1, 400):
        error[i] += 0.9 * error[i - 1]
    y = np.asarray(rise(TRUE, t)) + 0.02 * error
    found = fitting.fit(rise_residuals, BOUNDS, t, y)
    assert found.correlated
    proposal = fitting.next_experiment(rise, found, CANDIDATES)
    count = fitting.effective_samples(found.residuals)
    np.testing.assert_allclose(proposal.after.noise, found.noise * np.sqrt(400 / count))


def test_bad_input_gets_a_sentence():
    found = fitted(FIRST, measured(FIRST, np.random.default_rng(0)), guess=TRUE, starts=1)
    with pytest.raises(ValueError, match=r"lengths \[2, 5\]"):
        fitting.next_experiment(lambda p, c: rise(p, c[0]), found, (CANDIDATES, np.ones(2)))
    with pytest.raises(ValueError, match="noise is -1"):
        fitting.next_experiment(rise, found, CANDIDATES, noise=-1.0)
    with pytest.raises(ValueError, match="candidate 1, or its derivative, is not finite"):
        fitting.next_experiment(rise, found, np.array([[1.0], [np.inf]]) * np.ones((1, 3)))
