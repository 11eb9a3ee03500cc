"""diffrax's implicit method for stiff systems, with the dense systems of `dense`.

Once for any system, in as many unknowns as it has states; once for those that know better.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optimistix
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PyTree

from jaxgrip.solve import dense


class _State(eqx.Module):
    factors: dense.LU
    structures: tuple[PyTree, PyTree] = eqx.field(static=True)
    trans: bool = eqx.field(static=True)


class LU(lineax.AbstractLinearSolver):
    """`lineax.LU` by the batched kernels of `dense`."""

    def init(self, operator: lineax.AbstractLinearOperator, options: dict[str, Any]) -> _State:
        """Factors of a square operator."""
        structures = operator.out_structure(), operator.in_structure()
        return _State(dense.lu_factor(operator.as_matrix()), structures, False)

    def compute(
        self, state: _State, vector: PyTree, options: dict[str, Any]
    ) -> tuple[PyTree, lineax.RESULTS, dict[str, Any]]:
        """Solution for a right-hand side of the operator's output structure."""
        flat, _ = ravel_pytree(vector)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), state.structures[1])
        _, restore = ravel_pytree(zeros)
        solution = restore(dense.lu_solve(state.factors, flat, trans=state.trans))
        return solution, lineax.RESULTS.successful, {}

    def transpose(self, state: _State, options: dict[str, Any]) -> tuple[_State, dict[str, Any]]:
        """State of the transposed operator."""
        return _State(state.factors, state.structures[::-1], not state.trans), {}

    def conj(self, state: _State, options: dict[str, Any]) -> tuple[_State, dict[str, Any]]:
        """The same state, as all numbers are real."""
        return state, {}

    def assume_full_rank(self) -> bool:
        """A singular operator has no solution here."""
        return True


class Kvaerno5(diffrax.Kvaerno5):
    """`diffrax.Kvaerno5` by the batched kernels of `dense`, as are its derivatives.

    Stages are found by the method's own `root_finder`. Their derivatives are those of one more
    Newton step from each stage, exact by the implicit function theorem.
    """

    root_finder: optimistix.AbstractRootFinder = diffrax.with_stepsize_controller_tols(
        diffrax.VeryChord
    )(linear_solver=LU())

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """A step of diffrax's method."""
        # Variables that the rate closes over may have derivatives too.
        rate = eqx.filter_closure_convert(lambda t, y: terms.vf(t, y, args), t0, y0)
        return _step(self, rate, t0, t1, y0, solver_state, made_jump)


def newton_kvaerno5() -> Kvaerno5:
    """`Kvaerno5` with full Newton steps, for friction and other rates with kinks.

    With one matrix for the whole step Newton's method stalls at the kink of |v|. Its tolerances are
    beyond 32 bits.
    """
    return Kvaerno5(root_finder=optimistix.Newton(rtol=1e-8, atol=1e-10, linear_solver=LU()))


class Stages(eqx.Module):
    """What `StagedKvaerno5` needs to know of a system y' = rate(t, y, args).

    - `rate(t, y, args)`.
    - `explicit(t, y, args)`: the same args, where functions do not close over traced numbers.
    - `begin(t, y, args)`: the state at the beginning of a step, after what jumps then.
    - `stage(t, h, base, args)`: an implicit Euler step of length h from the state `base`, an object
      of the following methods. `unknowns(y)` of a state; `state(x)` for unknowns;
      `residual(x)`, with derivatives; `linear(x)`, what is needed of its linearisation, once for
      all stages of a step; `improved(x, linear)`: better unknowns and the state by them.
    """

    @abc.abstractmethod
    def rate(self, t: Array, y: PyTree, args: Any) -> PyTree:
        """Rates of the state."""

    @abc.abstractmethod
    def explicit(self, t: Array, y: PyTree, args: Any) -> Any:
        """The args, with all numbers as leaves."""

    @abc.abstractmethod
    def begin(self, t: Array, y: PyTree, args: Any) -> PyTree:
        """The state at the beginning of a step."""

    @abc.abstractmethod
    def stage(self, t: Array, h: Array, base: PyTree, args: Any) -> Any:
        """An implicit Euler step."""


class StagedKvaerno5(diffrax.Kvaerno5):
    """`diffrax.Kvaerno5` for a system that solves its own stages, in fewer unknowns than states.

    A step in which a stage does not converge is rejected. Derivatives are those of one more Newton
    step from each stage, exact by the implicit function theorem.

    **Fields:** `system`: its `Stages`; `rtol`, `atol`: how well their unknowns are found.
    """

    system: Stages | None = None
    rtol: ArrayLike = 1e-8
    atol: ArrayLike = 1e-10

    def init(self, terms, t0, t1, y0, args):
        """No state: the rate at the beginning of a step may differ from that at the last end."""
        return None

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """A step of the method."""
        args = self.system.explicit(t0, y0, args)
        y1, error, dense_info, _ = _staged(self, args, t0, t1, y0)
        return y1, error, dense_info, None, diffrax.RESULTS.successful


class _Rows(NamedTuple):
    """Of each implicit stage: its index, weights of earlier increments, predictor and node."""

    index: Any
    weights: Any
    predictor: Any
    node: Any


def _rows() -> _Rows:
    tableau = diffrax.Kvaerno5.tableau
    count = len(tableau.b_sol)
    weights, predictor = np.zeros((2, count - 1, count))
    for i, (row, guess) in enumerate(zip(tableau.a_lower, tableau.a_predictor, strict=True)):
        weights[i, : i + 1], predictor[i, : i + 1] = row, guess
    return _Rows(np.arange(1, count), weights, predictor, np.asarray(tableau.c))


_DIAGONAL = float(diffrax.Kvaerno5.tableau.a_diagonal[-1])
# Steps that take more are better shortened.
_MOST_IMPROVEMENTS = 8


def _increments(
    system: Stages, each: Any, solve: Callable[..., tuple], args: Any, t0, t1, y0
) -> tuple:
    """End of a step, its error, what the interpolation needs, and what `solve` gives else.

    `solve(stage, guess, each)` gives the state at the end of a stage, for the state `guess`, and
    more.
    """
    tableau = diffrax.Kvaerno5.tableau
    h = t1 - t0
    y0 = system.begin(t0, y0, args)
    flat, restore = ravel_pytree(y0)
    first = h * ravel_pytree(system.rate(t0, y0, args))[0]

    def advance(found: Float[Array, "s n"], given: tuple) -> tuple:
        row, each = given
        base = flat + row.weights @ found
        guess = restore(base + _DIAGONAL * (row.predictor @ found))
        stage = system.stage(t0 + row.node * h, _DIAGONAL * h, restore(base), args)
        y, more = solve(stage, guess, each)
        return found.at[row.index].set((ravel_pytree(y)[0] - base) / _DIAGONAL), more

    start = jnp.zeros((len(tableau.b_sol), len(flat)), flat.dtype).at[0].set(first)
    found, more = lax.scan(advance, start, (jax.tree.map(jnp.asarray, _rows()), each))
    y1 = restore(flat + tableau.b_sol @ found)
    ks = jax.vmap(restore)(found)
    return y1, restore(tableau.b_error @ found), {"y0": y0, "y1": y1, "k": ks}, more


@eqx.filter_custom_jvp
def _staged(solver: StagedKvaerno5, args: Any, t0, t1, y0) -> tuple:
    start = solver.system.stage(t0, _DIAGONAL * (t1 - t0), y0, args)
    linear = start.linear(start.unknowns(y0))

    def solve(stage: Any, guess: PyTree, _: None) -> tuple:
        def improve(carry: tuple) -> tuple:
            count, x, _, _ = carry
            new, y = stage.improved(x, linear)
            scale = solver.atol + solver.rtol * jnp.abs(new)
            return count + 1, new, y, jnp.max(jnp.abs(new - x) / scale)

        def is_far(carry: tuple) -> Array:
            # NaN is not far: further steps would not help.
            return (carry[3] > 1.0) & (carry[0] < _MOST_IMPROVEMENTS)

        first = improve((0, stage.unknowns(guess), guess, jnp.inf))
        _, x, y, change = lax.while_loop(is_far, improve, first)
        return y, (x, change <= 1.0)

    y1, error, dense_info, (x, is_found) = _increments(solver.system, None, solve, args, t0, t1, y0)
    error = jax.tree.map(lambda e: jnp.where(jnp.all(is_found), e, jnp.inf), error)
    return y1, error, dense_info, x


@_staged.def_jvp
def _staged_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    out = _staged(*primals)
    system = primals[0].system

    def factors(stage: Any, guess: PyTree, x: Array) -> tuple:
        return stage.state(x), dense.lu_factor(jax.jacfwd(stage.residual)(x))

    lu = _increments(system, out[3], factors, *primals[1:])[3]

    def solve(stage: Any, guess: PyTree, each: tuple) -> tuple:
        x, lu = each
        return stage.state(x - dense.lu_solve(lu, stage.residual(x))), None

    def newton(*inputs: Any) -> tuple:
        return _increments(system, (out[3], lu), solve, *inputs)[:3]

    _, change = eqx.filter_jvp(newton, primals[1:], tangents[1:])
    return out, (*change, jnp.zeros_like(out[3]))


class _Rate(eqx.Module):
    rate: Callable

    def __call__(self, t: Array, y: PyTree, args: None) -> PyTree:
        return self.rate(t, y)


@eqx.filter_custom_jvp
def _step(solver: Kvaerno5, rate: Callable, t0, t1, y0, state, made_jump) -> tuple:
    term = diffrax.ODETerm(_Rate(rate))
    return diffrax.Kvaerno5.step(solver, term, t0, t1, y0, None, state, made_jump)


@_step.def_jvp
def _step_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    out = _step(*primals)
    newton = _newton(out[2]["k"], *primals[1:5])
    _, change = eqx.filter_jvp(newton, primals[1:5], tangents[1:5])
    # The saved rate is that at the start of the next step, which takes its derivative there.
    state = jax.tree.map(lambda x: jnp.zeros_like(x) if eqx.is_inexact_array(x) else None, out[3])
    return out, (*change, state, jax.tree.map(lambda _: None, out[4]))


def _newton(stages: PyTree, *inputs: Any) -> Callable[..., tuple]:
    """A Newton step from the `stages` of a step with these inputs, as a function of the inputs.

    It gives the end of the step, its error, and what the interpolation needs. Its matrices are
    constants of these inputs, as for the derivative of a root.
    """
    tableau = diffrax.Kvaerno5.tableau
    weights = np.zeros((len(tableau.b_sol),) * 2)
    for i, row in enumerate(tableau.a_lower):
        weights[i + 1, : i + 1] = row
    diagonal, nodes = tableau.a_diagonal[-1], jnp.array([0.0, *tableau.c])
    known = jax.vmap(lambda k: ravel_pytree(k)[0])(stages)

    def increment(rate: Callable, t0, t1, y0, node: Array, change: Array) -> Array:
        flat, restore = ravel_pytree(y0)
        h = t1 - t0
        return h * ravel_pytree(rate(t0 + node * h, restore(flat + change)))[0]

    def factors(node: Array, change: Array) -> dense.LU:
        slope = jax.jacfwd(lambda change: increment(*inputs, node, change))(change)
        return dense.lu_factor(jnp.eye(len(slope)) - diagonal * slope)

    implicit = nodes[1:], weights[1:] @ known + diagonal * known[1:]
    each = np.arange(1, len(nodes)), weights[1:], nodes[1:], known[1:], jax.vmap(factors)(*implicit)

    def newton(*inputs: Any) -> tuple:
        def stage(found: Float[Array, "s n"], each: tuple) -> tuple:
            index, row, node, k, lu = each
            residual = k - increment(*inputs, node, row @ found + diagonal * k)
            return found.at[index].set(k - dense.lu_solve(lu, residual)), None

        first = increment(*inputs, nodes[0], jnp.zeros_like(known[0]))
        found, _ = lax.scan(stage, jnp.zeros_like(known).at[0].set(first), each)
        y0 = inputs[-1]
        flat, restore = ravel_pytree(y0)
        y1 = restore(flat + tableau.b_sol @ found)
        ks = jax.vmap(restore)(found)
        return y1, restore(tableau.b_error @ found), {"y0": y0, "y1": y1, "k": ks}

    return newton
