"""The statement of an optimal control problem: plain functions and bounds."""

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from jaxgrip.ocp.statement._closures import capture
from jaxgrip.ocp.statement._entries import (
    BoundaryState,
    Extended,
    Free,
    Stated,
    is_concrete,
    read_boundary,
    read_bounds,
    read_design,
)
from jaxgrip.ocp.statement._probing import probe
from jaxgrip.precision import require_x64


class Problem(eqx.Module):
    r"""Minimise $\Psi(t_F, x(t_F)) + \int_0^{t_F} L(x, u)\,dt$ subject to $x' = f(x, u)$.

    States, controls and the rates of controls may be bounded; path constraints $g(x, u) \le 0$ and
    boundary conditions $b(x(0), t_F, x(t_F)) = 0$ may be added.

    Every array, also inside `dynamics` if that is a pytree, may be traced: a solution can be
    differentiated with respect to it, and other numbers do not recompile.

    **Arguments:**

    - `dynamics`: $f(x, u)$, states `(n,)` and controls `(m,)` to rates `(n,)`. Numbers that change
      are JAX arrays in a pytree (`equinox.Module`, `jax.tree_util.Partial`) or in variables that
      the function closes over.
    - `running_cost`: $L(x, u)$, a scalar; the default is 0 with a terminal cost and 1 without one,
      which is minimum time and needs a free final time.
    - `terminal_cost`: $\Psi(t_F, x(t_F))$, a scalar.
    - `initial_state`, `final_state`: `(n,)`; an entry None leaves that component free; so does an
      entry [`Free`][], which adds a guess and, in the initial state, bounds.
    - `boundary_conditions`: $b(x(0), t_F, x(t_F))$, `(k,)`, zero on the solution: ends on a
      surface, periodic motions.
    - `final_time`: a number [s] or [`Free`][].
    - `control_bounds`: `(lower, upper)`, each `(m,)`; infinite entries mean no bound.
    - `rate_bounds`: `(lower, upper)`, each `(m,)`, of the controls' rates of change [1/s]; None or
      an infinite number means no bound.
    - `state_bounds`: `(lower, upper)`, each `(n,)`; None or an infinite number means no bound.
    - `path_constraints`: $g(x, u)$, `(k,)`, at or below zero on the solution.
    - `design_variables`: [`Free`][] with vectors `(d,)`: constants that the solver chooses. Every
      function takes them after the arguments above.
    - `is_time_dependent`: whether dynamics, running cost and path constraints take the time [s]
      as a further argument, after the design variables.

    The solver appends design variables and time to the states; `n` counts them.

    **Raises:** `ValueError` with one sentence when shapes, bounds or times contradict each other;
    `RuntimeError` when 64-bit mode is off.

    Source: Schanzer 2007, section 5.1, pp. 59-62.
    """

    dynamics: Callable
    running_cost: Callable | None
    terminal_cost: Callable | None
    boundary_conditions: Callable | None
    initial_state: Float[Array, " n"]
    final_state: Float[Array, " n"]
    start_lower: Float[Array, " n"]
    start_upper: Float[Array, " n"]
    final_time: Free | Float[Array, ""]
    lower: Float[Array, " m"]
    upper: Float[Array, " m"]
    rate_lower: Float[Array, " m"]
    rate_upper: Float[Array, " m"]
    state_lower: Float[Array, " n"]
    state_upper: Float[Array, " n"]
    path_constraints: Callable | None
    fixed_initial: tuple[int, ...] = eqx.field(static=True)
    fixed_final: tuple[int, ...] = eqx.field(static=True)
    limited: tuple[int, ...] = eqx.field(static=True)
    bounded_below: tuple[int, ...] = eqx.field(static=True)
    bounded_above: tuple[int, ...] = eqx.field(static=True)
    n_path: int = eqx.field(static=True)
    n_boundary: int = eqx.field(static=True)
    n_design: int = eqx.field(static=True)
    is_time_dependent: bool = eqx.field(static=True)

    def __init__(
        self,
        dynamics: Callable,
        *,
        initial_state: Sequence | ArrayLike,
        final_state: Sequence | ArrayLike,
        final_time: Free | ArrayLike,
        control_bounds: tuple[Sequence | ArrayLike, Sequence | ArrayLike],
        running_cost: Callable | None = None,
        terminal_cost: Callable | None = None,
        boundary_conditions: Callable | None = None,
        rate_bounds: tuple[Sequence | ArrayLike, Sequence | ArrayLike] | None = None,
        state_bounds: tuple[Sequence | ArrayLike, Sequence | ArrayLike] | None = None,
        path_constraints: Callable | None = None,
        design_variables: Free | None = None,
        is_time_dependent: bool = False,
    ):
        require_x64("Optimal control")
        if not isinstance(control_bounds, Sequence) or len(control_bounds) != 2:
            raise ValueError("control_bounds must be a pair (lower, upper).")
        start = read_boundary(initial_state, "initial_state")
        end = read_boundary(final_state, "final_state")
        n = start.values.shape[0]
        if n == 0:
            raise ValueError("initial_state is empty: a problem needs at least one state.")
        if end.values.shape != (n,):
            raise ValueError(
                f"final_state has {end.values.shape[0]} entries, initial_state has {n}."
            )
        if end.is_bounded:
            raise ValueError("final_state: bounds of a free entry belong into state_bounds.")
        is_free = isinstance(final_time, Free)
        self.final_time = (
            final_time.within(0.0, np.inf) if is_free else jnp.asarray(final_time, dtype=float)
        )
        shape = jnp.shape(self.time_guess)
        if shape != ():
            raise ValueError(f"final_time must be a single number, not of shape {shape}.")
        self.lower, self.upper = (jnp.asarray(bound, dtype=float) for bound in control_bounds)
        if self.lower.ndim != 1 or self.lower.shape != self.upper.shape:
            raise ValueError(
                "control_bounds must be two vectors of one length, not shapes "
                f"{self.lower.shape} and {self.upper.shape}."
            )
        if self.m == 0:
            raise ValueError("control_bounds are empty: a problem needs at least one control.")
        if running_cost is None and terminal_cost is None and not is_free:
            raise ValueError(
                "Minimum time needs final_time=Free(guess=...); a fixed final_time needs a "
                "running_cost or a terminal_cost."
            )
        self.rate_lower, self.rate_upper, slow_down, slow_up = read_bounds(
            rate_bounds, self.m, "rate_bounds"
        )
        self.limited = tuple(sorted({*slow_down, *slow_up}))
        state_lower, state_upper, self.bounded_below, self.bounded_above = read_bounds(
            state_bounds, n, "state_bounds"
        )
        design = read_design(design_variables)
        self.n_design, self.is_time_dependent = design.guess.shape[0], is_time_dependent
        self.initial_state, self.final_state = self._boundary_states(start, end, design.guess)
        clock = (n + self.n_design,) if is_time_dependent else ()
        self.fixed_initial, self.fixed_final = start.fixed + clock, end.fixed
        unbounded = jnp.full(self.n_design, jnp.inf)
        self.start_lower = self._extend(start.lower, design.lower, -jnp.inf)
        self.start_upper = self._extend(start.upper, design.upper, jnp.inf)
        self.state_lower = self._extend(state_lower, -unbounded, -jnp.inf)
        self.state_upper = self._extend(state_upper, unbounded, jnp.inf)
        functions = dynamics, running_cost, terminal_cost, boundary_conditions, path_constraints
        self._set_functions(n, *functions)
        self.check()

    def _extend(self, values: Array, design: Array, clock: ArrayLike) -> Array:
        """Values of states and design variables as values of the extended state."""
        return jnp.concatenate([values, design, jnp.full(int(self.is_time_dependent), clock)])

    def _boundary_states(self, start: BoundaryState, end: BoundaryState, design: Array):
        """Extended boundary states; an entry free at one end is guessed from the other end."""
        n = start.values.shape[0]
        is_known = [np.isin(np.arange(n), each.fixed + each.guessed) for each in (start, end)]
        initial = jnp.where(is_known[0] | ~is_known[1], start.values, end.values)
        final = jnp.where(is_known[1], end.values, initial)
        return self._extend(initial, design, 0.0), self._extend(final, design, self.time_guess)

    def _set_functions(self, n: int, dynamics, running_cost, terminal_cost, conditions, path):
        """Check the functions, and make them functions of the extended state."""
        x, u, time = self.initial_state[:n], self.lower, jnp.zeros(())
        design = {"design variables": self.initial_state[n : n + self.n_design]}
        design = design if self.n_design else {}
        now = {"time": time} if self.is_time_dependent else {}
        within = {"states": x, "controls": u, **design, **now}
        at_end = {"final time": time, "final states": x, **design}

        def length(name, function, arguments, shape=(None,)):
            return 0 if function is None else math.prod(probe(name, function, arguments, shape))

        length("dynamics", dynamics, within, (n,))
        length("running_cost", running_cost, within, ())
        length("terminal_cost", terminal_cost, at_end, ())
        self.n_path = length("path_constraints", path, within)
        both = {"initial states": x, **at_end}
        self.n_boundary = length("boundary_conditions", conditions, both)
        kind = (n, self.n_design, self.is_time_dependent)
        dynamics, running_cost, path = (capture(f) for f in (dynamics, running_cost, path))
        self.terminal_cost, self.boundary_conditions = capture(terminal_cost), capture(conditions)
        self.dynamics, self.running_cost, self.path_constraints = dynamics, running_cost, path
        if self.n_design or self.is_time_dependent:
            self.dynamics = Extended(dynamics, *kind)
            self.running_cost = running_cost and Stated(running_cost, *kind)
            self.path_constraints = path and Stated(path, *kind)

    def check(self):
        """Raise `ValueError` where numbers contradict each other; traced ones are not checked."""
        kinds = jax.Array | np.ndarray
        numbers = {name: v for name, v in vars(self).items() if isinstance(v, kinds)}
        if not is_concrete((numbers, self.final_time)):
            return
        at = SimpleNamespace(**jax.tree.map(np.asarray, numbers))
        ends = (
            ("initial_state", at.initial_state, self.is_fixed_initial),
            ("final_state", at.final_state, self.is_fixed_final),
        )
        for name, state, _ in ends:
            for i in np.flatnonzero(~np.isfinite(state)):
                raise ValueError(f"{name}[{i}] is {state[i]}, not finite.")
        for what, lower, upper in (
            ("control", at.lower, at.upper),
            ("state", at.state_lower, at.state_upper),
        ):
            for j in np.flatnonzero(~(lower < upper)):
                raise ValueError(
                    f"{what}_bounds of {what} {j}: lower bound {lower[j]} must be below upper "
                    f"bound {upper[j]}."
                )
        lower, upper = at.state_lower, at.state_upper
        for name, state, is_fixed in ends:
            for i in np.flatnonzero(is_fixed & ((state < lower) | (state > upper))):
                raise ValueError(
                    f"{name}[{i}] is {state[i]}, outside its state_bounds {lower[i]} and "
                    f"{upper[i]}."
                )
        lower, guess, upper = at.start_lower, at.initial_state, at.start_upper
        for i in np.flatnonzero(~self.is_fixed_initial & ~((lower < guess) & (guess < upper))):
            k = i - self.n_states
            name = f"initial_state[{i}]" if k < 0 else f"design_variables[{k}]"
            raise ValueError(
                f"{name}: the guess {guess[i]} must lie between the bounds {lower[i]} and "
                f"{upper[i]}."
            )
        lower, upper = at.rate_lower, at.rate_upper
        for j in np.flatnonzero(~((lower < 0.0) & (upper > 0.0))):
            raise ValueError(
                f"rate_bounds of control {j}: lower bound {lower[j]} must be negative and upper "
                f"bound {upper[j]} positive."
            )
        time = np.asarray(self.time_guess)
        if not self.is_time_free:
            if not 0.0 < time < np.inf:
                raise ValueError(f"final_time must be a positive number, not {time}.")
            return
        earliest, latest = map(np.asarray, self.time_bounds)
        if not 0.0 <= earliest < latest:
            raise ValueError(
                f"final_time: bounds {earliest} and {latest} must satisfy 0 <= lower < upper."
            )
        if not earliest < time < latest:
            raise ValueError(
                f"final_time: the guess {time} must lie between the bounds {earliest} and {latest}."
            )

    @property
    def n(self) -> int:
        """Number of states, design variables and, if the problem depends on it, the time."""
        return self.initial_state.shape[0]

    @property
    def n_states(self) -> int:
        """Number of states without design variables and time."""
        return self.n - self.n_design - self.is_time_dependent

    @property
    def m(self) -> int:
        """Number of controls."""
        return self.lower.shape[0]

    @property
    def is_time_free(self) -> bool:
        """Whether the solver chooses the final time."""
        return isinstance(self.final_time, Free)

    @property
    def time_guess(self) -> Float[ArrayLike, "*batch"]:
        """The final time, or a guess of it [s], of every problem of a batch."""
        return self.final_time.guess if isinstance(self.final_time, Free) else self.final_time

    @property
    def time_bounds(self) -> tuple[Float[ArrayLike, ""], Float[ArrayLike, ""]]:
        """Bounds of a free final time [s], infinite where it is fixed."""
        if isinstance(self.final_time, Free):
            return self.final_time.lower, self.final_time.upper
        return -jnp.array(jnp.inf), jnp.array(jnp.inf)

    @property
    def rate_span(self) -> Float[np.ndarray, " m"]:
        """Width of the rate bounds `(m,)` [1/s], one where a side is open."""
        span = np.asarray(self.rate_upper) - np.asarray(self.rate_lower)
        return np.where(np.isfinite(span), span, 1.0)

    @property
    def is_fixed_initial(self) -> Bool[np.ndarray, " n"]:
        """Which components of the initial state are fixed."""
        return np.isin(np.arange(self.n), self.fixed_initial)

    @property
    def is_fixed_final(self) -> Bool[np.ndarray, " n"]:
        """Which components of the final state are fixed."""
        return np.isin(np.arange(self.n), self.fixed_final)

    @property
    def n_constraints(self) -> int:
        """Number of the [`constraints`][]."""
        return len(self.bounded_above) + len(self.bounded_below) + self.n_path

    def constraints(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " c"]:
        """Constraint values `(n_constraints,)` at a state `(n,)` and a control `(m,)`.

        They must not exceed zero: states minus their upper bounds, lower bounds minus states, path
        constraints. An infinite bound gives minus one, so that it is never active.
        """
        above = jnp.array(self.bounded_above, dtype=int)
        below = jnp.array(self.bounded_below, dtype=int)
        parts = [x[above] - self.state_upper[above], self.state_lower[below] - x[below]]
        if self.path_constraints is not None:
            parts.append(self.path_constraints(x, u))
        value = jnp.concatenate(parts)
        return jnp.where(value == -jnp.inf, -1.0, value)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """A name for each of the [`constraints`][]."""
        return (
            *(f"upper bound of state {i}" for i in self.bounded_above),
            *(f"lower bound of state {i}" for i in self.bounded_below),
            *(f"path constraint {i}" for i in range(self.n_path)),
        )

    def cost_rate(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, ""]:
        """Running cost L at a state `(n,)` and a control `(m,)`; 1 for minimum time."""
        if self.running_cost is None:
            return jnp.ones(()) if self.terminal_cost is None else jnp.zeros(())
        return jnp.asarray(self.running_cost(x, u))

    def end_cost(self, time: Float[Array, ""], x: Float[Array, " n"]) -> Float[Array, ""]:
        """Terminal cost Psi at a final time [s] and a final state `(n,)`."""
        if self.terminal_cost is None:
            return jnp.zeros(())
        return jnp.asarray(self.terminal_cost(time, *self._own(x)))

    def boundary(
        self, start: Float[Array, " n"], time: Float[Array, ""], end: Float[Array, " n"]
    ) -> Float[Array, " b"]:
        """Errors of the boundary conditions `(n_boundary,)`."""
        if self.boundary_conditions is None:
            return jnp.zeros(0)
        return self.boundary_conditions(start[: self.n_states], time, *self._own(end))

    def end_function(
        self,
        start: Float[Array, " n"],
        time: Float[Array, ""],
        end: Float[Array, " n"],
        multiplier: Float[Array, " b"],
    ) -> Float[Array, ""]:
        r"""Terminal cost plus the boundary conditions times their multipliers `(n_boundary,)`.

        At a free end the costates and the Hamiltonian balance its gradients.
        """
        return self.end_cost(time, end) + multiplier @ self.boundary(start, time, end)

    def _own(self, z: Array) -> tuple[Array, ...]:
        """States, and design variables where there are any, of an extended state."""
        n = self.n_states
        return (z[:n], z[n : n + self.n_design]) if self.n_design else (z[:n],)
