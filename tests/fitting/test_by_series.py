"""Parameters of single series, found together with those that series share."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import fitting
from jaxgrip.fitting import Bound

COUNT, NOISE = 4, 0.1
X = np.linspace(0.0, 1.0, 25)


def lines(p, x, y):
    """Lines of one slope, each with an offset of its own."""
    return tuple(offset + p["slope"] * x - one for offset, one in zip(p["offset"], y, strict=True))


def bounds(by_series):
    return {
        "offset": Bound(np.full(COUNT, -10.0), 10.0, "linear", by_series=by_series),
        "slope": Bound(-10.0, 10.0, "linear"),
    }


@pytest.fixture
def measured():
    rng = np.random.default_rng(0)
    return tuple(k - 3.0 * X + NOISE * rng.normal(size=X.size) for k in range(COUNT))


@pytest.fixture
def design():
    """Of the offsets and the slope, as they stand in the covariance."""
    return np.hstack([np.kron(np.eye(COUNT), np.ones((X.size, 1))), np.tile(X, COUNT)[:, None]])


def test_the_fit_is_the_closed_form_at_fewer_evaluations(measured, design):
    best, *_ = np.linalg.lstsq(design, np.concatenate(measured))
    found = fitting.fit(lines, bounds(True), X, measured, noise=NOISE)
    np.testing.assert_allclose(found.parameters["offset"], best[:COUNT], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.parameters["slope"], best[COUNT], rtol=1e-9)
    covariance = NOISE**2 * np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9)
    plain = fitting.fit(lines, bounds(False), X, measured, noise=NOISE)
    np.testing.assert_allclose(plain.covariance, found.covariance, rtol=1e-9)
    # Two derivatives instead of five, and the value.
    guess = {"offset": np.zeros(COUNT), "slope": 0.0}
    found, plain = (
        fitting.fit(lines, bounds(given), X, measured, guess=guess, starts=1)
        for given in (True, False)
    )
    assert found.evaluations * 6 == plain.evaluations * 3


def test_intervals_and_rounded_samples_know_the_pattern(measured, design):
    covariance = NOISE**2 * np.linalg.inv(design.T @ design)
    rounded = tuple(np.round(y, 1) for y in measured)
    for data, given in ((measured, {}), (rounded, {"resolution": 0.1})):
        found = fitting.fit(lines, bounds(True), X, data, noise=NOISE, **given)
        plain = fitting.fit(lines, bounds(False), X, data, noise=NOISE, **given)
        np.testing.assert_allclose(found.parameters["slope"], plain.parameters["slope"], rtol=1e-6)
        ends = fitting.intervals(lines, found, X, data, names=["slope"]).of["slope"]
        half = 0.5 * (ends.upper - ends.lower)
        np.testing.assert_allclose(half, 1.96 * np.sqrt(covariance[-1, -1]), rtol=0.1)


def test_the_marginal_fit_has_the_uncertainty_of_the_whole(measured):
    whole = fitting.fit(lines, bounds(True), X, measured, noise=NOISE)
    found = whole.marginal("offset")
    assert found.names == ("slope",)
    assert list(found.parameters) == list(found.bounds) == ["slope"]
    np.testing.assert_allclose(found.covariance, whole.covariance[-1:, -1:], rtol=1e-9)
    np.testing.assert_allclose(found.information, 1 / whole.covariance[-1:, -1:], rtol=1e-9)
    np.testing.assert_allclose(
        found.standard_deviation["slope"], whole.standard_deviation["slope"], rtol=1e-9
    )
    assert "1 parameter" in found.report()
    # An offset that is known makes the slope better known.
    known = {"slope": bounds(True)["slope"]}
    fixed = fitting.fit(
        lambda p, x, y: lines({**p, "offset": whole.parameters["offset"]}, x, y),
        *(known, X, measured),
        noise=NOISE,
    )
    assert fixed.standard_deviation["slope"] < 0.6 * found.standard_deviation["slope"]


def test_a_parameter_nothing_tells_stays_unknown(measured):
    """Two offsets of which only the sum counts leave the slope as well known as one."""

    def twice(p, x, y):
        return lines({"slope": p["slope"], "offset": p["offset"] + p["more"]}, x, y)

    both = {**bounds(True), "more": Bound(np.full(COUNT, -1.0), 1.0, "linear", by_series=True)}
    whole = fitting.fit(twice, both, X, measured, noise=NOISE)
    assert whole.unidentifiable
    plain = fitting.fit(lines, bounds(True), X, measured, noise=NOISE)
    found = whole.marginal("offset", "more")
    assert not found.unidentifiable
    np.testing.assert_allclose(
        found.standard_deviation["slope"], plain.standard_deviation["slope"], rtol=1e-6
    )


def test_wrong_patterns_get_a_sentence(measured):
    def crossed(p, x, y):
        return lines({**p, "offset": jnp.roll(p["offset"], 1)}, x, y)

    with pytest.raises(ValueError, match=r"offset\.0 influences other series"):
        fitting.fit(crossed, bounds(True), X, measured, noise=NOISE)
    with pytest.raises(ValueError, match=r"has the shape \(4,\); it must be \(3,\)"):
        fitting.fit(
            lambda p, x, y: lines(p, x, (*y, y[0]))[:3], bounds(True), X, measured[:3], noise=NOISE
        )
