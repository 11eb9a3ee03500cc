"""Load charts: the largest hook load by radius, for every variant and boom angle at once."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray

import jaxgrip as jg
from experiments.crane import variants
from experiments.crane.variants import Variant
from jaxgrip import viz
from jaxgrip.fem.structures import Inertia, NodalForce, centre_of_gravity, solve
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

# Examples: yield stress over safety [Pa], tipping edge [m], undercarriage [kg], safety [1].
STRESS = 355e6 / 1.5
EDGE = 4.5
UNDERCARRIAGE = 60e3
TIPPING_SAFETY = 1.4
GRAVITY = 9.81
LIMITS = ("strength", "tipping")


def capacity(variant: Variant, angles: jax.Array, start: jg.mechanism.Poses) -> dict:
    """Largest hook load [N] of one variant at boom angles (k,), and what limits it.

    Stresses are linear in the load while the same ropes are taut, so two loads determine all.
    """
    parts = variants.superelements(variant)

    def at(angle: jax.Array) -> dict:
        here = variants.assembled(variant, angle, start)
        found = [
            solve(
                parts,
                here.poses,
                [Inertia(), NodalForce("boom.tip", (0.0, 0.0, -force))],
                throw=False,
            )
            for force in (0.5 * variants.HOOK, variants.HOOK)
        ]
        stresses = [
            jnp.concatenate(
                [f.part(name).beam_stresses.ravel() for name in ("a-frame", "rods", "mast", "boom")]
            )
            for f in found
        ]
        slope = (stresses[1] - stresses[0]) / (0.5 * variants.HOOK)
        own = stresses[1] - slope * variants.HOOK
        room = jnp.where(slope > 0, STRESS - own, STRESS + own)
        strength = jnp.min(jnp.maximum(room, 0.0) / jnp.maximum(jnp.abs(slope), 1e-9))
        mass, centre = centre_of_gravity(parts.structure, here.poses)
        radius = here.point("boom.tip")[0]
        holding = GRAVITY * (mass * (EDGE - centre[0]) + UNDERCARRIAGE * EDGE)
        arm = TIPPING_SAFETY * jnp.maximum(radius - EDGE, 1e-3)
        tipping = jnp.maximum(holding, 0.0) / arm
        good = here.succeeded & found[0].succeeded & found[1].succeeded
        good = good & jnp.all(found[0].taut == found[1].taut)
        loads = jnp.stack([strength, tipping])
        return {
            "capacity": jnp.where(good, jnp.min(loads), jnp.nan),
            "limit": jnp.argmin(loads),
            "radius": radius,
            "rope": found[1].tie("luffing rope"),
            "stands": good,
        }

    return jax.vmap(at)(angles)


def study(run: Run, booms: int, masts: int, positions: int) -> None:
    """All variants at all angles, the load chart, and its table."""
    every = variants.catalogue(np.linspace(36.0, 60.0, booms), np.linspace(24.0, 33.0, masts))
    angles = jnp.deg2rad(jnp.linspace(30.0, 80.0, positions))
    start = jg.mechanism.assemble(jg.models.reference_crane()).poses

    # One variant after another with all its positions at once: all variants at once take more
    # memory and are no faster.
    chart = jax.jit(lambda all_: jax.lax.map(lambda one: capacity(one, angles, start), all_))
    found = jax.tree.map(np.asarray, chart(every))
    run.add("chart_points", found["capacity"].size, "1")
    run.add("chart_points_that_stand", int(found["stands"].sum()), "1")
    run.arrays(
        "chart",
        xarray.Dataset(
            {
                "capacity": (("variant", "angle"), found["capacity"], {"units": "N"}),
                "radius": (("variant", "angle"), found["radius"], {"units": "m"}),
                "rope": (("variant", "angle"), found["rope"], {"units": "N"}),
                "limit": (
                    ("variant", "angle"),
                    found["limit"],
                    {"units": "1", "meaning": "0 strength, 1 tipping"},
                ),
            },
            coords={
                "boom": ("variant", np.asarray(every.boom), {"units": "m"}),
                "mast": ("variant", np.asarray(every.mast), {"units": "m"}),
                "angle": ("angle", np.asarray(angles), {"units": "rad"}),
            },
        ),
    )
    # Some booms, all with the longest mast.
    chosen = [masts * k + masts - 1 for k in np.linspace(0, booms - 1, min(booms, 4)).astype(int)]
    curves = [
        Curve(
            f"boom {float(every.boom[v]):.0f} m",
            found["radius"][v],
            found["capacity"][v] / GRAVITY / 1e3,
        )
        for v in chosen
    ]
    run.figure(
        "load_chart",
        viz.curves(
            [Panel("radius of the hook [m]", "largest load [t]", curves)],
            f"Load chart: mast {float(every.mast[chosen[0]]):.0f} m, "
            f"counterweight {jg.models.crane.COUNTERWEIGHT / 1e3:.0f} t",
        ),
        "Largest hook load by radius, where the same ropes are taut under both loads of the "
        "analysis; sections, masses and safety factors are examples.",
    )
    for v in chosen:
        stands = found["stands"][v]
        if not stands.any():
            run.note(f"The boom of {float(every.boom[v]):.0f} m stands at none of the angles.")
            continue
        radius, load = found["radius"][v][stands], found["capacity"][v][stands]
        radii = np.linspace(radius.min(), radius.max(), 6)[1:-1]
        order = np.argsort(radius)
        name = f"boom_{float(every.boom[v]):.0f}m"
        run.add(f"{name}_radius", radii, "m")
        run.add(f"{name}_largest_load", np.interp(radii, radius[order], load[order]), "N")
