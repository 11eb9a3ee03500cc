"""The two-finger gripper; SI units, but angles in degrees."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import brief, positive
from jaxgrip.rigid import Tree
from jaxgrip.rigid.builders import GRAVITY, DHRow, from_dh

LINK_LENGTHS = (0.02, 0.06, 0.07)
BASE_HEIGHT = 0.02
MASSES = (0.08, 0.16, 0.20)
INERTIAS = (
    (1.0e-6, 19 / 6 * 1e-6, 19 / 6 * 1e-6),
    (2.0e-6, 4.9e-5, 4.9e-5),
    (2.5e-6, 995 / 12 * 1e-6, 995 / 12 * 1e-6),
)
FINGERS = {
    "A": {
        "torque_limits": (0.25, 0.50, 0.40),
        "position_limits_deg": ((-90.0, 90.0), (-90.0, 10.0), (-170.0, 0.0)),
        "start_deg": (0.0, -20.0, -30.0),
        "end_deg": (80.0, -65.0, -60.0),
    },
    "B": {
        "torque_limits": (0.20, 0.47, 0.35),
        "position_limits_deg": ((-270.0, -90.0), (-90.0, 10.0), (-170.0, 0.0)),
        "start_deg": (-180.0, -35.0, -25.0),
        "end_deg": (-100.0, -65.0, -60.0),
    },
}
VELOCITY_LIMIT = 65.0


class Finger(eqx.Module):
    """One finger of the gripper with its limits and the boundary values of the examples.

    **Fields:** `tree`, 3 revolute joints; `torque_limit` (3,) [N m]; `position_limits` (3, 2)
    [rad]; `velocity_limit` (3,) [rad/s]; `start` and `end` (3,) joint angles [rad]; `tip` (3,)
    finger tip in the frame of the last body [m]; `link_lengths` (3,) [m].

    Source: Schanzer 2007, eq. 1.2-1.6, tables 1.1 and 1.2, pp. 5-8.
    """

    tree: Tree
    torque_limit: Float[Array, "3"]
    position_limits: Float[Array, "3 2"]
    velocity_limit: Float[Array, "3"]
    start: Float[Array, "3"]
    end: Float[Array, "3"]
    tip: Float[Array, "3"]
    link_lengths: Float[Array, "3"]


def gripper_finger(
    finger: str,
    *,
    link_lengths: ArrayLike | Sequence = LINK_LENGTHS,
    base_height: ArrayLike = BASE_HEIGHT,
    masses: ArrayLike | Sequence = MASSES,
    inertias: ArrayLike | Sequence = INERTIAS,
    torque_limit: ArrayLike | Sequence | None = None,
    gravity: ArrayLike | Sequence = GRAVITY,
) -> Finger:
    """Finger "A" or "B" of the gripper; every number may be replaced, also by a traced one.

    The centre of mass stays at the middle of each link; inertias do not scale with the lengths.

    **Arguments:**

    - `finger`: "A" or "B".
    - `link_lengths`: (3,) [m].
    - `base_height`: scalar, height of the second joint over the base [m].
    - `masses`: (3,) [kg].
    - `inertias`: (3, 3), a row of principal values about the centre of mass per link [kg m^2].
    - `torque_limit`: (3,) [N m]; the published one when None.
    - `gravity`: (3,) in the base frame [m/s^2].

    **Returns:** the `Finger`.

    **Raises:** `ValueError` for an unknown name, wrong shapes and impossible numbers.

    Source: Schanzer 2007, eq. 1.2-1.6, tables 1.1 and 1.2, pp. 5-8.
    """
    if finger not in FINGERS:
        raise ValueError(
            f"There is no finger {brief(finger)}; the gripper has fingers 'A' and 'B'."
        )
    data = FINGERS[finger]
    lengths = positive("link_lengths of the gripper", link_lengths, (3,))
    torque = data["torque_limits"] if torque_limit is None else torque_limit
    # Names are static: the same ones for both fingers avoid a second compilation.
    rows = _rows(1, lengths, base_height, masses, inertias)
    limits, start, end = (
        jnp.asarray(np.deg2rad(data[key]))
        for key in ("position_limits_deg", "start_deg", "end_deg")
    )
    return Finger(
        tree=from_dh(rows, gravity),
        torque_limit=positive("torque_limit of the gripper", torque, (3,)),
        position_limits=limits,
        velocity_limit=jnp.full(3, VELOCITY_LIMIT),
        start=start,
        end=end,
        tip=jnp.stack([lengths[2], jnp.zeros_like(lengths[2]), jnp.zeros_like(lengths[2])]),
        link_lengths=lengths,
    )


def two_finger_gripper(
    *,
    link_lengths: ArrayLike | Sequence = LINK_LENGTHS,
    base_height: ArrayLike = BASE_HEIGHT,
    masses: ArrayLike | Sequence = MASSES,
    inertias: ArrayLike | Sequence = INERTIAS,
    gravity: ArrayLike | Sequence = GRAVITY,
) -> Tree:
    """Both fingers on one base, 6 joints: finger A is bodies 1 to 3, finger B bodies 4 to 6.

    **Arguments:** as for `gripper_finger`, for both fingers.

    **Returns:** the `Tree`, bodies "link1" to "link6".

    **Raises:** `ValueError` for wrong shapes and impossible numbers.

    Source: Schanzer 2007, tables 1.1, 1.2 and 2.2, pp. 5-8, 23-24; own choice of the same base
    frame for both fingers.
    """
    lengths = positive("link_lengths of the gripper", link_lengths, (3,))
    numbers = (lengths, base_height, masses, inertias)
    return from_dh([*_rows(1, *numbers), *_rows(4, *numbers)], gravity)


def _rows(
    first: int,
    lengths: Array,
    base_height: ArrayLike,
    masses: ArrayLike | Sequence,
    inertias: ArrayLike | Sequence,
) -> list[DHRow]:
    mass = positive("masses of the gripper", masses, (3,))
    inertia = positive("inertias of the gripper", inertias, (3, 3))
    a = (0.0, lengths[0], lengths[1])
    alpha = (0.0, -np.pi / 2, 0.0)
    d = (base_height, 0.0, 0.0)
    names = [f"link{first + k}" for k in range(3)]
    return [
        DHRow(
            name=names[k],
            parent=names[k - 1] if k else None,
            a=a[k],
            alpha=alpha[k],
            d=d[k],
            mass=mass[k],
            com=jnp.stack([lengths[k] / 2, jnp.zeros_like(mass[k]), jnp.zeros_like(mass[k])]),
            inertia=inertia[k],
        )
        for k in range(3)
    ]
