"""The statement of an optimal control problem: plain functions and bounds."""

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from jaxgrip.precision import require_x64


class Free(eqx.Module):
    """A final time that the solver chooses.

    **Arguments:** `guess`, a starting value [s]; `lower` and `upper`, bounds [s] (defaults 0 and
    infinity).
    """

    guess: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]

    def __init__(self, guess: ArrayLike, lower: ArrayLike = 0.0, upper: ArrayLike = np.inf):
        self.guess = jnp.asarray(guess, dtype=float)
        self.lower = jnp.asarray(lower, dtype=float)
        self.upper = jnp.asarray(upper, dtype=float)


def _boundary(values: Sequence | ArrayLike, name: str) -> tuple[Float[Array, " n"], tuple]:
    """Split a boundary state into numbers and the indices that it fixes; None leaves one free."""
    if isinstance(values, Sequence):
        fixed = tuple(i for i, value in enumerate(values) if value is not None)
        values = [0.0 if value is None else value for value in values]
    else:
        fixed = tuple(range(jnp.shape(values)[0] if jnp.ndim(values) else 0))
    values = jnp.asarray(values, dtype=float)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a vector, not an array of shape {values.shape}.")
    return values, fixed


def _bounds(
    bounds: tuple | None, length: int, name: str
) -> tuple[Float[Array, " length"], Float[Array, " length"], tuple[int, ...], tuple[int, ...]]:
    """Lower and upper bounds, and the indices that each of them binds.

    None means no bound, and so does an infinite entry unless it is traced.
    """
    if bounds is None:
        bounds = (np.full(length, -np.inf), np.full(length, np.inf))
    sides, bound = [], []
    for values, none in zip(bounds, (-np.inf, np.inf), strict=True):
        exists = np.ones(length, dtype=bool)
        if isinstance(values, Sequence):
            exists = np.array([value is not None for value in values])
            values = [none if value is None else value for value in values]
        values = jnp.asarray(values, dtype=float)
        if values.shape != (length,):
            raise ValueError(
                f"{name} must be two vectors of length {length}, not shapes "
                f"{np.shape(bounds[0])} and {np.shape(bounds[1])}."
            )
        sides.append(values)
        if is_concrete(values):
            exists &= np.asarray(values) != none
        bound.append(tuple(np.flatnonzero(exists).tolist()))
    return *sides, *bound


def is_concrete(tree) -> bool:
    """Whether no array of a pytree is traced."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


class Problem(eqx.Module):
    r"""Minimise $\Psi(t_F, x(t_F)) + \int_0^{t_F} L(x, u)\,dt$ subject to $x' = f(x, u)$.

    States, controls and the rates of controls may be bounded, and $g(x, u) \le 0$ asked for.

    Everything that is an array, also inside `dynamics` when that is a pytree, may be traced: a
    solution can be differentiated with respect to it, and other numbers do not recompile.

    **Arguments:**

    - `dynamics`: $f(x, u)$, states `(n,)` and controls `(m,)` to rates `(n,)`. Give a pytree
      (`equinox.Module`, `jax.tree_util.Partial`) where it holds numbers that change.
    - `running_cost`: $L(x, u)$, a scalar; left out it is 0, or without a terminal cost 1, that is
      minimum time, which needs a free final time.
    - `terminal_cost`: $\Psi(t_F, x(t_F))$, a scalar.
    - `initial_state`: `(n,)`.
    - `final_state`: `(n,)`; an entry None leaves that component free.
    - `final_time`: a number [s] or [`Free`][].
    - `control_bounds`: `(lower, upper)`, each `(m,)`; infinite entries mean no bound.
    - `rate_bounds`: `(lower, upper)`, each `(m,)`, of the controls' rates of change [1/s]; None or
      an infinite number means no bound.
    - `state_bounds`: `(lower, upper)`, each `(n,)`; None or an infinite number means no bound.
    - `path_constraints`: $g(x, u)$, `(k,)`, kept at or below zero.

    **Raises:** `ValueError` with one sentence when shapes, bounds or times contradict each other;
    `RuntimeError` when 64-bit mode is off.

    Source: specs/000b, section 1.
    """

    dynamics: Callable
    running_cost: Callable | None
    terminal_cost: Callable | None
    initial_state: Float[Array, " n"]
    final_state: Float[Array, " n"]
    final_time: Free | Float[Array, ""]
    lower: Float[Array, " m"]
    upper: Float[Array, " m"]
    rate_lower: Float[Array, " m"]
    rate_upper: Float[Array, " m"]
    state_lower: Float[Array, " n"]
    state_upper: Float[Array, " n"]
    path_constraints: Callable | None
    fixed_final: tuple[int, ...] = eqx.field(static=True)
    limited: tuple[int, ...] = eqx.field(static=True)
    bounded_below: tuple[int, ...] = eqx.field(static=True)
    bounded_above: tuple[int, ...] = eqx.field(static=True)
    n_path: int = eqx.field(static=True)

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
        rate_bounds: tuple[Sequence | ArrayLike, Sequence | ArrayLike] | None = None,
        state_bounds: tuple[Sequence | ArrayLike, Sequence | ArrayLike] | None = None,
        path_constraints: Callable | None = None,
    ):
        require_x64("Optimal control")
        if not callable(dynamics):
            raise ValueError(f"dynamics must be a function of states and controls, not {dynamics}.")
        if not isinstance(control_bounds, Sequence) or len(control_bounds) != 2:
            raise ValueError("control_bounds must be a pair (lower, upper).")
        self.dynamics = dynamics
        self.running_cost = running_cost
        self.terminal_cost = terminal_cost
        self.initial_state, fixed_initial = _boundary(initial_state, "initial_state")
        self.final_state, self.fixed_final = _boundary(final_state, "final_state")
        is_free = isinstance(final_time, Free)
        # A Free made before 64-bit mode was on holds single precision.
        as_float = partial(jnp.asarray, dtype=float)
        self.final_time = jax.tree.map(as_float, final_time)
        self.lower, self.upper = (jnp.asarray(bound, dtype=float) for bound in control_bounds)
        n = self.initial_state.shape[0]
        if len(fixed_initial) != n:
            raise ValueError("initial_state must fix every component; None is not allowed there.")
        if n == 0:
            raise ValueError("initial_state is empty: a problem needs at least one state.")
        if self.final_state.shape != (n,):
            raise ValueError(
                f"final_state has {self.final_state.shape[0]} entries, initial_state has {n}."
            )
        if self.lower.ndim != 1 or self.lower.shape != self.upper.shape:
            raise ValueError(
                "control_bounds must be two vectors of one length, not shapes "
                f"{self.lower.shape} and {self.upper.shape}."
            )
        self.rate_lower, self.rate_upper, slow_down, slow_up = _bounds(
            rate_bounds, self.lower.shape[0], "rate_bounds"
        )
        self.limited = tuple(sorted({*slow_down, *slow_up}))
        self.state_lower, self.state_upper, self.bounded_below, self.bounded_above = _bounds(
            state_bounds, n, "state_bounds"
        )
        self.path_constraints = path_constraints
        if self.lower.shape[0] == 0:
            raise ValueError("control_bounds are empty: a problem needs at least one control.")
        if running_cost is None and terminal_cost is None and not is_free:
            raise ValueError(
                "Minimum time needs final_time=Free(guess=...); a fixed final_time needs a "
                "running_cost or a terminal_cost."
            )
        out = eqx.filter_eval_shape(dynamics, self.initial_state, self.lower)
        if getattr(out, "shape", None) != (n,):
            raise ValueError(
                f"dynamics must return the {n} state rates, an array of shape ({n},), not {out}."
            )
        if out.dtype != self.initial_state.dtype:
            raise ValueError(f"dynamics must return 64-bit numbers, not {out.dtype}.")
        self.n_path = 0
        if path_constraints is not None:
            out = eqx.filter_eval_shape(path_constraints, self.initial_state, self.lower)
            if len(getattr(out, "shape", ())) != 1:
                raise ValueError(f"path_constraints must return a vector, not {out}.")
            self.n_path = out.shape[0]
        time = jnp.zeros(())
        for name, cost, args in (
            ("running_cost", running_cost, (self.initial_state, self.lower)),
            ("terminal_cost", terminal_cost, (time, self.final_state)),
        ):
            out = None if cost is None else eqx.filter_eval_shape(cost, *args)
            if cost is not None and getattr(out, "shape", None) != ():
                raise ValueError(f"{name} must return a scalar, not {out}.")
        self.check()

    def check(self):
        """Raise `ValueError` where numbers contradict each other; traced ones are passed over."""
        time = self.final_time
        times = (time.guess, time.lower, time.upper) if isinstance(time, Free) else (time,)
        bounds = (self.lower, self.upper, self.rate_lower, self.rate_upper)
        bounds += (self.state_lower, self.state_upper)
        if not is_concrete((self.initial_state, self.final_state, *bounds, *times)):
            return
        for name in ("initial_state", "final_state"):
            bad = np.flatnonzero(~np.isfinite(getattr(self, name)))
            if bad.size:
                raise ValueError(f"{name}[{bad[0]}] is {getattr(self, name)[bad[0]]}, not finite.")
        for what, lower, upper in (
            ("control", self.lower, self.upper),
            ("state", self.state_lower, self.state_upper),
        ):
            bad = np.flatnonzero(~(np.asarray(lower) < np.asarray(upper)))
            if bad.size:
                j = bad[0]
                raise ValueError(
                    f"{what}_bounds of {what} {j}: lower bound {lower[j]} must be below upper "
                    f"bound {upper[j]}."
                )
        self._check_boundary_states()
        bad = np.flatnonzero(~(np.asarray(self.rate_lower) < 0.0) | ~(self.rate_upper > 0.0))
        if bad.size:
            j = bad[0]
            raise ValueError(
                f"rate_bounds of control {j}: lower bound {self.rate_lower[j]} must be negative "
                f"and upper bound {self.rate_upper[j]} positive."
            )
        if isinstance(time, Free):
            if not 0.0 <= time.lower < time.upper:
                raise ValueError(
                    f"final_time: bounds {time.lower} and {time.upper} must satisfy "
                    "0 <= lower < upper."
                )
            if not time.lower < time.guess < time.upper:
                raise ValueError(
                    f"final_time: the guess {time.guess} must lie between the bounds "
                    f"{time.lower} and {time.upper}."
                )
        elif not 0.0 < time < np.inf:
            raise ValueError(f"final_time must be a positive number, not {time}.")

    def _check_boundary_states(self):
        for name, indices in (("initial_state", range(self.n)), ("final_state", self.fixed_final)):
            state = np.asarray(getattr(self, name))
            outside = (state < self.state_lower) | (state > self.state_upper)
            bad = [i for i in indices if outside[i]]
            if bad:
                i = bad[0]
                raise ValueError(
                    f"{name}[{i}] is {state[i]}, outside its state_bounds {self.state_lower[i]} "
                    f"and {self.state_upper[i]}."
                )

    @property
    def n(self) -> int:
        """Number of states."""
        return self.initial_state.shape[0]

    @property
    def m(self) -> int:
        """Number of controls."""
        return self.lower.shape[0]

    @property
    def is_time_free(self) -> bool:
        """Whether the solver chooses the final time."""
        return isinstance(self.final_time, Free)

    @property
    def rate_span(self) -> Float[Array, " m"]:
        """Width of the rate bounds `(m,)` [1/s], one where a side is open."""
        span = self.rate_upper - self.rate_lower
        return jnp.where(jnp.isfinite(span), span, 1.0)

    @property
    def is_fixed_final(self) -> Bool[np.ndarray, " n"]:
        """Which components of the final state are fixed."""
        return np.isin(np.arange(self.n), self.fixed_final)

    @property
    def n_constraints(self) -> int:
        """Number of the [`constraints`][]."""
        return len(self.bounded_above) + len(self.bounded_below) + self.n_path

    def constraints(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " c"]:
        """What stays at or below zero at a state `(n,)` and a control `(m,)`, `(n_constraints,)`.

        States minus their upper bounds, lower bounds minus states, then the path constraints.
        """
        above = jnp.array(self.bounded_above, dtype=int)
        below = jnp.array(self.bounded_below, dtype=int)
        parts = [x[above] - self.state_upper[above], self.state_lower[below] - x[below]]
        if self.path_constraints is not None:
            parts.append(self.path_constraints(x, u))
        return jnp.concatenate(parts)

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
        return self.running_cost(x, u)

    def end_cost(self, time: Float[Array, ""], x: Float[Array, " n"]) -> Float[Array, ""]:
        """Terminal cost Psi at a final time [s] and a final state `(n,)`."""
        if self.terminal_cost is None:
            return jnp.zeros(())
        return self.terminal_cost(time, x)
