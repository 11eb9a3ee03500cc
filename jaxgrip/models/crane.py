"""A crawler crane with superlift mast, after Webhofer 2005, section 7.1."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from jaxgrip.fem import BeamSection, Isotropic
from jaxgrip.fem.structures import Beams, FramePart, PointMasses, RigidLinks, Rope, Structure, Tie
from jaxgrip.joints import Angle, Ball, Clamp, Distance, Hinge, Sleeve
from jaxgrip.mechanism import Connection, Part, System

RODS = 23.129085048829175
SUPERSTRUCTURE = (0.0, 0.0, 1.5)
# Example values, not of a real crane: area [m^2], second moments and torsion constant [m^4], half
# depth [m]; lattices as equivalent steel beams.
SECTIONS = {
    "a-frame": (0.03, 2e-3, 2e-3, 1e-3, 0.4),
    "rods": (0.012, 2e-5, 2e-5, 2e-5, 0.05),
    "mast": (0.02, 1e-2, 1e-2, 6e-3, 0.7),
    "boom": (0.028, 2.2e-2, 2.2e-2, 1.2e-2, 0.9),
}
LUFFING_ROPE = {"EA": 8e8, "mass_per_length": 60.0}
PULL_DOWN = {"EA": 2e9, "mass_per_length": 100.0}
STEEL = 7850.0
COUNTERWEIGHT = 250e3
# Extent of the counterweight, a box of this size [m].
COUNTERWEIGHT_SIZE = (3.0, 6.0, 2.0)
COUNTERWEIGHT_PLACE = (-6.0, 0.0, 1.0)
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
    """Crane with boom, mast, A-frame and rods between mast and A-frame: 36 equations.

    Drives are `"slew"` [rad], `"a-frame angle"` [rad] and `"luffing rope"` [m]. x is forward, z
    up; angles of boom, mast and A-frame are measured from x towards z. The parts start with the
    boom at 60 degrees. Masses are those of the sections and the counterweight.

    **Arguments:** lengths of `boom`, `mast`, `a_frame`, `rods` and `rope` [m]; angles [rad].

    **Returns:** `System`.

    Source: Webhofer 2005, section 7.1, pp. 107-109, for the machine; own choice of the geometry.
    """

    def pin(x: ArrayLike, z: float = 0.0) -> jnp.ndarray:
        """Two points on a lateral axis from left to right, and one forward."""
        middle = jnp.stack([jnp.asarray(x, float), jnp.zeros(()), jnp.asarray(z)])
        return middle[None] + jnp.array([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [1.0, 1.0, 0.0]])

    def centre(x: ArrayLike) -> jnp.ndarray:
        return jnp.stack([jnp.asarray(x, float), jnp.zeros(()), jnp.zeros(())])[None]

    def bar(name: str, length: ArrayLike) -> dict[str, jnp.ndarray]:
        """Mass, centre of mass and inertia of a steel beam along x."""
        area, *second, _, _ = SECTIONS[name]
        length = jnp.asarray(length, float)
        mass = STEEL * area * length
        about = STEEL * length * jnp.array([sum(second), *second])
        across = mass * length**2 / 12
        inertia = about + jnp.stack([jnp.zeros(()), across, across])
        return {"mass": mass, "com": centre(length / 2)[0], "inertia": inertia}

    def pitched(angle_deg: float) -> tuple[float, ...]:
        half = np.deg2rad(angle_deg) / 2
        return (np.cos(half), 0.0, -np.sin(half), 0.0)

    foot = {name: np.add(SUPERSTRUCTURE, pivot) for name, pivot in PIVOTS.items()}
    tip = foot["a-frame foot"] + 7.0 * np.array([-np.sqrt(0.75), 0.0, 0.5])
    ring = jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    box = np.square(COUNTERWEIGHT_SIZE)
    parts = [
        Part("undercarriage", {"slewing ring": ring + jnp.array([[0.0, 0.0, 1.5]])}),
        Part(
            "superstructure",
            {"slewing ring": ring} | {name: pin(x, z) for name, (x, _, z) in PIVOTS.items()},
            position=SUPERSTRUCTURE,
            mass=COUNTERWEIGHT,
            com=COUNTERWEIGHT_PLACE,
            inertia=COUNTERWEIGHT / 12 * (np.sum(box) - box),
        ),
        Part(
            "a-frame",
            {"foot": pin(0.0), "tip": centre(a_frame)},
            position=foot["a-frame foot"],
            quaternion=pitched(150.0),
            **bar("a-frame", a_frame),
        ),
        Part(
            "rods",
            {"a-frame end": centre(0.0), "mast end": pin(rods)},
            position=tip,
            quaternion=pitched(76.4),
            **bar("rods", rods),
        ),
        Part(
            "mast",
            {"foot": pin(0.0), "tip": pin(mast), "rope": centre(mast)},
            position=foot["mast foot"],
            quaternion=pitched(120.0),
            **bar("mast", mast),
        ),
        Part(
            "boom",
            {"foot": pin(0.0), "tip": centre(boom)},
            position=foot["boom foot"],
            quaternion=pitched(60.0),
            **bar("boom", boom),
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


def crane_structure(
    system: System,
    *,
    elements: dict[str, int] | None = None,
    counterweight: ArrayLike = COUNTERWEIGHT,
) -> Structure:
    """Finite-element model of the reference crane: beams, ropes and a rigid superstructure.

    The luffing drive and the pull-down of the A-frame are ropes; the slewing drive is locked.
    Sections and masses are examples.

    **Arguments:** `system`, from `reference_crane`; `elements`, part name to number of elements
    along it; `counterweight` [kg] on the superstructure.

    **Returns:** `Structure`.

    Source: own choice.
    """
    count = {"a-frame": 6, "rods": 4, "mast": 12, "boom": 20} | (elements or {})
    parts = {part.name: part.attachments for part in system.parts}
    upper = parts["superstructure"]
    nodes = jnp.concatenate(
        [upper["slewing ring"][:2]]
        + [upper[name][:2] for name in PIVOTS]
        + [jnp.asarray(COUNTERWEIGHT_PLACE)[None]]
    )
    last = len(nodes) - 1
    frames = {
        "superstructure": FramePart(
            nodes,
            [
                RigidLinks([(0, k) for k in range(1, last + 1)]),
                PointMasses([last], counterweight),
            ],
            {"slewing ring": (0, 1)}
            | {name: (2 + 2 * k, 3 + 2 * k) for k, name in enumerate(PIVOTS)},
        ),
        "a-frame": _column("a-frame", parts, ("foot",), "tip", count),
        "rods": _column("rods", parts, ("mast end",), "a-frame end", count),
        "mast": _column("mast", parts, ("foot", "tip"), None, count),
        "boom": _column("boom", parts, ("foot",), "tip", count),
    }
    return Structure(
        system,
        frames,
        transfer={"slew": "lock", "luffing rope": Rope(**LUFFING_ROPE)},
        ties={"pull-down": Tie(Rope(**PULL_DOWN), "a-frame.tip", ("superstructure", last))},
    )


def _column(
    name: str, parts: dict, pins: tuple[str, ...], end: str | None, count: dict[str, int]
) -> FramePart:
    """Beams from between the first pins to between the second ones, or to a single node."""
    area, iy, iz, j, reach = SECTIONS[name]
    steel = Isotropic(210e9, 0.3, 7850.0)
    section = BeamSection(steel, A=area, Iy=iy, Iz=iz, J=j)
    across = BeamSection(steel, A=area, Iy=iy, Iz=iz, J=j, orientation=(0.0, 0.0, 1.0))
    points = [parts[name][pin][:2] for pin in pins]
    first = points[0].mean(axis=0)
    last = points[1].mean(axis=0) if end is None else parts[name][end][0]
    share = jnp.linspace(0.0, 1.0, count[name] + 1)[:, None]
    middle = first[None] + share * (last - first)[None]
    n = len(middle)
    along = [(k, k + 1) for k in range(n - 1)]
    arms = [
        (foot, n + 2 * k + side)
        for k, foot in enumerate((0, n - 1)[: len(pins)])
        for side in (0, 1)
    ]
    return FramePart(
        jnp.concatenate([middle, *points]),
        [Beams(along, section, reach=reach), Beams(arms, across, reach=reach)],
        {pin: (n + 2 * k, n + 2 * k + 1) for k, pin in enumerate(pins)}
        | {other: (n - 1,) for other in parts[name] if other not in pins},
    )
