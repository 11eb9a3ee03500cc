import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxgrip.fitting import Bound, constrain, unconstrain
from jaxgrip.fitting._bounds import names, place, position

BOUNDS = {
    "gear": {"springs": Bound([1.0, 2.0], 50.0)},
    "offset": Bound(-1.0, 3.0, scale="linear"),
    "stiffness": Bound(5.0, 500.0),
}


def test_the_middle_of_the_bounds_is_geometric_or_arithmetic():
    middle = constrain(BOUNDS, jnp.zeros(4))
    np.testing.assert_allclose(middle["stiffness"], 50.0, rtol=1e-14)
    np.testing.assert_allclose(middle["offset"], 1.0, rtol=1e-14)
    np.testing.assert_allclose(middle["gear"]["springs"], [50**0.5, 10.0], rtol=1e-14)


def test_numbers_without_bounds_and_parameters_are_inverse(key):
    x = 3 * jax.random.normal(key, (4,))
    np.testing.assert_allclose(unconstrain(BOUNDS, constrain(BOUNDS, x)), x, atol=1e-12)
    np.testing.assert_allclose(unconstrain(BOUNDS, jax.jit(constrain)(BOUNDS, x)), x, atol=1e-12)
    check_grads(jax.jit(lambda x: constrain(BOUNDS, x)), (x,), order=2)


def test_the_faces_of_the_cube_are_the_bounds():
    upper = place(BOUNDS, jnp.ones(4))
    np.testing.assert_allclose(upper["gear"]["springs"], 50.0, rtol=1e-14)
    np.testing.assert_array_equal(position(BOUNDS, upper), np.ones(4))


def test_every_scalar_has_a_name():
    assert names(BOUNDS) == ("gear.springs.0", "gear.springs.1", "offset", "stiffness")
    assert names(Bound(1.0, 2.0)) == ("parameter",)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Bound(2.0, 1.0), "must lie below the upper bound"),
        (lambda: Bound(-1.0, 1.0), 'needs it positive: pass scale="linear"'),
        (lambda: Bound(1.0, np.inf), "upper of a Bound is not finite"),
        (lambda: Bound(1.0, 2.0, scale="cubic"), 'it must be "log" or "linear"'),
        (lambda: unconstrain({"a": 3.0}, {"a": 3.0}), "a is 3.0; every leaf"),
        (lambda: unconstrain({}, {}), "bounds are empty"),
        (lambda: unconstrain({"a": Bound(1.0, 2.0)}, {"b": 1.5}), r"\['b'\].*\['a'\]"),
        (lambda: unconstrain({"a": Bound(1.0, 2.0)}, {"a": 2.5}), "a is 2.5; it must lie between"),
        (lambda: unconstrain({"a": Bound(1.0, 2.0)}, {"a": np.ones(2)}), r"shape \(2,\)"),
        (lambda: constrain({"a": Bound(1.0, 2.0)}, jnp.zeros(2)), r"must be \(1,\)"),
    ],
)
def test_bad_bounds_get_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
