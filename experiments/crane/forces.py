"""Bar forces of the reference crane under a hook load, its deflection and stability."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

from experiments.crane.luffing import ROPES, closed_form
from jaxgrip import viz
from jaxgrip.fem.structures import Inertia, NodalForce, buckling, second_order, solve
from jaxgrip.mechanism import Assembly, assemble
from jaxgrip.models.crane import RODS, crane_structure, reference_crane
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

# Values of an independent program, by statics: rope, rods, boom, mast [N] by boom angle [deg].
FORCES = {
    30: (163560.354, 491372.295, -188751.539, -557977.913),
    45: (120463.671, 398423.329, -168237.577, -425268.517),
    60: (79954.028, 279883.469, -148993.618, -280599.043),
    75: (40816.172, 143844.437, -128153.427, -133974.917),
}
NAMES = ("luffing rope", "rods", "boom", "mast")
HOOK = NodalForce("boom.tip", (0.0, 0.0, -100e3))


def study(run: Run, base: Assembly) -> None:
    """Forces without weight against statics, then weight, slewing, second order and buckling."""
    structure = crane_structure(base.system)

    @jax.jit
    def forces(structure, ropes: jax.Array) -> jax.Array:
        def one(rope: jax.Array) -> jax.Array:
            here = assemble(base.system, {"luffing rope": rope}, start=base.poses)
            found = solve(structure, here.poses, HOOK, throw=False)
            bars = [jnp.mean(found.part(name).beam_forces[:4, :, 0]) for name in NAMES[1:]]
            return jnp.stack([found.tie("luffing rope"), *bars])

        return jax.vmap(one)(ropes)

    found = np.asarray(forces(structure, jnp.array([ROPES[k] for k in FORCES])))
    for column, name in enumerate(NAMES):
        key = name.replace(" ", "_")
        run.add(
            f"force_of_{key}", list(found[:, column]), "N", [f[column] for f in FORCES.values()]
        )
    angles = np.array([30.0, 35, 40, 45, 50, 55, 60, 65, 70, 75])
    ropes = np.interp(angles, [*ROPES], [*ROPES.values()])
    many = np.asarray(forces(structure, jnp.asarray(ropes)))
    here = [
        assemble(base.system, {"luffing rope": r}, start=base).coordinate("boom hinge")
        for r in ropes
    ]
    x = np.rad2deg(np.array(here))
    run.figure(
        "forces",
        viz.curves(
            [
                Panel(
                    "boom angle [°]",
                    "tension [kN]",
                    [
                        *(Curve(name, x, many[:, k] / 1e3) for k, name in enumerate(NAMES)),
                        Curve(
                            "published",
                            np.repeat([*FORCES], len(NAMES)),
                            np.array([*FORCES.values()]).ravel() / 1e3,
                            points=True,
                        ),
                    ],
                )
            ],
            "Forces under 100 kN at the boom's tip, without weight (tension is positive)",
        ),
        "The flatter the boom, the larger the forces; they agree with statics.",
    )
    _stability(run, base, structure)
    _sensitivities(run, base)


def _stability(run: Run, base: Assembly, structure) -> None:
    loads = [Inertia(), HOOK]
    # For comparison; it neglects that tension carries the weight of the rods.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The linear displacements are off", UserWarning)
        linear = solve(structure, base.poses, loads)
    bent = second_order(structure, base.poses, loads)
    tip = structure.node("boom.tip")
    run.add("tip_moves_down", -linear.displacements[tip, 2], "m")
    run.add("tip_moves_down_second_order", -bent.displacements[tip, 2], "m")
    slewing = second_order(structure, base.poses, [Inertia(acceleration=0.05), HOOK])
    run.add("tip_moves_aside_while_slewing", slewing.displacements[tip, 1], "m")
    lost = buckling(structure, base.poses, loads, count=3)
    run.add("buckling_load_factors", [float(f) for f in lost.factors], "1")


def _sensitivities(run: Run, base: Assembly) -> None:
    """Derivatives of the rope's force with respect to the lengths of rope and members."""
    lengths = {"boom": 48.0, "mast": 30.0, "rods": float(RODS), "a_frame": 7.0}
    lengths = jax.tree.map(jnp.asarray, lengths)

    def rope_force(lengths: dict, rope: jax.Array) -> jax.Array:
        system = reference_crane(**lengths, rope=rope)
        here = assemble(system, start=base.poses)
        return solve(crane_structure(system), here.poses, HOOK, throw=False).tie("luffing rope")

    slopes = jax.jit(jax.vmap(jax.grad(rope_force, argnums=(0, 1)), in_axes=(None, 0)))
    ropes = np.sort([*np.linspace(ROPES[75], ROPES[30], 45), ROPES[60]])
    by_lengths, by_rope = slopes(lengths, jnp.asarray(ropes))
    angles = np.rad2deg(closed_form(ropes))
    at_60 = int(np.searchsorted(ropes, ROPES[60]))
    by_name = {"luffing rope": by_rope} | {k.replace("_", "-"): v for k, v in by_lengths.items()}
    for name, slope in by_name.items():
        key = name.replace(" ", "_").replace("-", "_")
        run.add(f"rope_force_by_length_of_{key}", slope[at_60], "N/m")
    run.figure(
        "force_sensitivities",
        viz.curves(
            [
                Panel(
                    "boom angle [°]",
                    "change of the force [kN per m]",
                    [Curve(name, angles, np.asarray(v) / 1e3) for name, v in by_name.items()],
                )
            ],
            "Change of the force of the luffing rope per metre of each member",
        ),
        "All other lengths are constant, so the boom rotates; derivatives through assembly and "
        "finite elements.",
    )
