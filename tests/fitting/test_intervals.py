"""Intervals by the profile likelihood, against closed forms and dense grids."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxgrip import fitting
from jaxgrip.fitting import Bound
from jaxgrip.fitting import _intervals as profiles

LINE = {"offset": Bound(-10.0, 10.0, scale="linear"), "slope": Bound(-10.0, 10.0, scale="linear")}
DECAY = {"height": Bound(0.01, 100.0), "rate": Bound(0.01, 1000.0)}
TIME = np.linspace(0.0, 1.0, 12)
NOISE = 0.15


def line(p, x, y):
    return p["offset"] + p["slope"] * x - y


def decay(p, y):
    return p["height"] * jnp.exp(-p["rate"] * TIME) - y


def decaying(seed):
    return np.exp(-8.0 * TIME) + NOISE * np.random.default_rng(seed).normal(size=TIME.shape)


@pytest.fixture(scope="module")
def points():
    x = np.linspace(0.0, 1.0, 20)
    return x, 2.0 - 3.0 * x + 0.1 * np.random.default_rng(4).normal(size=20)


@pytest.mark.parametrize("noise", [None, 0.1])
@pytest.mark.parametrize("level", [0.6827, 0.95])
def test_a_linear_model_has_t_standard_deviations(points, noise, level):
    x, y = points
    found = fitting.fit(line, LINE, x, y, noise=noise)
    ends = fitting.intervals(line, found, x, y, level=level)
    design = np.stack([np.ones_like(x), x], axis=1)
    best, squares, *_ = np.linalg.lstsq(design, y)
    variance = squares[0] / 18 if noise is None else noise**2
    deviation = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    law = scipy.stats.t(18) if noise is None else scipy.stats.norm
    reach = law.ppf(0.5 + level / 2)
    for k, name in enumerate(LINE):
        interval = ends.of[name]
        np.testing.assert_allclose(interval.lower, best[k] - reach * deviation[k], rtol=1e-4)
        np.testing.assert_allclose(interval.upper, best[k] + reach * deviation[k], rtol=1e-4)
        assert not interval.lower_open
        assert not interval.upper_open
    assert ends.better is None


def test_the_profile_of_a_skewed_parameter_is_that_of_a_dense_grid():
    y = decaying(0)
    found = fitting.fit(decay, DECAY, y, noise=NOISE)
    rate = np.exp(np.linspace(np.log(1.0), np.log(100.0), 200_001))
    shape = np.exp(-np.outer(TIME, rate))
    height = y @ shape / np.sum(shape**2, axis=0)
    deviance = np.sum((height * shape - y[:, None]) ** 2, axis=0) / NOISE**2
    inside = rate[deviance - deviance.min() <= scipy.stats.chi2(1).ppf(0.95)]
    interval = fitting.intervals(decay, found, y, names=["rate"]).of["rate"]
    np.testing.assert_allclose([interval.lower, interval.upper], inside[[0, -1]], rtol=2e-4)
    assert interval.upper - interval.value > 1.5 * (interval.value - interval.lower)
    # Symmetric in the logarithm, the report is nearer to it than the standard deviation is.
    words = next(x for x in found.report().split("\n") if x.startswith("  rate")).split()
    assert words[5:9] == ["in", "95", "%", "of"]
    lower, upper = float(words[2]), float(words[4])
    deviation = found.standard_deviation["rate"]
    assert abs(upper - inside[-1]) < 0.5 * abs(interval.value + 1.96 * deviation - inside[-1])
    assert abs(lower - inside[0]) < 0.5 * abs(interval.value - 1.96 * deviation - inside[0])


def test_other_numbers_and_levels_do_not_compile_anew():
    found = fitting.fit(decay, DECAY, decaying(0), noise=NOISE)
    fitting.intervals(decay, found, decaying(0))
    before = profiles._lowest._cached._cache_size()
    found = fitting.fit(decay, DECAY, decaying(1), noise=NOISE)
    fitting.intervals(decay, found, decaying(1), level=0.9)
    assert profiles._lowest._cached._cache_size() == before


def test_intervals_say_where_data_set_no_limit():
    y = decaying(0)
    narrow = {**DECAY, "rate": Bound(0.01, 10.0)}
    found = fitting.fit(decay, narrow, y, noise=NOISE)
    ends = fitting.intervals(decay, found, y)
    assert ends.of["rate"].upper_open
    assert not ends.of["rate"].lower_open
    np.testing.assert_allclose(ends.of["rate"].upper, 10.0, rtol=1e-12)
    assert "no upper end up to 10" in ends.report()


def test_an_interval_has_the_digits_of_its_width():
    assert str(fitting.Interval(0.0180246, 0.0180115, 0.0180377, False, False)) == (
        "0.0180246 (0.0180115 to 0.0180377)"
    )
    assert str(fitting.Interval(7.23685, 4.16893, 13.406, False, True)) == (
        "7.24 (above 4.17; no upper end up to 13.41)"
    )
    assert str(fitting.Interval(0.0, 0.0, 0.0, True, True)).startswith("0 (open")


def test_factors_of_a_product_are_open_and_their_product_is_not():
    y = decaying(0)
    bounds = {"first": Bound(0.01, 100.0), "rate": DECAY["rate"], "second": Bound(0.01, 100.0)}

    def product(p, y):
        return p["first"] * p["second"] * jnp.exp(-p["rate"] * TIME) - y

    ends = fitting.intervals(product, fitting.fit(product, bounds, y, noise=NOISE), y)
    for name in ("first", "second"):
        assert ends.of[name][1:] == (pytest.approx(0.01), pytest.approx(100.0), True, True)
    alone = fitting.intervals(decay, fitting.fit(decay, DECAY, y, noise=NOISE), y).of["rate"]
    np.testing.assert_allclose(ends.of["rate"].upper, alone.upper, rtol=1e-3)
    np.testing.assert_allclose(ends.of["rate"].lower, alone.lower, rtol=1e-3)


def test_a_parameter_on_its_bound_has_one_end():
    y = decaying(0)
    found = fitting.fit(decay, {**DECAY, "rate": Bound(0.01, 5.0)}, y, noise=NOISE)
    assert found.at_bound == ("rate",)
    interval = fitting.intervals(decay, found, y).of["rate"]
    assert interval.upper_open
    assert not interval.lower_open
    # The profile of the height along the bound is that of a linear model.
    shape = np.exp(-5.0 * TIME)
    height = fitting.intervals(decay, found, y).of["height"]
    best = y @ shape / (shape @ shape)
    np.testing.assert_allclose(
        height.lower, best - 1.959964 * NOISE / np.sqrt(shape @ shape), rtol=1e-4
    )


def test_a_model_that_ends_somewhere_leaves_the_interval_open():
    y = np.sqrt(0.2) * np.linspace(1.0, 2.0, 20)

    def root(p, y):
        return jnp.sqrt(1.0 - p["a"]) * jnp.linspace(1.0, 2.0, 20) - y

    found = fitting.fit(root, {"a": Bound(0.0, 3.0, scale="linear")}, y, noise=3.0)
    interval = fitting.intervals(root, found, y).of["a"]
    assert interval.upper_open
    np.testing.assert_allclose(interval.upper, 1.0, atol=1e-3)


def test_a_fit_that_is_not_the_best_is_told():
    y = decaying(0)
    start = {"height": 0.3, "rate": 2.0}
    early = fitting.fit(decay, DECAY, y, noise=NOISE, guess=start, starts=1, steps=1)
    ends = fitting.intervals(decay, early, y)
    assert np.sum(decay(ends.better, y) ** 2) < np.sum(decay(early.parameters, y) ** 2)
    assert "fit again" in ends.report()


def exponential(p, y):
    return -jnp.sum(y) / p["mean"] - y.size * jnp.log(p["mean"])


def test_the_interval_of_a_likelihood_is_that_of_its_closed_form():
    y = np.random.default_rng(0).exponential(2.0, size=15)
    found = fitting.maximize_likelihood(exponential, {"mean": Bound(0.01, 100.0)}, y)
    interval = fitting.intervals(exponential, found, y).of["mean"]
    ratio = np.array([interval.lower, interval.upper]) / y.mean()
    fallen = 2 * 15 * (np.log(ratio) + 1 / ratio - 1)
    np.testing.assert_allclose(fallen, scipy.stats.chi2(1).ppf(0.95), rtol=1e-3)


def test_intervals_of_rounded_data_are_those_of_a_dense_grid():
    step, samples = 1.0, 60
    truth = 0.3 + 2.0 * np.linspace(0.0, 1.0, samples)
    y = np.round(truth + 0.2 * np.random.default_rng(3).normal(size=samples))
    ramp = 2.0 * np.linspace(0.0, 1.0, samples)

    def shifted(p, y):
        return p["shift"] + ramp - y

    found = fitting.fit(
        shifted, {"shift": Bound(-1.0, 2.0, scale="linear")}, y, resolution=step, noise=0.2
    )
    interval = fitting.intervals(shifted, found, y).of["shift"]
    shift = np.linspace(-0.5, 1.0, 30_001)
    r = shift[:, None] + ramp - y
    chance = scipy.stats.norm.cdf((0.5 - r) / 0.2) - scipy.stats.norm.cdf((-0.5 - r) / 0.2)
    value = np.sum(np.log(np.maximum(chance, 1e-300)), axis=1)
    inside = shift[2 * (value.max() - value) <= scipy.stats.chi2(1).ppf(0.95)]
    np.testing.assert_allclose([interval.lower, interval.upper], inside[[0, -1]], atol=2e-4)


def test_correlated_residuals_widen_intervals_as_standard_deviations(points):
    x = np.linspace(0.0, 1.0, 400)
    error = np.random.default_rng(7).normal(size=400)
    for i in range(1, 400):
        error[i] += 0.9 * error[i - 1]
    y = 2.0 - 3.0 * x + 0.05 * error
    found = fitting.fit(line, LINE, x, y)
    assert found.correlated
    ends = fitting.intervals(line, found, x, y)
    reach = scipy.stats.t.ppf(0.975, 398)
    for name in LINE:
        np.testing.assert_allclose(
            ends.of[name].upper - found.parameters[name],
            reach * found.standard_deviation[name],
            rtol=1e-3,
        )


@pytest.mark.long
def test_intervals_of_a_skewed_parameter_hold_the_truth():
    held = 0
    for seed in range(200):
        y = decaying(seed)
        found = fitting.fit(decay, DECAY, y, noise=NOISE)
        interval = fitting.intervals(decay, found, y, names=["rate"]).of["rate"]
        held += interval.lower <= 8.0 <= interval.upper
    # Binomial: 0.95 less three standard deviations.
    assert 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200) < held / 200


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"level": 95.0}, "level is 95.0; it must lie between 0 and 1"),
        ({"names": ["rates"]}, "no parameter rates; perhaps 'rate'"),
    ],
)
def test_bad_input_gets_a_sentence(kwargs, sentence):
    y = decaying(0)
    found = fitting.fit(decay, DECAY, y, noise=NOISE)
    with pytest.raises(ValueError, match=sentence):
        fitting.intervals(decay, found, y, **kwargs)
