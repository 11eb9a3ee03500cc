"""Unit quaternions from three angles, for input only: as unknowns the angles are singular."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.spatial import quaternions


def from_euler(angles: Float[Array, "3"]) -> Float[Array, "4"]:
    """Quaternion (4,) of rotations (3,) [rad] about z, then the new x, then the new z.

    Source: Webhofer 2005, section 3.1.3, pp. 18-22.
    """
    return _turns(angles, (2, 0, 2))


def from_cardan(angles: Float[Array, "3"]) -> Float[Array, "4"]:
    """Quaternion (4,) of rotations (3,) [rad] about the fixed axes x, then y, then z: T_γ T_β T_α.

    Source: Webhofer 2005, section 3.1.3, pp. 18-22.
    """
    return _turns(angles[::-1], (2, 1, 0))


def _turns(angles: Float[Array, "3"], axes: tuple[int, int, int]) -> Float[Array, "4"]:
    turns = jnp.diag(angles) @ jnp.eye(3, dtype=angles.dtype)[jnp.array(axes)]
    first, second, third = map(quaternions.exponential, turns)
    return quaternions.product(quaternions.product(first, second), third)
