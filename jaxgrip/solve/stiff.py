"""diffrax's implicit method for stiff systems, with the dense systems of `dense`."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optimistix
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

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
