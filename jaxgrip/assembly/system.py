"""What is assembled: parts with attachments, and the joints between these."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.joints import Gear, Joint

GROUND = "ground"


class Part(eqx.Module):
    """A rigid part, its attachments, and roughly where it is.

    **Arguments:**

    - `name`: without a dot.
    - `attachments`: by name, (k, 3) points in the frame of the part [m]. One point is a place;
      two are an axis from the first to the second; a third gives a direction across it.
    - `position`: (3,) of the part's frame before assembly [m].
    - `quaternion`: (4,) of the part's frame before assembly, scalar first, of any length.

    **Raises:** `ValueError` naming part and attachment when points are ill-shaped, not finite,
    coincide or lie on a line, or the quaternion is zero.

    Source: 002 sections 2.2, 2.3.
    """

    name: str = eqx.field(static=True)
    attachments: dict[str, Float[Array, "k 3"]]
    position: Float[Array, "3"]
    quaternion: Float[Array, "4"]

    def __init__(
        self,
        name: str,
        attachments: Mapping[str, object],
        position=(0.0, 0.0, 0.0),
        quaternion=(1.0, 0.0, 0.0, 0.0),
    ):
        self.name = name
        self.attachments = {
            key: _points(f"Attachment {key!r} of part {name!r}", points)
            for key, points in attachments.items()
        }
        self.position = numbers(f"The position of part {name!r}", position, (3,))
        q = numbers(f"The quaternion of part {name!r}", quaternion, (4,))
        if concrete(q) and not np.any(np.asarray(q)):
            raise ValueError(f"The quaternion of part {name!r} is zero; (1, 0, 0, 0) is no turn.")
        self.quaternion = q / jnp.linalg.norm(q)


class Connection(eqx.Module):
    """A joint between two attachments, each `"part.attachment"`, or `"ground.attachment"`.

    A `Clamp` has one part's name as `first` and no `second`. A `Gear` has the names of two other
    connections.

    **Arguments:** `name`; `joint`; `first`; `second`.
    """

    name: str = eqx.field(static=True)
    joint: Joint | Gear
    first: str = eqx.field(static=True)
    second: str | None = eqx.field(static=True, default=None)


def _points(name: str, value: object) -> Float[Array, "k 3"]:
    points = numbers(name, value, (1, 3), (2, 3), (3, 3))
    if not concrete(points):
        return points
    way = np.asarray(points)[1:] - np.asarray(points)[:1]
    size = np.linalg.norm(way, axis=1)
    if np.any(size == 0) or (len(way) == 2 and np.array_equal(way[0], way[1])):
        raise ValueError(f"{name} has points that coincide; an axis needs two that differ.")
    if len(way) == 2 and np.linalg.norm(np.cross(*way)) < 1e-9 * size.prod():
        raise ValueError(f"{name} has three points on a line; the third must be beside it.")
    return points
