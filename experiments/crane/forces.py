"""Bar forces of the reference crane under a hook load, its deflection and stability."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.crane.luffing import ROPES
from jaxgrip import viz
from jaxgrip.assembly import Assembly, assemble
from jaxgrip.models.crane import crane_structure
from jaxgrip.report import Run
from jaxgrip.structures import Inertia, NodalForce, buckling, second_order, solve
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
        "The flatter the boom, the larger the forces; they are those of statics.",
    )
    _stability(run, base, structure)


def _stability(run: Run, base: Assembly, structure) -> None:
    loads = [Inertia(), HOOK]
    linear = solve(structure, base.poses, loads)
    bent = second_order(structure, base.poses, loads)
    tip = structure.node("boom.tip")
    run.add("tip_moves_down", -linear.displacements[tip, 2], "m")
    run.add("tip_moves_down_second_order", -bent.displacements[tip, 2], "m")
    slewing = solve(structure, base.poses, [Inertia(acceleration=0.05), HOOK])
    run.add("tip_moves_aside_while_slewing", slewing.displacements[tip, 1], "m")
    lost = buckling(structure, base.poses, loads, count=3)
    run.add("buckling_load_factors", [float(f) for f in lost.factors], "1")
    pulled = jax.grad(
        lambda length: solve(
            crane_structure(base.system),
            assemble(base.system, {"luffing rope": length}, start=base.poses).poses,
            HOOK,
            throw=False,
        ).tie("luffing rope")
    )(jnp.asarray(ROPES[60]))
    run.add("rope_force_by_its_length", pulled, "N/m")
