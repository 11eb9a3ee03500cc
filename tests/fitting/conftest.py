import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.fitting import Bound

TRUE = {"coulomb": 0.1, "inertia": 0.03, "torque": 1.8, "viscous": 0.08}


def swing(parameters, duty):
    """Angles of a damped, driven pendulum with smooth friction: (runs, samples)."""
    h = 0.02

    def step(state, u):
        q, w = state
        friction = parameters["viscous"] * w + parameters["coulomb"] * jnp.tanh(w / 0.3)
        torque = parameters["torque"] * u - jnp.sin(q) - friction
        w = w + h * torque / parameters["inertia"]
        return (q + h * w, w), q + h * w

    zero = jnp.zeros(duty.shape[0])
    return jax.lax.scan(step, (zero, zero), duty.T)[1].T


def residuals(parameters, duty, angle):
    return swing(parameters, duty) - angle


@pytest.fixture(scope="package")
def true():
    return TRUE


@pytest.fixture(scope="package")
def swing_residuals():
    return residuals


@pytest.fixture(scope="package")
def bounds():
    return {name: Bound(x / 8, x * 8) for name, x in TRUE.items()}


@pytest.fixture(scope="package")
def duty():
    t = np.arange(300) * 0.02
    return 0.35 * np.stack([np.sin(3.0 * t), np.sin(1.3 * t) + 0.5 * np.sin(4.0 * t)])


@pytest.fixture(scope="package")
def angle(duty):
    true = {name: jnp.asarray(x) for name, x in TRUE.items()}
    return np.asarray(swing(true, jnp.asarray(duty)))
