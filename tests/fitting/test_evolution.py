import builtins

import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import fitting
from jaxgrip.fitting import Bound
from jaxgrip.fitting import _evolution as evolution
from jaxgrip.fitting._bounds import place

BOUNDS = {"a": Bound(0.01, 100.0), "b": Bound(-5.0, 5.0, scale="linear")}


def rosenbrock(p):
    return jnp.array([1 - p["a"], 10 * (p["b"] - p["a"] ** 2)])


def test_differential_evolution_finds_the_valley():
    found = fitting.differential_evolution(rosenbrock, BOUNDS, evaluations=20_000, population=32)
    np.testing.assert_allclose([found.parameters["a"], found.parameters["b"]], 1.0, atol=1e-5)
    assert found.rms < 1e-5
    assert 32 * found.generations <= found.evaluations <= 20_000


def bowl(p):
    return jnp.array([jnp.log(p["a"]), p["b"] - 1])


def test_an_evolution_strategy_finds_the_bottom():
    pytest.importorskip("deap", reason="the package deap (extra `fit`) is not installed")
    found = fitting.mu_plus_lambda(bowl, BOUNDS, evaluations=20_099)
    assert found.rms < 1e-6
    assert found.evaluations == 20 + 100 * found.generations == 20_020


def test_the_step_of_an_evolution_strategy_is_one_of_the_logarithm():
    """By e on a logarithmic scale, by the range on a linear one."""
    reach = evolution._reach(BOUNDS)
    here, there = (place(BOUNDS, jnp.asarray(x)) for x in (0.1 + 0 * reach, 0.1 + reach))
    np.testing.assert_allclose(there["a"] / here["a"], np.e, rtol=1e-13)
    np.testing.assert_allclose(there["b"] - here["b"], 10.0, rtol=1e-13)


def test_the_budget_is_kept_however_fast_the_machine_is():
    # Noise-like residuals, with a hole: nothing to converge to.
    def rough(p):
        r = jnp.sin(1e6 * p["a"]) + p["b"]
        return jnp.array([jnp.where(r > 0, r, jnp.nan), 1.0])

    found, again = (
        fitting.differential_evolution(rough, BOUNDS, evaluations=500, population=16)
        for _ in range(2)
    )
    assert np.isfinite(found.rms)
    assert found.evaluations == 31 * 16
    assert again._replace(seconds=found.seconds) == found


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"evaluations": 63}, "evaluations is 63; it must be a whole number, at least 64"),
        ({"evaluations": 1000, "population": 4}, "population is 4; .* at least 5"),
    ],
)
def test_bad_settings_get_a_sentence(kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        fitting.differential_evolution(rosenbrock, BOUNDS, **kwargs)


def test_a_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("deap"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'jaxgrip\[fit\]'"):
        fitting.mu_plus_lambda(rosenbrock, BOUNDS, evaluations=1000)
