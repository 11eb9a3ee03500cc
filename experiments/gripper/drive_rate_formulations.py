"""Two-finger gripper: two formulations of a bounded drive rate, the same motion by both.

A drive is a state either only while its rate is at a bound or, classically, always, with its rate
as a control.

Takes eight minutes on two cores, more than half of them to compile its programs the first time.

Source: Schanzer 2007, section 6.2, pp. 86-99.
"""

import time
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from pydantic import Field

import jaxgrip as jg
from experiments.gripper import optimal_motions, plain_shooting
from jaxgrip import config
from jaxgrip.config import Distinct, Real
from jaxgrip.models import ocp_problems
from jaxgrip.report import Run
from jaxgrip.viz import style

Positive = Annotated[Real, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1, le=1000)]

SOLVER = jg.ocp.Solver(starts=1)
# A perturbed Newton iteration has returned when it ends this close to the solution, scaled.
SAME = 1e-6
FORMULATIONS = (
    ("variable", "state only while the rate is at its bound", ()),
    ("slow_drive_classical", "slow drive always a state", (3,)),
    ("all_drives_classical", "all drives always states", (0, 1, 2, 3)),
)


class Config(config.Config):
    """What is compared, and the perturbations of Newton's starts."""

    finger: Literal["A", "B"] = Field("A", description="which finger moves")
    perturbations: Distinct[tuple[Positive, ...]] = Field(
        (1e-6, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1),
        min_length=1,
        description="largest change of every starting value of Newton's method, relative to the "
        "largest value of its kind",
    )
    trials: Count = Field(8, description="random starts for each of the perturbations")
    steps: Count = Field(
        8, description="steps of order eight on an arc where the formulations are compared"
    )
    coarse_steps: Count = Field(
        2, description="steps of order eight on an arc where Newton's starts are perturbed"
    )


class DrivesAsStates(eqx.Module):
    """Dynamics with some drives as further states, and their rates as controls in their place.

    States (x, drives), controls (the other drives, rates).
    """

    dynamics: Callable
    drives: tuple[int, ...] = eqx.field(static=True)
    m: int = eqx.field(static=True)

    def _order(self, n: int) -> np.ndarray:
        """Indices of (x, u) in (x, drives, others, rates)."""
        r = len(self.drives)
        index = np.empty(self.m, dtype=int)
        index[list(self.drives)] = np.arange(r)
        others = [j for j in range(self.m) if j not in self.drives]
        index[others] = r + np.arange(len(others))
        return np.concatenate([np.arange(n), n + index])

    def split(self, x: Float[Array, " x"], v: Float[Array, " m"]):
        """The original state and controls, and the rates of the drives."""
        n = x.shape[0] - len(self.drives)
        z = jnp.concatenate([x, v])[self._order(n)]
        return z[:n], z[n:], v[self.m - len(self.drives) :]

    def __call__(self, x: Float[Array, " x"], v: Float[Array, " m"]) -> Float[Array, " x"]:
        """Rates of (x, drives)."""
        x, u, w = self.split(x, v)
        return jnp.concatenate([self.dynamics(x, u), w])

    def expand(self, x: Float[Array, " x"], v: Float[Array, " m"], costate: Float[Array, " x"]):
        """Expansion of the dynamics, at the cost of the original one."""
        n, width = x.shape[0] - len(self.drives), x.shape[0] + self.m
        order = self._order(n)
        old_x, u, w = self.split(x, v)
        if hasattr(self.dynamics, "expand"):
            f, f_z, h_zz = self.dynamics.expand(old_x, u, costate[:n])
        else:

            def rate(z):
                return self.dynamics(z[:n], z[n:])

            z = jnp.concatenate([old_x, u])
            f, f_z = rate(z), jax.jacfwd(rate)(z)
            h_zz = jax.hessian(lambda z: costate[:n] @ rate(z))(z)
        by = jnp.eye(len(self.drives), width, k=width - len(self.drives))
        jacobian = jnp.concatenate([jnp.zeros((n, width)).at[:, order].set(f_z), by])
        hessian = jnp.zeros((width, width)).at[np.ix_(order, order)].set(h_zz)
        return jnp.concatenate([f, w]), jacobian, hessian


def classical(
    problem: jg.ocp.Problem,
    drives: tuple[int, ...],
    start: Float[np.ndarray, " drives"] | None = None,
) -> jg.ocp.Problem:
    """The same problem with some drives as states, and their bounds as state constraints.

    **Arguments:** `problem` with rate bounds; the `drives`; their values at the `start`, free when
    None.
    """
    drives = tuple(drives)
    dynamics = DrivesAsStates(problem.dynamics, drives, problem.m)
    chosen = np.array(drives)
    others = np.array([j for j in range(problem.m) if j not in drives], dtype=int)
    before = problem.running_cost
    none = [None] * problem.n
    free = [None] * len(drives)
    return jg.ocp.Problem(
        dynamics,
        running_cost=before and (lambda x, v: before(*dynamics.split(x, v)[:2])),
        initial_state=[*map(float, problem.initial_state), *(free if start is None else start)],
        final_state=[*map(float, problem.final_state), *free],
        final_time=problem.final_time,
        control_bounds=(
            jnp.concatenate([problem.lower[others], problem.rate_lower[chosen]]),
            jnp.concatenate([problem.upper[others], problem.rate_upper[chosen]]),
        ),
        state_bounds=(
            [*none, *map(float, problem.lower[chosen])],
            [*none, *map(float, problem.upper[chosen])],
        ),
    )


def run(settings: Config, run: Run) -> None:
    """Search by both formulations, then impose the structure and perturb Newton's starts."""
    for name, problem in (
        ("forces_at_bound", ocp_problems.redundant_actuators_energy(rate=4.0)),
        ("forces_inside", ocp_problems.redundant_actuators_energy(rate=8.0)),
        ("forces_time", ocp_problems.redundant_actuators_time()),
    ):
        solution = _search(run, f"{name}_variable", problem)
        start = np.asarray(solution.u)[0, 1:]
        _search(run, f"{name}_classical", classical(problem, (1,)), solution)
        _search(run, f"{name}_classical_told_start", classical(problem, (1,), start), solution)
    finger = optimal_motions.Config(experiment="gripper/optimal_motions")
    finger = optimal_motions.competing_drives(finger, settings.finger, 1.0, bounded_rates=True)
    key = f"finger_{settings.finger}"
    solution = _search(run, f"{key}_variable", finger)
    for name, _, always in FORMULATIONS[1:]:
        _search(run, f"{key}_{name}", classical(finger, always), solution)
    imposed = {
        words: _impose(run, settings, name, finger, solution, always)
        for name, words, always in FORMULATIONS
    }
    edges = np.array([0.0, *np.asarray(solution.switching_times), float(solution.final_time)])
    run.figure(
        "formulations",
        picture(edges, settings.perturbations, imposed, f"Finger {settings.finger}"),
        f"Finger {settings.finger} by three formulations. Left: how many differential equations "
        "there are at each time. Middle: time of one Newton step. Right: share of "
        f"{settings.trials} random starts from which Newton's method converges, by their distance.",
    )


def _search(
    run: Run, key: str, problem: jg.ocp.Problem, other: jg.ocp.Solution | None = None
) -> jg.ocp.Solution:
    """Solve from the statement alone, and compare with the solution of another formulation."""
    words = key.replace("_", " ")
    with run.stage(f"Search: {words}"):
        first, solution = _timed(lambda: jg.ocp.solve(problem, solver=SOLVER, throw=False))
        certified = solution.certificate is not None and solution.certificate.passed
        if certified:
            again, _ = _timed(lambda: jg.ocp.solve(problem, solver=SOLVER, throw=False))
    run.add(f"certified_{key}", int(certified), "1")
    run.add(f"objective_{key}", float(solution.objective), "s")
    run.add(f"transcription_steps_{key}", solution.stats["transcription_steps"], "1")
    run.add(f"shooting_steps_{key}", solution.stats["shooting_steps"], "1")
    run.add(f"first_solve_{key}", first, "s")
    if certified:
        run.add(f"later_solve_{key}", again, "s")
        run.certify(words, solution.certificate)
        if other is not None:
            run.add(f"objective_gap_{key}", float(solution.objective - other.objective), "s")
            gap = np.abs(np.asarray(solution.switching_times) - np.asarray(other.switching_times))
            run.add(f"times_gap_{key}", np.max(gap, initial=0.0), "s")
    else:
        proof = solution.certificate
        failed = f" Failed: {', '.join(proof.failed)}." if proof is not None else ""
        run.note(f"Not solved: {words}. {jg.ocp.RESULTS[solution.result]}{failed}")
    return solution


class Imposed(NamedTuple):
    """`dimension` (arcs,) of the differential equations; `returned`, share of starts from which
    Newton's method converges, for each perturbation; `step_s`, time of a Newton step [s].
    """

    dimension: np.ndarray
    returned: list[float]
    step_s: float


def _impose(
    run: Run,
    settings: Config,
    name: str,
    problem: jg.ocp.Problem,
    solution: jg.ocp.Solution,
    always: tuple[int, ...],
) -> Imposed:
    words = name.replace("_", " ")
    with run.stage(f"Structure imposed: {words}"):
        task, w = plain_shooting.from_solution(problem, solution, always, settings.steps)
        first, found = _timed(lambda: plain_shooting.newton(task, w))
        again, found = _timed(lambda: plain_shooting.newton(task, w))
        gap = plain_shooting.unpack(task, found.w).times - solution.switching_times
        objective = plain_shooting.objective(task, found.w)
    run.add(f"unknowns_{name}", task.size, "1")
    run.add(f"equations_{name}", task.dimension, "1")
    run.add(f"condition_{name}", np.linalg.cond(np.asarray(found.jacobian)), "1")
    run.add(f"residual_{name}", float(found.residual), "1")
    run.add(f"newton_steps_{name}", int(found.steps), "1")
    run.add(f"imposed_objective_gap_{name}", float(objective - solution.objective), "1")
    run.add(f"imposed_times_gap_{name}", float(jnp.max(jnp.abs(gap))), "s")
    run.add(f"first_newton_{name}", first, "s")
    step_s = again / int(found.steps)
    run.add(f"newton_step_{name}", step_s, "s")
    with run.stage(f"Perturbed Newton starts: {words}"):
        task, w = plain_shooting.from_solution(problem, solution, always, settings.coarse_steps)
        w = plain_shooting.newton(task, w).w
        random = np.random.default_rng(0).uniform(-1.0, 1.0, (settings.trials, task.size))
        returned, steps = [], []
        for size in settings.perturbations:
            ends = [plain_shooting.newton(task, w + size * each) for each in random]
            back = [bool(jnp.max(jnp.abs(end.w - w)) < SAME) for end in ends]
            returned.append(float(np.mean(back)))
            counts = [int(end.steps) for end, good in zip(ends, back, strict=True) if good]
            steps.append(float(np.mean(counts)) if counts else np.nan)
    run.add(f"returned_{name}", returned, "1")
    run.add(f"steps_to_return_{name}", steps, "1")
    failed = [
        f"{size:g}"
        for size, share in zip(settings.perturbations, returned, strict=True)
        if not share
    ]
    if failed:
        run.note(
            f"Perturbed Newton starts, {words}: none converged from {', '.join(failed)}, so there "
            "are no steps to count."
        )
    return Imposed(task.dimension, returned, step_s)


@style.styled
def picture(
    edges: Float[np.ndarray, " edges"],
    perturbations: tuple[float, ...],
    imposed: dict[str, Imposed],
    title: str,
) -> Figure:
    """Size of the boundary-value problem, cost of a step and reach of Newton's method."""
    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    figure.suptitle(f"{title}: a bounded drive rate by three formulations", x=0.01, ha="left")
    size, cost, reach = figure.subplots(1, 3, width_ratios=(1.25, 0.9, 1.1))
    for index, (name, each) in enumerate(imposed.items()):
        look = {"color": style.PALETTE[index], "linestyle": style.DASHES[index]}
        size.stairs(each.dimension, 1e3 * edges, baseline=None, linewidth=2.2, label=name, **look)
        cost.bar(index, 1e3 * each.step_s, color=style.PALETTE[index], width=0.65)
        cost.annotate(
            f"{1e3 * each.step_s:.0f} ms",
            (index, 1e3 * each.step_s),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
        )
        returned = 100.0 * np.array(each.returned)
        reach.plot(perturbations, returned, marker="os^"[index], clip_on=False, **look)
    size.set(ylim=(0.0, 22.0), xlabel="time [ms]", title="differential equations")
    size.yaxis.set_major_locator(MultipleLocator(4))
    size.set_ylabel("number [1]")
    size.set_xlim(0.0, 1e3 * edges[-1])
    cost.set(xticks=(), ylabel="processor time [ms]", title="one Newton step")
    for axes in (size, cost, reach):
        axes.set_axisbelow(True)
    cost.margins(y=0.15)
    reach.set(xscale="log", xlabel="distance of the start  [1]", ylim=(-4.0, 104.0))
    reach.set(ylabel="starts that converge [%]", title="reach of Newton's method")
    figure.legend(*size.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return style.settle(figure)


def _timed(work: Callable):
    """Processor time [s], less affected by other programs than wall time, and the result."""
    begin = time.process_time()
    out = jax.block_until_ready(work())
    return time.process_time() - begin, out
