"""Mechanisms with closed loops in motion: Andrews' squeezer, energies, a gripper, rods."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import xarray

import jaxgrip as jg
from jaxgrip import viz
from jaxgrip.mechanism import loops
from jaxgrip.mechanism.historical.rod import Rod, rod_block, rod_energy
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

# Test Set for Initial Value Problem Solvers, problem andrews, at t = 0.03 s.
SQUEEZER = {
    "beta": 15.81077119629904,
    "Theta": -15.75637105984298,
    "gamma": 0.04082224013073101,
    "Phi": -0.5347301163226948,
    "delta": 0.5244099658805304,
    "Omega": 0.5347301163226948,
    "epsilon": 1.048080741042263,
}
_ORDER = ("beta", "Theta", "gamma", "delta", "Phi", "epsilon", "Omega")
_WORDS = {
    "beta": "crank K1",
    "Theta": "rod K2, against the crank",
    "gamma": "arm K3",
    "delta": "rod K5",
    "epsilon": "rod K7",
}


def squeezer(run: Run) -> None:
    """Andrews' squeezer over 0.03 s, against the reference solution."""
    model = jg.models.andrews_squeezer()
    times = jnp.linspace(0.0, 0.03, 601)
    motion = loops.simulate(
        model.mechanism, model.start, jnp.zeros(7), times, model.torque, rtol=1e-12, atol=1e-12
    )
    found = dict(zip(_ORDER, np.asarray(motion.q[-1]), strict=True))
    run.add("squeezer_angles", [found[name] for name in SQUEEZER], "rad", [*SQUEEZER.values()])
    run.add("squeezer_violation", float(jnp.abs(motion.gap).max()), "m")
    error = max(abs(found[name] - value) for name, value in SQUEEZER.items())
    run.add("squeezer_largest_error", error, "rad")
    milliseconds = 1e3 * np.asarray(times)
    run.figure(
        "squeezer_angles",
        viz.curves(
            [
                Panel(
                    "time [ms]",
                    "angle [rad]",
                    [
                        Curve(_WORDS[_ORDER[k]], milliseconds, np.asarray(motion.q[:, k]))
                        for k in group
                    ],
                )
                for group in ((0, 1), (2, 3, 5))
            ],
            "Andrews' squeezer: the crank makes two and a half revolutions in 30 ms",
        ),
        "Angles over time; at the end they agree with the reference solution.",
    )
    arms = [("K3", at) for at in ((0, 0, 0), (0.0, -0.035, 0.0), (0.02, -0.018, 0.0))]
    lines = {"K3": _points(model.mechanism, motion.q, arms)}
    lines["crank K1"] = _points(model.mechanism, motion.q, [("K1", (0, 0, 0)), ("K2", (0, 0, 0))])
    lines["rod K2"] = _points(
        model.mechanism, motion.q, [("K2", (0, 0, 0)), ("K2", (-0.028, 0.0, 0.0))]
    )
    for name, feet in (("K4", ("K5", "K4")), ("K6", ("K7", "K6"))):
        end = (0.0, -0.02, 0.0) if name == "K4" else (0.02, 0.0, 0.0)
        lines[f"{feet[0]} and {name}"] = _points(
            model.mechanism, motion.q, [(feet[0], (0, 0, 0)), (name, (0, 0, 0)), (name, end)]
        )
    pin = lines["rod K2"].isel(point=1)
    run.figure(
        "squeezer",
        viz.linkage(
            lines,
            "Andrews' squeezer at its start, and later",
            plane="xy",
            step=0,
            paths={"path of the pin that joins four bodies": pin},
        ),
        "Seven bodies and three loops, closed to rounding at all times.",
    )
    run.animation(
        "squeezer",
        viz.animate_linkage(
            {name: line[::6] for name, line in lines.items()},
            "Andrews' squeezer",
            plane="xy",
            captions=[f"t = {t:4.1f} ms" for t in milliseconds[::6]],
            seconds=6.0,
        ),
        "30 ms in slow motion.",
    )


def energies(run: Run) -> None:
    """Energy of a four-bar and a slider-crank in ten seconds of free motion."""
    times = jnp.linspace(0.0, 10.0, 1001)
    drifts = []
    for name, model in (
        ("four-bar", jg.models.four_bar()),
        ("slider-crank", jg.models.slider_crank()),
    ):
        mechanism = model.mechanism
        qd = loops.consistent_velocity(
            mechanism, model.start, jnp.zeros(mechanism.n), {"crank": 2.0}
        )
        motion = loops.simulate(mechanism, model.start, qd, times)

        @jax.jit
        def energy(mechanism, q, qd):
            def one(q, qd):
                tree = mechanism.tree
                return jg.rigid.kinetic_energy(tree, q, qd) + jg.rigid.potential_energy(tree, q)

            return jax.vmap(one)(q, qd)

        values = np.asarray(energy(mechanism, motion.q, motion.qd))
        drift = values - values[0]
        key = name.replace("-", "_")
        run.add(f"{key}_energy_drift", float(np.abs(drift).max()), "J")
        run.add(f"{key}_violation", float(jnp.abs(motion.gap).max()), "m")
        drifts.append(Curve(name, np.asarray(times), 1e9 * drift))
    run.figure(
        "energy",
        viz.curves(
            [Panel("time [s]", "energy gained [nJ]", drifts)],
            "Energy of two linkages under gravity, without friction",
        ),
        "Both keep their energy; the loops, closed by spatial joints, are redundant in the plane.",
    )


def finger(run: Run) -> None:
    """A gripper with two four-bar fingers and one drive."""
    model = jg.models.linkage_finger()
    mechanism = model.mechanism
    drives = jnp.linspace(0.0, 0.6, 61)
    path = loops.follow(mechanism, model.start, "left_crank", drives)
    q = jax.jit(jax.vmap(path.position))(drives)
    missed = jax.jit(jax.vmap(lambda q: loops.constraints(mechanism, q)))(q)
    run.add("finger_violation", float(jnp.abs(missed).max()), "m")
    mobility = loops.mobility(mechanism, model.start)
    run.note(f"Gripper with four-bar fingers: {mobility}")
    lines = {}
    for side, sign in (("left", 1.0), ("right", -1.0)):
        tip = model.tip * jnp.array([1.0, sign, 1.0])
        base = (0.0, 0.0, 0.0)
        end = (float(model.linkage.coupler), 0.0, 0.0)
        lines[f"{side} crank"] = _points(
            mechanism, q, [(f"{side}_crank", base), (f"{side}_tip", base)]
        )
        lines[f"{side} tip"] = _points(
            mechanism, q, [(f"{side}_tip", end), (f"{side}_tip", base), (f"{side}_tip", tip)]
        )
        lines[f"{side} rocker"] = _points(
            mechanism, q, [(f"{side}_rocker", base), (f"{side}_tip", end)]
        )
    gap = lines["right tip"][:, 2, 0] - lines["left tip"][:, 2, 0]
    run.add("finger_opening", [float(gap[0]), float(gap[-1])], "m")
    run.figure(
        "finger",
        viz.linkage(
            lines,
            "Gripper with four-bar fingers: one crank drives both",
            plane="xy",
            step=0,
            paths={
                f"path of the {side} tip": lines[f"{side} tip"][:, 2] for side in ("left", "right")
            },
        ),
        "A mimic joint couples the cranks; each finger is a loop of three links.",
    )


def rods(run: Run) -> None:
    """Energy of a rod on a universal joint, by the exact and by the printed equations."""
    times = jnp.linspace(0.0, 5.0, 501)
    x0 = jnp.array([0.5, -np.pi / 2, 0.0, 2.0])
    curves = []
    for mode, published in (("exact", None), ("printed", 0.0245)):
        rod = Rod(0.4, 1.0, gravity=(0.0, -9.81, 0.0), mode=mode)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, x, rod: rod_block(rod, x, jnp.zeros(3), jnp.zeros(3)).rate),
            diffrax.Dopri8(),
            0.0,
            5.0,
            None,
            x0,
            args=rod,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-12),
            max_steps=100_000,
        )
        energy = np.asarray(jax.jit(jax.vmap(lambda x, rod=rod: rod_energy(rod, x)))(solution.ys))
        drift = np.abs(energy - energy[0])
        run.add(f"rod_{mode}_energy_drift", float(drift.max()), "J", published)
        curves.append(Curve(f"{mode} equations", np.asarray(times)[5:], drift[5:]))
    run.figure(
        "rod",
        viz.curves(
            [Panel("time [s]", "energy gained or lost [J]", curves, log="y")],
            "Rod on a universal joint: energy by the exact and by the printed equations",
        ),
        "The printed equations omit the moment that a universal joint exerts.",
    )


def _points(mechanism, q: jax.Array, points: list[tuple]) -> xarray.DataArray:
    """Positions (step, point, axis) of points given in the frames of bodies."""
    indices = np.array([mechanism.tree.body(body) for body, _ in points])
    local = jnp.asarray(np.array([np.asarray(point, dtype=float) for _, point in points]))

    @jax.jit
    def look(tree, q: jax.Array) -> jax.Array:
        def one(q: jax.Array) -> jax.Array:
            pose = jg.rigid.forward_kinematics(tree, q)
            rotated = jnp.einsum("pab,pb->pa", pose.rotation[indices], local)
            return pose.translation[indices] + rotated

        return jax.vmap(one)(q)

    return xarray.DataArray(np.asarray(look(mechanism.tree, q)), dims=("step", "point", "axis"))
