"""Chains with base and tip exchanged, and degrees of paths."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mechanisms import inverse_chains as model
from jaxgrip import config, report
from jaxgrip.mechanism import study
from jaxgrip.spatial import dual_quaternions as dq

pytestmark = pytest.mark.long


def configured(**given):
    return config.validate(
        model.Config, {"experiment": "mechanisms/inverse_chains", **given}, "here"
    )


def test_links_are_those_of_denavit_and_hartenberg():
    theta, d, a, alpha = 0.7, 0.3, -0.4, 1.1

    def rz(x):
        return np.array([[np.cos(x), -np.sin(x), 0], [np.sin(x), np.cos(x), 0], [0, 0, 1]])

    def rx(x):
        return np.array([[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]])

    q = study.link(theta, d, a, alpha)
    np.testing.assert_allclose(dq.rotation(q), rz(theta) @ rx(alpha), atol=1e-12)
    expected = rz(theta) @ np.array([a, 0.0, 0.0]) + np.array([0.0, 0.0, d])
    np.testing.assert_allclose(dq.translation(q), expected, atol=1e-12)
    # The printed inverse, Rx(-alpha) Tx(-a) Tz(-d) Rz(-theta), as two links.
    back = dq.product(study.link(0.0, 0.0, -a, -alpha), study.link(-theta, -d, 0.0, 0.0))
    np.testing.assert_allclose(back, dq.conjugate(q), atol=1e-12)


def test_a_run_finds_degrees_and_equations(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "_draw", lambda *_: None)
    settings = configured(chains=50, links=2)
    run = report.Run(tmp_path, settings)
    model.run(settings, run)
    found = {name: result.value for name, result in run.results.items()}
    assert found["elliptic_degrees"] == [2, 2, 2]
    assert found["inverse_degrees"] == [4, 4, 4]
    assert found["quadrics_eliminated"] == found["quadrics_of_a_sample"] == 9
    for name, value in found.items():
        assert not name.endswith("_off") or value < 1e-12, name


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"joints": "PRX"}, "there are R, which turns, and P"),
        ({"joints": "PR"}, r"has the shape \(3, 4\); it must be \(2, 4\)"),
        ({"rows": [[0.0, 0.0, 0.1, 0.0]] * 3, "joints": "RRR"}, "special positions"),
    ],
)
def test_mistakes_get_a_sentence(given, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        configured(**given)


def test_degrees_of_known_curves():
    t = np.linspace(0.0, 2 * np.pi, 60)[:-1]
    assert model.degree(np.stack([t, 2 * t + 1], axis=1)) == 1
    assert model.degree(np.stack([3 * np.cos(t), np.sin(t)], axis=1)) == 2
    assert model.degree(np.stack([t, t**3], axis=1)) == 3
    limacon = (0.4 + np.cos(t))[:, None] * np.stack([np.cos(t), np.sin(t)], axis=1)
    assert model.degree(limacon) == 4
    assert model.degree(np.random.default_rng(0).normal(size=(60, 2))) == 7


def test_equations_tell_the_chains_apart():
    length = jnp.asarray(0.8)
    q = model.slide_and_turn(jnp.asarray(0.3), jnp.asarray(1.1), length)
    assert abs(model.slide_and_turn_equation(q, length)) < 1e-15
    assert abs(model.turn_and_slide_equation(q, length)) > 0.1
    assert abs(model.turn_and_slide_equation(dq.conjugate(q), length)) < 1e-15
    bar = model.elliptic(jnp.asarray(0.9), length)
    assert np.max(np.abs(model.elliptic_equations(dq.conjugate(bar), length))) > 0.1
