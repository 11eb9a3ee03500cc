"""The unknowns of multiple shooting and the structure that they belong to, as data."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import roots_jacobi

from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import LOWER, UPPER, Features, Scales


class Arcs(NamedTuple):
    """Unknowns of the boundary-value problem.

    y = (x, costate, limited controls, their costates), v = (controls, multipliers of constraints).
    `start` `(arcs, y)` at the beginning of each arc, `stage` `(arcs, intervals, s, y)`, `stage_v`
    `(arcs, intervals, s, v)`, `jump` `(arcs - 1, P)` of the costate, `times` `(arcs,)` ends of the
    arcs [s], `boundary_multiplier` `(b,)`. The last stage of an interval is its end.
    """

    start: Float[Array, "arcs y"]
    stage: Float[Array, "arcs intervals s y"]
    stage_v: Float[Array, "arcs intervals s v"]
    jump: Float[Array, "boundaries P"]
    times: Float[Array, " arcs"]
    boundary_multiplier: Float[Array, " b"]


def radau(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `(s,)` and matrix `(s, s)` of the Radau IIA method on [0, 1]; its last row weighs.

    Source: Hairer, Wanner, Solving Ordinary Differential Equations II, section IV.5.
    """
    inner = roots_jacobi(stages - 1, 1, 0)[0] if stages > 1 else np.zeros(0)
    c = np.append(0.5 * (inner + 1.0), 1.0)
    powers = np.arange(1, stages + 1)
    return c, (c[:, None] ** powers / powers) @ np.linalg.inv(c[:, None] ** (powers - 1))


def to_monomials(stages: int) -> np.ndarray:
    """Matrix `(s, s)` from values at the Radau nodes to the coefficients of their polynomial."""
    nodes, _ = radau(stages)
    return np.linalg.inv(nodes[:, None] ** np.arange(stages))


def select_bound(
    kinds: Int[Array, " *k"], lower: Float[Array, " *k"], upper: Float[Array, " *k"]
) -> Float[Array, " *k"]:
    """The bound that each kind names; zero where it names none."""
    return jnp.where(kinds == UPPER, upper, jnp.where(kinds == LOWER, lower, 0.0))


def bounds_of(problem: Problem, kinds: Int[Array, " m"]) -> Float[Array, " m"]:
    """The bound `(m,)` of each control that its kind names; zero where it names none."""
    return select_bound(kinds, problem.lower, problem.upper)


def interval_lengths(arcs: Arcs) -> Float[Array, " arcs"]:
    """Length `(arcs,)` of the intervals of each arc [s]."""
    return jnp.diff(arcs.times, prepend=0.0) / arcs.stage.shape[1]


def interval_starts(arcs: Arcs) -> Float[Array, "arcs intervals y"]:
    """(x, costate, ...) at the start of every interval."""
    return jnp.concatenate([arcs.start[:, None], arcs.stage[:, :-1, -1]], axis=1)


def ends_of(arcs: Arcs):
    """y at the start, the final time, y at the end, the multipliers of the boundary conditions."""
    return arcs.start[0], arcs.times[-1], arcs.stage[-1, -1, -1], arcs.boundary_multiplier


class Sizes(NamedTuple):
    """Typical sizes of what belongs to the constraints, `(c,)` and `(c, P)`.

    `highest` derivatives; `level`, those below; `jump` parameters: what moves the costate as much
    as its own size; `boundary_multiplier` `(b,)`, likewise.
    """

    highest: Float[Array, " c"]
    level: Float[Array, "c P"]
    jump: Float[Array, "c P"]
    boundary_multiplier: Float[Array, " b"]


def sizes_of(scales: Scales, features: Features) -> Sizes:
    """Sizes that follow from the scales and the orders of the constraints."""
    order = np.array([order for _, order in features.active], dtype=float)
    k = np.arange(float(features.n_jumps))
    size = scales.constraint[:, None]
    return Sizes(
        scales.constraint / scales.time**order,
        size / scales.time ** k[None],
        scales.hamiltonian * scales.time ** (k[None] + 1.0) / size,
        scales.hamiltonian * scales.time / scales.boundary,
    )
