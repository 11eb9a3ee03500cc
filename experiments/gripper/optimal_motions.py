"""Two-finger gripper: optimal motions with state constraints and with competing drives.

The problems and their published solutions: Schanzer 2007, sections 5.5.3, 6.1.2 and 6.2.4.

Takes up to twelve minutes on two cores, eight of them for state constraints, mostly to compile.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field

import jaxgrip as jg
from experiments.gripper.pictures import draw_certificate
from experiments.gripper.time_optimal import JOINTS
from jaxgrip import config, viz
from jaxgrip.config import Distinct, Real
from jaxgrip.report import Run

Positive = Annotated[Real, Field(gt=0.0)]
Study = Literal["state_constraints", "drive_weights", "drive_rates"]

# Finger to the limits of its drives: joints 1 to 3, then the slow strong one of joint 2 [N m].
DRIVE_LIMITS = {"A": (0.25, 0.05, 0.40, 0.45), "B": (0.20, 0.07, 0.35, 0.40)}
DRIVE_RATES = {"A": (100.0, 100.0, 100.0, 8.0), "B": (100.0, 100.0, 100.0, 8.5)}
DRIVES = {"A": ("1", "2 fast", "3", "2 slow"), "B": ("4", "5 fast", "6", "5 slow")}
DRIVE_OF_JOINT = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 1.0), (0.0, 0.0, 1.0, 0.0))
PUBLISHED_WEIGHTS = {"A": 5.0, "B": 10.0}

STATE_CONSTRAINTS = {
    "final_time": 0.1213262947,
    "switching_tau": (
        *(0.223998, 0.248088, 0.313626, 0.444915, 0.500000, 0.513995, 0.546276, 0.596288),
        *(0.634618, 0.657232, 0.712760, 0.725307, 0.784341, 0.794610, 0.818325, 0.856044),
        *(0.866558, 0.874786, 0.961093, 0.977639),
    ),
    "switching_drives": tuple("36314215366232366523"),
    "jumps": (8.57103898e-5, 9.63801790e-6),
}
DRIVE_WEIGHTS = {
    "A": {
        "switching_tau": (0.149132, 0.279400, 0.387392, 0.603302, 0.650935, 0.694107, 0.776847),
        "switching_drives": ("3", "1", "3", "3", "1", "2 fast", "2 fast"),
        "slow_share": 0.672,
    },
    "B": {
        "switching_tau": (
            *(0.196010, 0.275452, 0.474550, 0.523620, 0.578656),
            *(0.609095, 0.653568, 0.836709, 0.879501),
        ),
        "switching_drives": (*("6", "6", "4", "4"), *("5 fast",) * 2, "6", *("5 fast",) * 2),
        "slow_share": 0.755,
    },
}
DRIVE_RATE_TIMES = {
    "A": {
        "switching_tau": (
            *(0.083592, 0.096625, 0.231661, 0.559569),
            *(0.678124, 0.679408, 0.693571, 0.866703),
        ),
        "switching_drives": ("1", "3", "2 slow", "2 fast", "2 fast", "2 slow", "1", "2 fast"),
    },
    "B": {
        "switching_tau": (
            *(0.091875, 0.155421, 0.214970, 0.286395, 0.518840),
            *(0.576198, 0.651682, 0.711393, 0.766194, 0.977383),
        ),
    },
}
# Table 6.4, both fingers together with finger B as published, between all events.
CLASSICAL_ACTIVE = (7, 6, 5, 4, 3, 2, 2, 2, 1, 0, 0, 1, 2, 2, 3, 4, 3, 2, 3)
CLASSICAL_SINGULAR = (1, 2, 3, 4, 5, 6, 5, 4, 5, 6, 7, 6, 5, 6, 5, 4, 5, 6, 5)
# The published structure of finger B, each drive's kinds with the times at which they end.
STRUCTURE_B = (
    ((1, 0.155421), (0, 0.651682), (-1, 1.0)),
    ((-1, 0.518840), (0, 0.711393), (1, 0.766194), (0, 0.977383), (-1, 1.0)),
    ((-1, 0.091875), (0, 1.0)),
    ((-1, 0.214970), (0, 0.286395), (4, 0.576198), (0, 1.0)),
)


class Config(config.Config):
    """Motions of both fingers between the published poses, with the published drives."""

    studies: Distinct[tuple[Study, ...]] = Field(
        ("state_constraints", "drive_weights", "drive_rates"),
        min_length=1,
        description="what to solve",
    )
    effort_weight: Positive = Field(
        0.1, description="weight of finger A's effort beside the time, study state_constraints"
    )
    rate_limit: Positive = Field(
        65.0, description="largest rate of every joint, study state_constraints [rad/s]"
    )
    final_time: Positive = Field(0.137, description="duration of the motions by drives [s]")
    slow_weights: tuple[Positive, Positive] = Field(
        tuple(PUBLISHED_WEIGHTS.values()),
        description="weight of the slow drive's effort of fingers A and B, study drive_weights",
    )


class Motion(NamedTuple):
    """A solved motion with the names of its drives and joints."""

    solution: jg.ocp.Solution
    drives: tuple[str, ...]
    joints: tuple[int, ...]


def run(settings: Config, run: Run) -> None:
    """Solve the chosen studies, and record numbers, arrays, certificates and pictures."""
    studies: dict[Study, Callable[[Config, Run], None]] = {
        "state_constraints": _state_constraints,
        "drive_weights": _drive_weights,
        "drive_rates": _drive_rates,
    }
    for study in dict.fromkeys(settings.studies):
        studies[study](settings, run)


def state_constrained(settings: Config) -> jg.ocp.Problem:
    """Both fingers: time plus finger A's weighted effort, all joint rates bounded.

    Source: Schanzer 2007, section 5.5.3.
    """
    a, b = jg.models.gripper_finger("A"), jg.models.gripper_finger("B")
    limit = np.concatenate([a.torque_limit, b.torque_limit])
    weight = settings.effort_weight / np.sum(limit**2)
    rate = np.full(6, settings.rate_limit)
    return jg.ocp.Problem(
        jg.rigid.StateSpace(jg.models.two_finger_gripper()),
        running_cost=lambda x, u: 1.0 + weight * jnp.sum(u[:3] ** 2),
        initial_state=np.concatenate([a.start, b.start, np.zeros(6)]),
        final_state=np.concatenate([a.end, b.end, np.zeros(6)]),
        final_time=jg.ocp.Free(guess=0.13),
        control_bounds=(-limit, limit),
        state_bounds=([None] * 6 + [-r for r in rate], [None] * 6 + list(rate)),
    )


def competing_drives(
    settings: Config, name: str, slow_weight: float, *, bounded_rates: bool
) -> jg.ocp.Problem:
    """A finger's weighted effort in a given time, joint 2 with two drives.

    Source: Schanzer 2007, sections 6.1.2 and 6.2.4.
    """
    finger = jg.models.gripper_finger(name)
    limit, rate = np.array(DRIVE_LIMITS[name]), np.array(DRIVE_RATES[name])
    weight = np.array([1.0, 1.0, 1.0, slow_weight]) / _all_limits_squared()
    return jg.ocp.Problem(
        jg.rigid.StateSpace(finger.tree, jnp.array(DRIVE_OF_JOINT)),
        running_cost=lambda x, u: jnp.sum(weight * u**2),
        initial_state=np.concatenate([finger.start, np.zeros(3)]),
        final_state=np.concatenate([finger.end, np.zeros(3)]),
        final_time=settings.final_time,
        control_bounds=(-limit, limit),
        rate_bounds=(-rate, rate) if bounded_rates else None,
    )


def _all_limits_squared() -> float:
    return float(np.sum(np.square(list(DRIVE_LIMITS.values()))))


def _solve(problem: jg.ocp.Problem) -> jg.ocp.Solution:
    return jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=1))


def _state_constraints(settings: Config, run: Run) -> None:
    name = "states"
    as_published = settings.effort_weight == 0.1 and settings.rate_limit == 65.0
    published = STATE_CONSTRAINTS if as_published else {}
    with run.stage("Both fingers, time and effort, bounded joint rates"):
        solution = _solve(state_constrained(settings))
    motion = Motion(solution, tuple("123456"), (*JOINTS["A"], *JOINTS["B"]))
    run.add(f"final_time_{name}", float(solution.final_time), "s", published.get("final_time"))
    _record(run, name, motion, published)
    # The published jumps are those of a costate over the time relative to the final time.
    jumps = np.asarray(solution.jumps).sum(axis=1) / float(solution.final_time)
    run.add(f"jumps_{name}", jumps[jumps != 0.0], "s/rad", published.get("jumps"))
    _draw(run, name, motion, "Both fingers, bounded joint rates", settings.rate_limit)


def _drive_weights(settings: Config, run: Run) -> None:
    for name, weight in zip("AB", settings.slow_weights, strict=True):
        as_published = settings.final_time == 0.137 and weight == PUBLISHED_WEIGHTS[name]
        published = DRIVE_WEIGHTS[name] if as_published else {}
        key = f"weights_{name}"
        with run.stage(f"Finger {name}, drives with different weights"):
            solution = _solve(competing_drives(settings, name, weight, bounded_rates=False))
        motion = Motion(solution, DRIVES[name], JOINTS[name])
        _record(run, key, motion, published)
        share = np.max(np.abs(solution.u[:, 3])) / DRIVE_LIMITS[name][3]
        run.add(f"slow_share_{key}", share, "1", published.get("slow_share"))
        _draw(run, key, motion, f"Finger {name}, slow drive with weight {weight:g}")


def _drive_rates(settings: Config, run: Run) -> None:
    motions = {}
    for name in "AB":
        # The published structure of finger B is another one, evaluated below.
        as_published = settings.final_time == 0.137 and name == "A"
        published = DRIVE_RATE_TIMES[name] if as_published else {}
        key = f"rates_{name}"
        with run.stage(f"Finger {name}, drives with different rates"):
            solution = _solve(competing_drives(settings, name, 1.0, bounded_rates=True))
        motion = Motion(solution, DRIVES[name], JOINTS[name])
        motions[name] = motion
        _record(run, key, motion, published)
        _draw(run, key, motion, f"Finger {name}, slow drive with bounded rate")
    if settings.final_time == 0.137:
        with run.stage("Finger B, drives with different rates, published structure"):
            problem = competing_drives(settings, "B", 1.0, bounded_rates=True)
            published = jg.ocp.solve(
                problem, solver=jg.ocp.Solver(starts=1), structure=STRUCTURE_B, throw=False
            )
        tau = np.asarray(published.switching_times) / float(published.final_time)
        run.add("tau_published_B", tau, "1", DRIVE_RATE_TIMES["B"]["switching_tau"])
        run.add("objective_published_B", float(published.objective), "s")
        counts = _classical_counts([motions["A"].solution, published])
        run.add("classical_active", counts[:, 0], "1", CLASSICAL_ACTIVE)
        run.add("classical_singular", counts[:, 1], "1", CLASSICAL_SINGULAR)
        failed = () if published.certificate is None else published.certificate.failed
        run.note(
            "Finger B with bounded rates: the published motion has its slow drive at the limit "
            f"from the start and costs {float(published.objective):.8f}, but is no optimum: it "
            f"fails the check {', '.join(failed)}. The certified motion costs "
            f"{float(motions['B'].solution.objective):.8f}; its slow drive reaches the limit later."
        )


def _classical_counts(solutions: list[jg.ocp.Solution]) -> np.ndarray:
    """Active constraints and singular controls between all events, `(intervals, 2)`.

    In the classical form every drive is a state with a bounded rate as its control: a drive at its
    limit is an active state constraint, and a rate inside its bounds elsewhere is singular.
    """
    edges = np.unique(np.concatenate([np.asarray(s.switching_times) for s in solutions]))
    edges = np.concatenate([[0.0], edges, [float(solutions[0].final_time)]])
    middles = 0.5 * (edges[1:] + edges[:-1])
    kinds = np.concatenate(
        [s.structure.kinds[np.searchsorted(s.switching_times, middles)] for s in solutions], axis=1
    )
    return np.stack([np.sum(np.abs(kinds) == 1, axis=1), np.sum(kinds == 0, axis=1)], axis=1)


def _record(run: Run, key: str, motion: Motion, published: dict) -> None:
    solution = motion.solution
    tau = np.asarray(solution.switching_times) / float(solution.final_time)
    drives = [motion.drives[j] for j in solution.structure.switching_controls]
    run.add(f"objective_{key}", float(solution.objective), "s")
    run.add(f"tau_{key}", tau, "1", published.get("switching_tau"))
    run.add(f"drives_{key}", drives, "1", published.get("switching_drives"))
    run.certify(key.replace("_", " "), solution.certificate)
    run.arrays(key, _dataset(motion))


def _dataset(motion: Motion) -> xarray.Dataset:
    """All signals over time; switching times occur twice, with the values before and after."""
    solution, n = motion.solution, len(motion.joints)
    x, costate = np.asarray(solution.x), np.asarray(solution.costate)
    by_joint = {
        "angle": (x[:, :n], "angle", "rad"),
        "rate": (x[:, n:], "rate", "rad/s"),
        "costate_angle": (costate[:, :n], "costate of the angle", "s/rad"),
        "costate_rate": (costate[:, n:], "costate of the rate", "s^2/rad"),
    }
    by_drive = {
        "torque": (solution.u, "torque", "N m"),
        "switching_function": (solution.switching_function, "switching function", "1/(N m)"),
        "rate_costate": (solution.rate_costate, "costate of the torque", "s/(N m)"),
    }
    variables = {
        key: (("time", dim), np.asarray(value), {"long_name": long, "units": units})
        for dim, group in (("joint", by_joint), ("drive", by_drive))
        for key, (value, long, units) in group.items()
    }
    used = np.flatnonzero(solution.structure.active.any(axis=0))
    if used.size:
        variables["multiplier"] = (
            ("time", "bound"),
            np.asarray(solution.multiplier)[:, used],
            {"long_name": "multiplier of the rate bound", "units": "s^2/rad"},
        )
    variables["hamiltonian"] = (
        ("time",),
        np.asarray(solution.hamiltonian),
        {"long_name": "Hamiltonian", "units": "1"},
    )
    sides = ["upper" if i < n else "lower" for i in used]
    return xarray.Dataset(
        variables,
        {
            "time": ("time", np.asarray(solution.t), {"units": "s"}),
            "joint": ("joint", list(motion.joints), {"units": "1"}),
            "drive": ("drive", list(motion.drives), {"units": "1"}),
            "bound": (
                "bound",
                [f"{motion.joints[i % n]}, {side}" for i, side in zip(used, sides, strict=True)],
                {"units": "1"},
            ),
        },
    )


def _draw(run: Run, key: str, motion: Motion, title: str, rate_limit: float | None = None) -> None:
    solution = motion.solution
    smooth = viz.refine(_dataset(motion))
    times = np.asarray(solution.switching_times)
    draw_certificate(run, key, solution, title, motion.drives, motion.joints)
    limits = {} if rate_limit is None else {"rate": (-rate_limit, rate_limit, "limit, imposed")}
    angle = np.rad2deg(smooth.angle).assign_attrs(long_name="angle", units="deg")
    run.figure(
        f"states_{key}",
        viz.lines([angle, smooth.rate], f"{title}: motion", switching_times=times, limits=limits),
        f"{title}: joint angles and rates.",
    )
    costates = [smooth.costate_angle, smooth.costate_rate]
    run.figure(
        f"costates_{key}",
        viz.lines(costates, f"{title}: costates", switching_times=times),
        f"{title}: costates; they jump only where a state constraint becomes active.",
    )
