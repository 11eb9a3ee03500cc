"""The crawler crane of 002 section 5.3, whose geometry is the specification's."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from jaxgrip.assembly import Connection, Part, System
from jaxgrip.joints import Angle, Ball, Clamp, Distance, Hinge, Sleeve

RODS = 23.129085048829175
SUPERSTRUCTURE = (0.0, 0.0, 1.5)
PIVOTS = {
    "boom foot": (1.5, 0.0, 1.0),
    "mast foot": (0.5, 0.0, 1.0),
    "a-frame foot": (-3.0, 0.0, 1.0),
}


def reference_crane(
    *,
    boom: ArrayLike = 48.0,
    mast: ArrayLike = 30.0,
    a_frame: ArrayLike = 7.0,
    rods: ArrayLike = RODS,
    slew: ArrayLike = 0.0,
    a_frame_angle: ArrayLike = 5 * np.pi / 6,
    rope: ArrayLike = 42.930175867,
) -> System:
    """Crane with boom, mast, A-frame and the rods between the latter two: 36 equations.

    Drives are `"slew"` [rad], `"a-frame angle"` [rad] and `"luffing rope"` [m]. x is forward, z
    up; angles of boom, mast and A-frame count from forward upward. The parts start where the
    boom is at 60 degrees.

    **Arguments:** lengths of `boom`, `mast`, `a_frame`, `rods` and `rope` [m]; angles [rad].

    **Returns:** `System`.

    Source: 002 section 5.3.
    """

    def pin(x: ArrayLike, z: float = 0.0) -> jnp.ndarray:
        """Axis across, from left to right, and a direction forward."""
        middle = jnp.stack([jnp.asarray(x, float), jnp.zeros(()), jnp.asarray(z)])
        return middle[None] + jnp.array([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [1.0, 1.0, 0.0]])

    def centre(x: ArrayLike) -> jnp.ndarray:
        return jnp.stack([jnp.asarray(x, float), jnp.zeros(()), jnp.zeros(())])[None]

    def pitched(angle_deg: float) -> tuple[float, ...]:
        half = np.deg2rad(angle_deg) / 2
        return (np.cos(half), 0.0, -np.sin(half), 0.0)

    foot = {name: np.add(SUPERSTRUCTURE, place) for name, place in PIVOTS.items()}
    tip = foot["a-frame foot"] + 7.0 * np.array([-np.sqrt(0.75), 0.0, 0.5])
    ring = jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    parts = [
        Part("undercarriage", {"slewing ring": ring + jnp.array([[0.0, 0.0, 1.5]])}),
        Part(
            "superstructure",
            {"slewing ring": ring} | {name: pin(x, z) for name, (x, _, z) in PIVOTS.items()},
            position=SUPERSTRUCTURE,
        ),
        Part(
            "a-frame",
            {"foot": pin(0.0), "tip": centre(a_frame)},
            position=foot["a-frame foot"],
            quaternion=pitched(150.0),
        ),
        Part(
            "rods",
            {"a-frame end": centre(0.0), "mast end": pin(rods)},
            position=tip,
            quaternion=pitched(76.4),
        ),
        Part(
            "mast",
            {"foot": pin(0.0), "tip": pin(mast), "rope": centre(mast)},
            position=foot["mast foot"],
            quaternion=pitched(120.0),
        ),
        Part(
            "boom",
            {"foot": pin(0.0), "tip": centre(boom)},
            position=foot["boom foot"],
            quaternion=pitched(60.0),
        ),
    ]
    connections = [
        Connection("anchor", Clamp(), "undercarriage"),
        Connection("ring", Hinge(), "undercarriage.slewing ring", "superstructure.slewing ring"),
        Connection(
            "slew", Angle(slew), "undercarriage.slewing ring", "superstructure.slewing ring"
        ),
        Connection("a-frame hinge", Hinge(), "superstructure.a-frame foot", "a-frame.foot"),
        Connection(
            "a-frame angle", Angle(a_frame_angle), "superstructure.a-frame foot", "a-frame.foot"
        ),
        Connection("rods at a-frame", Ball(), "a-frame.tip", "rods.a-frame end"),
        Connection("rods at mast", Sleeve(), "mast.tip", "rods.mast end"),
        Connection("mast hinge", Hinge(), "superstructure.mast foot", "mast.foot"),
        Connection("boom hinge", Hinge(), "superstructure.boom foot", "boom.foot"),
        Connection("luffing rope", Distance(rope), "mast.rope", "boom.tip"),
    ]
    return System(parts, connections)
