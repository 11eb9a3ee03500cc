"""The dense systems of `dense` as a solver of lineax, for the implicit methods of diffrax."""

from typing import Any

import equinox as eqx
import jax
import lineax
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from jaxgrip.solve import dense


class _State(eqx.Module):
    factors: dense.LU
    structures: tuple[PyTree, PyTree] = eqx.field(static=True)
    trans: bool = eqx.field(static=True)


class LU(lineax.AbstractLinearSolver):
    """`lineax.LU` whose batches do not wait for each other."""

    def init(self, operator: lineax.AbstractLinearOperator, options: dict[str, Any]) -> _State:
        """Factors of a square operator."""
        structures = operator.out_structure(), operator.in_structure()
        return _State(dense.lu_factor(operator.as_matrix()), structures, False)

    def compute(
        self, state: _State, vector: PyTree, options: dict[str, Any]
    ) -> tuple[PyTree, lineax.RESULTS, dict[str, Any]]:
        """Solution for a right side of the operator's output structure."""
        flat, _ = ravel_pytree(vector)
        zeros = jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), state.structures[1])
        _, restore = ravel_pytree(zeros)
        solution = restore(dense.lu_solve(state.factors, flat, trans=state.trans))
        return solution, lineax.RESULTS.successful, {}

    def transpose(self, state: _State, options: dict[str, Any]) -> tuple[_State, dict[str, Any]]:
        """The same for the transposed operator."""
        return _State(state.factors, state.structures[::-1], not state.trans), {}

    def conj(self, state: _State, options: dict[str, Any]) -> tuple[_State, dict[str, Any]]:
        """The same: all numbers are real."""
        return state, {}

    def assume_full_rank(self) -> bool:
        """A singular operator has no solution here."""
        return True
