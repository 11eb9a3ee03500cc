"""The needle in tissue against beams on elastic foundations, and the launch against integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.integrate import solve_ivp

from experiments.mechanisms import needle as model
from jaxgrip import config

pytestmark = pytest.mark.long

COUNTS = (model.ELEMENTS // 2, model.ELEMENTS, 2 * model.ELEMENTS)


def configured(**given):
    return config.validate(model.Config, {"experiment": "mechanisms/needle", **given}, "here")


def needle(**given):
    one = configured().needle()
    return model.Needle(**{**vars(one), **{k: jnp.asarray(v, float) for k, v in given.items()}})


def test_without_tissue_it_is_a_cantilever():
    one = needle(stiffness=0.0)
    across = model.forces(one)[1]
    exact = across * one.length**3 / (3 * model.bending(one))
    path = model.insert(one, 20)
    # Its face is 2.1 mm long, an element 6 mm.
    np.testing.assert_allclose(path.tip, exact, rtol=1e-9)
    x = jnp.linspace(0.0, 1.0, 21)
    np.testing.assert_allclose(path.shape[-1], exact * x**2 * (3 - x) / 2, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("elements", [320, 640])
def test_the_channel_bends_as_the_closed_form_says(elements):
    """Deep in the tissue; the error falls with the length of an element."""
    one = needle(length=0.6)
    path = jax.jit(model.insert, static_argnums=1)(one, elements)
    curvature = np.diff(np.asarray(path.tip), 2) / (0.6 / elements) ** 2
    exact = float(model.steady_curvature(one))
    # The mean, as differences of nearly equal displacements scatter.
    deep = np.mean(curvature[elements // 2 :])
    np.testing.assert_allclose(deep, exact, rtol=0.2 / elements)


def test_stiff_tissue_keeps_the_needle_in_its_channel():
    path = model.insert(needle(stiffness=1e7), 40)
    behind = path.shape[-1, -10:-1]
    np.testing.assert_allclose(behind, path.tip[-10:-1], rtol=2e-2, atol=2e-6)


def test_elements_are_fine_enough():
    tips = [float(jax.jit(model.insert, static_argnums=1)(needle(), n).tip[-1]) for n in COUNTS]
    errors = np.abs(np.diff(tips))
    assert errors[1] < 0.5 * errors[0]
    assert errors[1] < 0.02 * tips[-1]


def test_a_blunt_tip_goes_straight():
    np.testing.assert_allclose(model.insert(needle(bevel=np.pi / 2), 20).tip, 0.0, atol=1e-15)


def test_derivatives_are_differences():
    one = needle()

    def tip(bevel, stiffness, diameter):
        return (
            1e3
            * model.insert(
                model.Needle(
                    **{
                        **vars(one),
                        "bevel": bevel,
                        "stiffness": stiffness,
                        "diameter": 1e-3 * diameter,
                    }
                ),
                20,
            ).tip[-1]
        )

    check_grads(tip, (one.bevel, one.stiffness / 1e4, 1.0), order=1, rtol=1e-5)


@pytest.mark.parametrize(
    ("tension", "cut", "friction"),
    [(0.022, 0.3, 8.0), (0.02, 10.0, 900.0), (0.02, 16.0, 0.0), (0.02, 40.0, 8.0)],
)
def test_the_launch_is_that_of_an_integrator(tension, cut, friction):
    mass, spring = 0.012, 1500.0

    def rates(t, y):
        return [y[1], (spring * (tension - y[0]) - cut - friction * y[0]) / mass]

    def relaxed(t, y):
        return y[0] - tension

    def stops(t, y):
        return y[1] if t > 1e-6 else 1.0

    relaxed.terminal = stops.terminal = True
    stops.direction = -1
    shot = model.launch(*(jnp.asarray(x) for x in (mass, spring, tension, cut, friction)))
    if spring * tension <= cut:
        np.testing.assert_array_equal(jnp.stack(shot), 0.0)
        return
    found = solve_ivp(
        rates, (0.0, 1.0), [0.0, 0.0], events=(relaxed, stops), rtol=1e-10, atol=1e-13
    )
    np.testing.assert_allclose(shot.depth, found.y[0, -1], rtol=1e-6)
    np.testing.assert_allclose(shot.time, found.t[-1], rtol=1e-5)
    np.testing.assert_allclose(shot.speed, found.y[1, -1], rtol=1e-6, atol=1e-6)
    # The energy of the spring, less what cutting and friction take.
    x = shot.depth
    energy = 0.5 * spring * (tension**2 - (tension - x) ** 2) - cut * x - 0.5 * friction * x**2
    np.testing.assert_allclose(0.5 * mass * shot.speed**2, energy, atol=1e-12)
    slopes = jax.grad(lambda t: model.launch(mass, spring, t, cut, friction).depth)(tension)
    assert np.isfinite(slopes)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"diameter": 0.05}, "too thick for a beam"),
        ({"resistance": 1e7}, "must be a beam that bends little"),
        ({"bevel_deg": 2.0}, "greater than 5"),
        ({"stiffness": float("nan")}, "finite"),
    ],
)
def test_mistakes_get_a_sentence(given, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        configured(**given)
