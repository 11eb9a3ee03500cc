"""Maximum likelihood against the closed form of a linear model with normal noise."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import fitting
from jaxgrip.fitting import Bound

BOUNDS = {
    "noise": Bound(1e-3, 10.0),
    "offset": Bound(-10.0, 10.0, scale="linear"),
    "slope": Bound(-10.0, 10.0, scale="linear"),
}


def log_likelihood(p, x, y):
    r = (y - p["offset"] - p["slope"] * x) / p["noise"]
    return -0.5 * r @ r - x.size * jnp.log(p["noise"]) - 0.5 * x.size * np.log(2 * np.pi)


@pytest.mark.long
def test_noise_is_a_parameter_like_others():
    x = np.linspace(0.0, 1.0, 50)
    y = 2.0 - 3.0 * x + 0.1 * np.random.default_rng(0).normal(size=50)
    design = np.stack([np.ones_like(x), x], axis=1)
    best, squares, *_ = np.linalg.lstsq(design, y)
    variance = squares[0] / 50
    found = fitting.maximize_likelihood(log_likelihood, BOUNDS, x, y)
    np.testing.assert_allclose(found.parameters["noise"], np.sqrt(variance), rtol=1e-8)
    np.testing.assert_allclose([found.parameters[k] for k in ("offset", "slope")], best, rtol=1e-8)
    np.testing.assert_allclose(
        found.log_likelihood, -25 * (np.log(2 * np.pi * variance) + 1), rtol=1e-12
    )
    # At the maximum the observed information is the expected one.
    covariance = np.zeros((3, 3))
    covariance[0, 0] = variance / 100
    covariance[1:, 1:] = variance * np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-9)
    assert found.result == fitting.RESULTS.successful
    assert found.starts.agreeing >= 12
    assert np.all(np.diff(found.starts.value) <= 0)
    assert "log-likelihood" in found.report()


def test_a_product_in_a_likelihood_is_not_taken_apart():
    y = 3.0 + np.random.default_rng(1).normal(size=40)
    found = fitting.maximize_likelihood(
        lambda p, y: -0.5 * jnp.sum((y - p["a"] * p["b"]) ** 2),
        {"a": Bound(0.1, 100.0), "b": Bound(0.1, 100.0)},
        y,
    )
    np.testing.assert_allclose(found.parameters["a"] * found.parameters["b"], y.mean(), rtol=1e-8)
    assert found.unidentifiable == (("a", "b"),)
    assert found.standard_deviation == {"a": np.inf, "b": np.inf}


def test_a_likelihood_finite_nowhere_gets_a_sentence():
    with pytest.raises(ValueError, match="The log-likelihood is finite at none"):
        fitting.maximize_likelihood(lambda p: jnp.log(-p["a"]), {"a": Bound(1.0, 2.0)})
