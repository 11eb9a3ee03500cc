"""Optima, starts, failures, and what is said about them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from jaxgrip import fitting
from jaxgrip.fitting import Bound
from jaxgrip.fitting._descent import Model, descend
from jaxgrip.fitting._fit import _least_squares

LINE = {"offset": Bound(-10.0, 10.0, scale="linear"), "slope": Bound(-10.0, 10.0, scale="linear")}


def line(p, x, y):
    return p["offset"] + p["slope"] * x - y


@pytest.fixture
def points():
    x = np.linspace(0.0, 1.0, 40)
    return x, 2.0 - 3.0 * x + 0.1 * np.random.default_rng(4).normal(size=40)


def test_a_straight_line_has_the_closed_form(points):
    x, y = points
    design = np.stack([np.ones_like(x), x], axis=1)
    best, squares, *_ = np.linalg.lstsq(design, y)
    covariance = np.linalg.inv(design.T @ design)
    found = fitting.fit(line, LINE, x, y, noise=0.1)
    np.testing.assert_allclose([found.parameters[k] for k in LINE], best, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, 0.01 * covariance, rtol=1e-10)
    np.testing.assert_allclose(
        [found.standard_deviation[k] for k in LINE],
        0.1 * np.sqrt(np.diag(covariance)),
        rtol=1e-10,
    )
    # Along the longest axis of the ellipse; a range is 20.
    values, vectors = np.linalg.eigh(0.01 * covariance)
    direction = found.worst_direction
    np.testing.assert_allclose(direction.deviation, np.sqrt(values[1]) / 20, rtol=1e-10)
    np.testing.assert_allclose(abs(direction.weights["slope"]), abs(vectors[1, 1]), rtol=1e-10)
    assert found.starts.agreeing == 16
    assert found.result == fitting.RESULTS.successful

    estimated = fitting.fit(line, LINE, x, y)
    assert not estimated.correlated
    np.testing.assert_allclose(estimated.noise**2, squares[0] / 38, rtol=1e-10)
    np.testing.assert_allclose(estimated.covariance, squares[0] / 38 * covariance, rtol=1e-10)
    np.testing.assert_allclose(estimated.rms**2, squares[0] / 40, rtol=1e-10)


def test_a_pendulum_is_identified(swing_residuals, bounds, duty, angle, true):
    found = fitting.fit(swing_residuals, bounds, duty, angle)
    assert found.rms < 1e-12
    for name, value in true.items():
        np.testing.assert_allclose(found.parameters[name], value, rtol=1e-10)
    assert found.starts.agreeing >= 4
    assert found.at_bound == ()
    assert found.unidentifiable == ()
    assert "4 parameters, 600 residuals" in found.report()


def test_other_numbers_do_not_compile_anew(swing_residuals, bounds, duty, angle):
    fitting.fit(swing_residuals, bounds, duty, angle)
    before = _least_squares._cached._cache_size()
    wider = {k: Bound(0.9 * b.lower, 1.1 * b.upper) for k, b in bounds.items()}
    fitting.fit(swing_residuals, wider, 1.01 * duty, angle + 0.01, key=jax.random.key(3))
    assert _least_squares._cached._cache_size() == before


def test_the_optimum_on_a_bound_is_that_of_scipy(points):
    x, y = points
    narrow = {"offset": LINE["offset"], "slope": Bound(-2.5, 10.0, scale="linear")}
    found = fitting.fit(line, narrow, x, y)
    design = np.stack([np.ones_like(x), x], axis=1)
    other = scipy.optimize.lsq_linear(design, y, ([-10.0, -2.5], [10.0, 10.0]), tol=1e-14)
    np.testing.assert_allclose([found.parameters[k] for k in narrow], other.x, rtol=1e-9)
    assert found.at_bound == ("slope",)
    assert "slope is at its bound" in found.report()
    assert np.isfinite(found.standard_deviation["slope"])


def test_a_product_is_not_taken_apart():
    x = np.linspace(0.0, 1.0, 30)
    y = 6.0 * np.exp(-2.0 * x)
    bounds = {
        "gain": Bound(0.1, 100.0),
        "idle": Bound(0.1, 10.0),
        "rate": Bound(0.1, 10.0),
        "scale": Bound(0.1, 100.0),
    }
    found = fitting.fit(
        lambda p, x, y: p["gain"] * p["scale"] * jnp.exp(-p["rate"] * x) - y,
        bounds,
        x,
        y,
        noise=0.1,
    )
    assert set(found.unidentifiable) == {("gain", "scale"), ("idle",)}
    for name in ("gain", "scale", "idle"):
        assert found.standard_deviation[name] == np.inf
    assert not np.any(np.isnan(found.covariance))
    assert found.worst_direction.deviation == np.inf
    np.testing.assert_allclose(found.parameters["gain"] * found.parameters["scale"], 6.0)
    # What is determined is as well known as if the product were one parameter.
    J = np.stack([np.exp(-2.0 * x), -6.0 * x * np.exp(-2.0 * x)], axis=1)
    alone = 0.1 * np.sqrt(np.linalg.inv(J.T @ J)[1, 1])
    np.testing.assert_allclose(found.standard_deviation["rate"], alone, rtol=1e-6)
    report = found.report()
    assert "determine gain and scale only in combination" in report
    assert "idle has no influence" in report


def root(p, y):
    # NaN for half of the places where a start may lie.
    return jnp.sqrt(p["a"] - 1.0) * jnp.linspace(1.0, 2.0, 20) - y


def test_starts_that_are_not_finite_spoil_no_others():
    bounds = {"a": Bound(0.0, 2.0, scale="linear")}
    y = np.sqrt(0.5) * np.linspace(1.0, 2.0, 20)
    found = fitting.fit(root, bounds, y, guess={"a": 0.5})
    np.testing.assert_allclose(found.parameters["a"], 1.5, rtol=1e-9)
    assert np.sum(found.starts.failed) == 1
    lost = int(np.flatnonzero(found.starts.failed)[0])
    assert found.starts.first["a"][lost] == 0.5
    assert not found.starts.converged[lost]
    assert np.isfinite(found.starts.value).sum() == 15
    # Half of 128 candidates, less a few where the square root is defined.
    assert found.starts.untried == 64
    assert "1 of 16 starts failed" in found.report()
    assert "64 candidates" in found.report()


def test_residuals_finite_nowhere_get_a_sentence():
    bounds = {"a": Bound(0.0, 0.9, scale="linear")}
    with pytest.raises(ValueError, match=r"finite at none of the 16 starts.*'a': 0\."):
        fitting.fit(root, bounds, np.ones(20))


def test_a_descent_that_is_cut_short_says_so(swing_residuals, bounds, duty, angle):
    found = fitting.fit(swing_residuals, bounds, duty, angle, steps=1)
    assert found.result == fitting.RESULTS.not_converged
    assert "raise `steps`" in found.report()


def test_a_good_guess_is_a_start(swing_residuals, bounds, duty, angle, true):
    found = fitting.fit(swing_residuals, bounds, duty, angle, guess=true, starts=1)
    np.testing.assert_allclose(found.starts.first["inertia"][0], true["inertia"], rtol=1e-12)
    assert found.rms < 1e-12


def test_residuals_may_be_a_tree_and_carry_their_data(points):
    x, y = points

    class Line(eqx.Module):
        x: jax.Array
        y: jax.Array

        def __call__(self, p):
            r = line(p, self.x, self.y)
            return {"first": r[:10], "rest": r[10:].reshape(3, 10)}

    found = fitting.fit(Line(jnp.asarray(x), jnp.asarray(y)), LINE)
    other = fitting.fit(line, LINE, x, y)
    np.testing.assert_allclose(found.parameters["slope"], other.parameters["slope"], rtol=1e-9)
    assert found.residuals["rest"].shape == (3, 10)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"starts": 0}, "starts is 0; it must be a positive whole number"),
        ({"steps": -1}, "steps is -1"),
        ({"noise": -1.0}, "noise is -1; it must be positive"),
        ({"guess": {"offset": 0.0}}, "they must be the same"),
        ({"guess": {"offset": 0.0, "slope": 11.0}}, "slope is 11.0; it must lie between"),
    ],
)
def test_bad_input_gets_a_sentence(points, kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        fitting.fit(line, LINE, *points, **kwargs)


def test_too_few_residuals_get_a_sentence():
    with pytest.raises(ValueError, match="There are 2 residuals for 2 parameters"):
        fitting.fit(line, LINE, np.ones(2), np.ones(2))


def test_noise_that_the_residuals_exceed_is_named(points):
    x, y = points
    found = fitting.fit(line, LINE, x, y + x**2 * 4, noise=0.1)
    report = found.report()
    assert "times the given noise" in report
    assert "the given noise assumes independent ones" in report


def test_descents_leave_saddles_and_stop_at_faces():
    def evaluate(x):
        def f(x):
            return (x[0] - 0.5) ** 2 * ((x[0] - 0.5) ** 2 - 0.08) + (x[1] + 0.3) ** 2

        return Model(f(x), jax.grad(f)(x), jax.hessian(f)(x))

    starts = jnp.array([[0.501, 0.9], [0.45, 0.2], [0.9, 0.0]])
    found = descend(evaluate, starts, limit=50, scale=jnp.ones_like)
    assert np.all(found.converged)
    np.testing.assert_allclose(found.position[:, 0], [0.7, 0.3, 0.7], atol=1e-7)
    np.testing.assert_array_equal(found.position[:, 1], 0.0)


def test_data_that_are_no_numbers_get_a_sentence():
    bounds = {"slope": Bound(0.1, 10.0), "offset": Bound(-1.0, 1.0, scale="linear")}
    data = {"x": np.linspace(0.0, 1.0, 9), "y": np.array([0.0, np.nan] * 4 + [1.0])}
    with pytest.raises(ValueError, match=r"Argument 1 of the data at y has 4 values that are not"):
        fitting.fit(lambda p, d: p["slope"] * d["x"] + p["offset"] - d["y"], bounds, data)
