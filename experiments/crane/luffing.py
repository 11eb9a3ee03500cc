"""The crane's positions over its luffing range, against their closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray

import jaxgrip as jg
from jaxgrip import viz
from jaxgrip.mechanism import Assembly, System, assemble
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

# Values of an independent program: boom angle [deg] by length of the luffing rope [m].
ROPES = {30: 57.603284965, 45: 50.571567121, 60: 42.930175867, 75: 34.976836600, 82: 31.287212201}
GRADIENT = {"a-frame angle": 0.59507666, "luffing rope": -0.03549195, "slew": 0.0}
# Steepest first; the last is nearly flat.
RANGE = (31.287212201, 62.0)


def closed_form(rope: np.ndarray) -> np.ndarray:
    """Boom angle [rad] by the length of the rope, from two triangles, at an A-frame of 150°."""
    foot, boom, mast = np.array([1.5, 2.5]), 48.0, 30.0
    tip = np.array([0.5, 2.5]) + mast * np.array([-0.5, np.sqrt(0.75)])
    line = tip - foot
    c = np.hypot(*line)
    return np.arctan2(line[1], line[0]) - np.arccos((boom**2 + c**2 - rope**2) / (2 * boom * c))


def boom_angle(system: System, parameters: dict, start: jg.mechanism.Poses) -> jax.Array:
    """Boom angle [rad] where the drives have given values."""
    return assemble(system, parameters, start=start).coordinate("boom hinge")


def positions(run: Run, count: int) -> Assembly:
    """Assemble `count` positions at once; the crane at 60 degrees."""
    system = jg.models.reference_crane()
    base = assemble(system)
    ropes = jnp.linspace(*RANGE, count)

    @jax.jit
    def many(system: System, ropes: jax.Array) -> tuple:
        def one(rope: jax.Array) -> tuple:
            here = assemble(system, {"luffing rope": rope}, start=base)
            lines = jg.mechanism.outline(system, here.poses) | jg.mechanism.spans(
                system, here.poses
            )
            return here, here.coordinate("boom hinge"), lines

        return jax.vmap(one)(ropes)

    here, angles, lines = many(system, ropes)
    run.add("positions_assembled", int(here.succeeded.sum()), "1", count)
    run.add("largest_miss_of_the_joints", float(jnp.abs(here.residual).max()), "m")
    error = np.abs(np.asarray(angles) - closed_form(np.asarray(ropes))).max()
    run.add("boom_angle_off_closed_form", error, "rad")
    known = many(system, jnp.asarray(list(ROPES.values())))[1]
    run.add("boom_angle", list(np.rad2deg(known)), "deg", [float(angle) for angle in ROPES])
    outline = {
        name: xarray.DataArray(np.asarray(line), dims=("step", "point", "axis"))
        for name, line in lines.items()
    }
    path = xarray.DataArray(np.asarray(lines["boom"][:, -1]), dims=("step", "axis"))
    middle = int(np.argmin(np.abs(np.asarray(ropes) - ROPES[60])))
    drawn = {name: line for name, line in outline.items() if name != "undercarriage"}
    run.figure(
        "positions",
        viz.linkage(
            drawn,
            "Crawler crane: boom at 60°, and between 82° and 20°",
            cables=("luffing rope",),
            step=middle,
            paths={"path of the boom's tip": path},
        ),
        "The length of the luffing rope alone moves the boom; mast, rods and A-frame stand still.",
    )
    some = np.linspace(0, count - 1, 60).round().astype(int)
    run.animation(
        "luffing",
        viz.animate_linkage(
            {name: line.isel(step=some) for name, line in drawn.items()},
            "Luffing the boom",
            cables=("luffing rope",),
            captions=[f"rope {ropes[k]:5.1f} m, boom {np.rad2deg(angles[k]):4.1f}°" for k in some],
        ),
        "The boom comes down while the luffing rope is paid out.",
    )
    slope = jax.jit(
        jax.vmap(jax.grad(lambda r: boom_angle(system, {"luffing rope": r}, base.poses)))
    )(ropes)
    run.figure(
        "rope",
        viz.curves(
            [
                Panel(
                    "length of the luffing rope [m]",
                    "boom angle [°]",
                    [
                        Curve("assembled", np.asarray(ropes), np.rad2deg(angles)),
                        Curve("published", list(ROPES.values()), list(ROPES), points=True),
                    ],
                ),
                Panel(
                    "length of the luffing rope [m]",
                    "slope [° per m]",
                    [Curve("assembled", np.asarray(ropes), np.rad2deg(slope))],
                ),
            ],
            "Boom angle by length of the luffing rope, and its derivative",
        ),
        "Derivatives are of the solution, not of the iterations.",
    )
    return base


def sensitivities(run: Run, base: Assembly) -> None:
    """Derivatives of the boom angle at 45 degrees with respect to drives and lengths."""
    drives = {**base.system.parameters, "luffing rope": jnp.asarray(ROPES[45])}
    slopes = jax.grad(lambda p: boom_angle(base.system, p, base.poses))(drives)
    run.add("boom_angle_by_a_frame_angle", slopes["a-frame angle"], "1", GRADIENT["a-frame angle"])
    run.add("boom_angle_by_rope", slopes["luffing rope"], "rad/m", GRADIENT["luffing rope"])
    run.add("boom_angle_by_slew", slopes["slew"], "1", GRADIENT["slew"])

    def by_lengths(lengths: dict) -> jax.Array:
        system = jg.models.reference_crane(**lengths, rope=ROPES[45])
        return assemble(system, start=base.poses).coordinate("boom hinge")

    names = {"boom": 48.0, "mast": 30.0, "a_frame": 7.0, "rods": float(jg.models.crane.RODS)}
    slopes = jax.jit(jax.grad(by_lengths))({k: jnp.asarray(v) for k, v in names.items()})
    for name, slope in slopes.items():
        run.add(f"boom_angle_by_length_of_{name}", slope, "rad/m")
