"""Plain multiple shooting for a known structure, with any choice of which drives are states.

A drive whose rate is bounded is either always a state, with its rate as a control in which the
Hamiltonian is linear, or a state only while the rate is at the bound. The same code assembles both
boundary-value problems, so that nothing else differs.

Source: Schanzer 2007, sections 6.2.2 and 6.2.3, pp. 87-95.
"""

from functools import partial
from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import jaxgrip as jg
from jaxgrip.solve import dense

LOWER, INTERIOR, UPPER, _, FALLING, RISING, _ = jg.ocp.Kind
ORDER_EIGHT = diffrax.Dopri8.tableau


class Task(eqx.Module):
    """A motion of fixed duration with its structure, and the drives that are states.

    The running cost is quadratic in the drives and the dynamics affine in them; `curvature` `(m,)`
    is the diagonal of H_uu, the only non-zero part. `kinds`, for each arc each drive's kind as in
    `jg.ocp.Structure`; `always`, the drives that are states for all time; `steps` of order eight on
    an arc.
    """

    problem: jg.ocp.Problem
    curvature: Float[Array, " m"]
    scales: "Unknowns"
    steps: Int[Array, ""]
    kinds: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    always: tuple[int, ...] = eqx.field(static=True)

    @property
    def drives(self) -> np.ndarray:
        """The drives that are states on some arc."""
        moving = {j for row in self.kinds for j, kind in enumerate(row) if kind >= FALLING}
        return np.array(sorted(moving | set(self.always)), dtype=int)

    @property
    def is_state(self) -> Bool[np.ndarray, "arcs r"]:
        """On which arcs each of the `drives` is a state."""
        kinds = np.array(self.kinds)[:, self.drives]
        return (kinds >= FALLING) | np.isin(self.drives, self.always)

    @property
    def dimension(self) -> np.ndarray:
        """Number of differential equations on each arc."""
        return 2 * self.problem.n + 2 * self.is_state.sum(axis=1)

    @property
    def events(self) -> list[tuple[int, int, int, int]]:
        """For each end of an arc but the last: arc, drive, its kind before and after."""
        changes = np.diff(np.array(self.kinds), axis=0)
        return [
            (arc, j, self.kinds[arc][j], self.kinds[arc + 1][j])
            for arc, j in zip(*np.nonzero(changes), strict=True)
        ]

    @property
    def is_jump(self) -> Bool[np.ndarray, " boundaries"]:
        """Where the costate of a drive jumps because the drive, as a state, reaches its bound."""
        out = np.zeros(len(self.kinds) - 1, dtype=bool)
        for arc, j, _, after in self.events:
            out[arc] |= j in self.always and after in (LOWER, UPPER)
        return out

    @property
    def is_unknown(self) -> Bool[np.ndarray, "arcs y"]:
        """Which entries of the arcs' initial states exist."""
        n = self.problem.n
        always = np.ones((len(self.kinds), 2 * n), dtype=bool)
        return np.concatenate([always, self.is_state, self.is_state], axis=1)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return int(self.is_unknown.sum() + len(self.kinds) - 1 + self.is_jump.sum())


class Unknowns(NamedTuple):
    """`start` `(arcs, y)` of each arc, y = (x, costate, drives, their costates); `times`
    `(arcs - 1,)` of the events [s]; `jump` `(arcs - 1,)` of a drive's costate.
    """

    start: Float[Array, "arcs y"]
    times: Float[Array, " boundaries"]
    jump: Float[Array, " boundaries"]


def pack(task: Task, unknowns: Unknowns) -> Float[Array, " size"]:
    """The entries that exist, scaled to order one."""
    start, times, jump = jax.tree.map(jnp.divide, unknowns, task.scales)
    return jnp.concatenate([start[task.is_unknown], times, jump[task.is_jump]])


def unpack(task: Task, w: Float[Array, " size"]) -> Unknowns:
    """The inverse of [`pack`][], with zeros where nothing exists."""
    mask, is_jump = task.is_unknown, task.is_jump
    start, times, jump = jnp.split(w, np.cumsum([mask.sum(), len(is_jump)]))
    out = Unknowns(
        jnp.zeros(mask.shape).at[np.nonzero(mask)].set(start),
        times,
        jnp.zeros(is_jump.shape).at[np.flatnonzero(is_jump)].set(jump),
    )
    return jax.tree.map(jnp.multiply, out, task.scales)


def _hamiltonian(problem: jg.ocp.Problem, x, costate, u):
    return problem.cost_rate(x, u) + costate @ problem.dynamics(x, u)


def _stationary(task: Task, x, costate):
    """Drives that make H_u zero."""
    slope = jax.grad(_hamiltonian, argnums=3)
    return -slope(task.problem, x, costate, jnp.zeros_like(task.curvature)) / task.curvature


def _bounds(problem: jg.ocp.Problem, kinds):
    return jnp.where(kinds == UPPER, problem.upper, problem.lower)


def _rates(task: Task, kinds, is_state, y):
    """Rates of y and running cost on an arc with given kinds `(m,)`."""
    problem, n, drives = task.problem, task.problem.n, task.drives
    x, costate, values, _ = jnp.split(y, [n, 2 * n, 2 * n + len(drives)])
    inside, interior = kinds == INTERIOR, _stationary(task, x, costate)
    u = jnp.where(inside, interior, _bounds(problem, kinds))
    u = u.at[drives].set(jnp.where(is_state, values, u[drives]))
    h_x, f, h_u = jax.grad(_hamiltonian, argnums=(1, 2, 3))(problem, x, costate, u)
    rate = jnp.select([kinds == RISING, kinds == FALLING], [problem.rate_upper, problem.rate_lower])
    if task.always:
        # The second time derivative of the switching function is the first to contain the rate.
        along = jax.jvp(lambda *z: _stationary(task, *z), (x, costate), (f, -h_x))[1]
        rate = jnp.where(inside, along, rate)
    own = jnp.where(is_state[None], jnp.stack([rate[drives], -h_u[drives]]), 0.0)
    return jnp.concatenate([f, -h_x, *own]), problem.cost_rate(x, u)


def _flow(task: Task, kinds, is_state, y, begin, end):
    """State and cost at the end of an arc."""
    stages = len(ORDER_EIGHT.c) + 1
    a = np.zeros((stages, stages))
    for row, entries in enumerate(ORDER_EIGHT.a_lower, start=1):
        a[row, : len(entries)] = entries
    h = (end - begin) / task.steps

    def stage(slopes, inputs):
        index, row, y, cost = *inputs, *slopes[1]
        value, cost_rate = _rates(task, kinds, is_state, y + h * row @ slopes[0])
        return (slopes[0].at[index].set(value), (y, cost.at[index].set(cost_rate))), None

    def step(_, carry):
        y, cost = carry
        empty = (jnp.zeros((stages, len(y))), (y, jnp.zeros(stages)))
        (slopes, (_, costs)), _ = jax.lax.scan(stage, empty, (jnp.arange(stages), jnp.asarray(a)))
        weights = jnp.asarray(ORDER_EIGHT.b_sol)
        return y + h * weights @ slopes, cost + h * weights @ costs

    return jax.lax.fori_loop(0, task.steps, step, (y, jnp.zeros(())))


def _arcs(task: Task, start, times):
    """For every arc its kinds, which drives are states, its start, begin and end."""
    edges = jnp.concatenate([jnp.zeros(1), times, task.problem.final_time[None]])
    return jnp.array(task.kinds), jnp.asarray(task.is_state), start, edges[:-1], edges[1:]


@eqx.filter_jit
def objective(task: Task, w: Float[Array, " size"]) -> Float[Array, ""]:
    """Integral of the running cost."""
    start, times, _ = unpack(task, w)
    return jnp.sum(jax.vmap(partial(_flow, task))(*_arcs(task, start, times))[1])


def _conditions(task: Task, w, ends):
    """Residual of every condition, scaled, with the states `(arcs, y)` at the arcs' ends given."""
    problem, n, drives = task.problem, task.problem.n, task.drives
    start, _, jump = unpack(task, w)
    size = task.scales.start[0]
    x_size, drive_size, own_size = (
        size[: 2 * n],
        size[2 * n : 2 * n + len(drives)],
        size[2 * n + len(drives) :],
    )
    stationary = jax.vmap(lambda y: _stationary(task, y[:n], y[n : 2 * n]))
    first, last = stationary(start[:1])[0], stationary(ends)
    at = {int(j): row for row, j in enumerate(drives)}

    def drive(points, arc, j):
        return points[arc, 2 * n + at[j]]

    def own(points, arc, j):
        return points[arc, 2 * n + len(drives) + at[j]]

    def limit(j, kind):
        return problem.upper[j] if kind == UPPER else problem.lower[j]

    out = [(start[0, :n] - problem.initial_state) / size[:n]]
    out += [(ends[-1, :n] - problem.final_state) / size[:n]]
    out += [((start[1:, : 2 * n] - ends[:-1, : 2 * n]) / x_size[None]).ravel()]
    scalars = []
    for j, row in at.items():
        by_drive, by_own = drive_size[row], own_size[row]
        kinds = [kinds[j] for kinds in task.kinds]
        if task.is_state[0, row]:
            if kinds[0] != INTERIOR:
                on_bound = kinds[0] in (LOWER, UPPER)
                scalars.append(
                    (drive(start, 0, j) - limit(j, kinds[0])) / by_drive
                    if on_bound
                    else own(start, 0, j) / by_own
                )
            else:
                scalars += [(drive(start, 0, j) - first[j]) / by_drive, own(start, 0, j) / by_own]
        for arc in range(len(kinds) - 1):
            if not task.is_state[arc + 1, row]:
                continue
            if task.is_state[arc, row]:
                here = task.is_jump[arc] and kinds[arc] != kinds[arc + 1]
                step = jump[arc] if here else 0.0
                scalars.append((drive(start, arc + 1, j) - drive(ends, arc, j)) / by_drive)
                scalars.append((own(start, arc + 1, j) - own(ends, arc, j) + step) / by_own)
            else:
                before = last[arc, j] if kinds[arc] == INTERIOR else limit(j, kinds[arc])
                scalars.append((drive(start, arc + 1, j) - before) / by_drive)
                scalars.append(own(start, arc + 1, j) / by_own)
        # The costate of a drive that ends inside its bounds vanishes at the end in any case.
        if task.is_state[-1, row] and kinds[-1] != INTERIOR:
            scalars.append(own(ends, -1, j) / by_own)
    for arc, j, before, after in task.events:
        span = problem.upper[j] - problem.lower[j]
        if j in task.always or before >= FALLING:
            by_drive, by_own = drive_size[at[j]], own_size[at[j]]
            if after in (LOWER, UPPER):
                scalars.append((drive(ends, arc, j) - limit(j, after)) / by_drive)
            if after == INTERIOR:
                scalars.append((drive(ends, arc, j) - last[arc, j]) / by_drive)
            if after == INTERIOR or (before >= FALLING and j not in task.always):
                scalars.append(own(ends, arc, j) / by_own)
        elif after < FALLING:
            bound = limit(j, before if after == INTERIOR else after)
            scalars.append((last[arc, j] - bound) / span)
    return jnp.concatenate([*out, jnp.array(scalars)])


def linearise(
    task: Task, w: Float[Array, " size"]
) -> tuple[Float[Array, " size"], Float[Array, "size size"]]:
    """Scaled residuals at scaled unknowns and their Jacobian; a square system by construction."""
    start, times, _ = unpack(task, w)

    def end(*arc):
        value, _ = _flow(task, *arc)
        return value, value

    jacobian = jax.jacfwd(end, argnums=(2, 3, 4), has_aux=True)
    by, ends = jax.vmap(jacobian)(*_arcs(task, start, times))
    basis = jax.jacfwd(lambda w: unpack(task, w)[:2])(w)
    zero = jnp.zeros((1, len(w)))
    edges = jnp.concatenate([zero, basis[1], zero])
    ends_w = (
        jnp.einsum("aij,ajw->aiw", by[0], basis[0])
        + by[1][:, :, None] * edges[:-1, None]
        + by[2][:, :, None] * edges[1:, None]
    )
    residual = _conditions(task, w, ends)
    by_w, by_ends = jax.jacfwd(lambda w, e: _conditions(task, w, e), argnums=(0, 1))(w, ends)
    return residual, by_w + jnp.einsum("iay,ayw->iw", by_ends, ends_w)


class Newton(NamedTuple):
    """Outcome of a Newton iteration: `w`, largest scaled `residual`, last `jacobian`, `steps`."""

    w: Float[Array, " size"]
    residual: Float[Array, ""]
    jacobian: Float[Array, "size size"]
    steps: Int[Array, ""]


@eqx.filter_jit
def newton(task: Task, w: Float[Array, " size"], max_steps: int = 30) -> Newton:
    """Damped Newton from scaled unknowns: a step is halved until the residual does not grow."""

    def body(state):
        at, trial, norm, step, size, old, steps, _ = state
        residual, jacobian = linearise(task, trial)
        new_norm = jnp.max(jnp.abs(residual))
        accept = (new_norm < norm) | (steps == 0)
        at = jnp.where(accept, trial, at)
        step = jnp.where(accept, -dense.solve(jacobian, residual), step)
        jacobian = jnp.where(accept, jacobian, old)
        size = jnp.where(accept, 1.0, 0.5 * size)
        norm = jnp.where(accept, new_norm, norm)
        done = ~jnp.isfinite(norm) | (norm < 1e-12) | (size < 1e-3)
        return at, at + size * step, norm, step, size, jacobian, steps + 1, done

    numbers = (jnp.array(jnp.inf), w, jnp.ones(()), jnp.zeros((len(w), len(w))))
    start = (w, w, *numbers, jnp.array(0), jnp.array(False))
    out = jax.lax.while_loop(lambda s: ~s[-1] & (s[-2] < max_steps), body, start)
    return Newton(out[0], out[2], out[5], out[6])


def from_solution(
    problem: jg.ocp.Problem, solution: jg.ocp.Solution, always: tuple[int, ...], steps: int = 3
) -> tuple[Task, Float[Array, " size"]]:
    """Structure and starting values of a formulation from a solution of the problem.

    **Arguments:** `problem` with rate bounds and its `solution`; `always`, the drives that are
    states for all time; `steps` of order eight on an arc.
    """
    t, x, costate, u = (
        np.asarray(v) for v in (solution.t, solution.x, solution.costate, solution.u)
    )
    kinds = solution.structure.kinds
    begins = np.flatnonzero(np.diff(t, prepend=-1.0) == 0.0)
    begins = np.concatenate([[0], begins])
    ends = np.append(begins[1:] - 1, len(t) - 1)
    curvature = jax.hessian(problem.cost_rate, argnums=1)(problem.initial_state, problem.lower)
    blank = Unknowns(*(jnp.ones(()) for _ in range(3)))
    listed = tuple(tuple(int(kind) for kind in row) for row in kinds)
    task = Task(problem, jnp.diagonal(curvature), blank, jnp.asarray(steps), listed, tuple(always))
    own = np.zeros((len(t), problem.m))
    slope = np.asarray(solution.switching_function)
    piece = 0.5 * (slope[1:] + slope[:-1]) * np.diff(t)[:, None]
    for arc in reversed(range(len(kinds))):
        for j in range(problem.m):
            rows = slice(begins[arc], ends[arc] + 1)
            if kinds[arc, j] >= FALLING:
                own[rows, j] = np.asarray(solution.rate_costate)[rows, j]
            elif kinds[arc, j] != INTERIOR:
                stays = arc + 1 < len(kinds) and kinds[arc + 1, j] == kinds[arc, j]
                later = np.cumsum(piece[begins[arc] : ends[arc], j][::-1])[::-1]
                own[rows, j] = np.append(later, 0.0) + (own[begins[arc + 1], j] if stays else 0.0)
    drives = task.drives
    y = np.concatenate([x, costate, u[:, drives], own[:, drives]], axis=1)
    size = np.max(np.abs(y), axis=0)
    size = np.where(size > 0.0, size, 1.0)
    jump, jump_size = np.zeros(len(kinds) - 1), np.ones(len(kinds) - 1)
    for arc, j, _, _ in task.events:
        if task.is_jump[arc]:
            jump[arc], jump_size[arc] = -own[begins[arc + 1], j], np.max(np.abs(own[:, j]))
    scales = Unknowns(
        np.broadcast_to(size, (len(kinds), len(size))), np.asarray(problem.final_time), jump_size
    )
    task = eqx.tree_at(lambda t: t.scales, task, jax.tree.map(jnp.asarray, scales))
    unknowns = Unknowns(y[begins], np.asarray(solution.switching_times), jump)
    return task, pack(task, jax.tree.map(jnp.asarray, unknowns))
