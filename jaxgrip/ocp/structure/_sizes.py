"""Typical sizes along a direct solution, and positions between bounds."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxgrip.ocp.direct import DirectSolution
from jaxgrip.ocp.hamiltonian import boundary_sizes
from jaxgrip.ocp.statement import Problem


class Sizes(NamedTuple):
    """Typical sizes of states and costates, controls, costates of limited controls, time [s],
    switching functions, Hamiltonian, and of all constraints and boundary conditions.
    """

    state: Float[np.ndarray, " n"]
    costate: Float[np.ndarray, " n"]
    control: Float[np.ndarray, " m"]
    rate_costate: Float[np.ndarray, " m"]
    time: Float[np.ndarray, ""]
    switching: Float[np.ndarray, " m"]
    hamiltonian: Float[np.ndarray, ""]
    constraint: Float[np.ndarray, " c"]
    boundary: Float[np.ndarray, " b"]


def _largest(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Largest magnitude of each column, with a floor for columns that are all but zero."""
    largest = np.max(np.abs(values), axis=0)
    floor = 1e-6 * np.max(largest * unit) / unit
    return np.where(largest > floor, largest, np.where(floor > 0.0, floor, 1.0))


def sizes_of(problem: Problem, direct: DirectSolution) -> Sizes:
    """Typical sizes along a direct solution."""
    time = direct.final_time
    state = np.max(np.abs(direct.x), axis=0)
    largest = np.max(state)
    state = np.where(state > 1e-9 * largest, state, largest if largest > 0.0 else 1.0)
    span = np.asarray(problem.upper) - np.asarray(problem.lower)
    span = np.where(np.isfinite(span), span, np.maximum(np.max(np.abs(direct.u), axis=0), 1e-3))
    costate = _largest(direct.costate, state)
    # If all costates vanish, the curvature of the cost is their measure.
    curved = time * np.max(np.abs(direct.curvature) * span**2)
    if np.max(costate * state) < 1e-9 * curved:
        costate = curved / state
    hamiltonian = np.max(costate * state) / time
    # The switching function of a control inside its bounds is rounding error.
    least = 1e-3 * np.abs(direct.objective) / (time * span)
    least = np.maximum(least, np.max(np.abs(direct.curvature), axis=0) * span)
    constraint = np.max(np.abs(direct.constraint), axis=0)
    return Sizes(
        state=state,
        costate=costate,
        control=span,
        rate_costate=np.maximum(hamiltonian, least.max() * span.max()) * time / span,
        time=np.asarray(time),
        switching=np.maximum(_largest(direct.switching_function, span), least),
        hamiltonian=hamiltonian,
        constraint=np.where(constraint > 0.0, constraint, 1.0),
        boundary=np.asarray(boundary_sizes(problem, direct.x[[0, -1]], state, time)),
    )


def _map_between(values: np.ndarray, lower, upper, span: np.ndarray) -> np.ndarray:
    """Values mapped to [-1, 1] between their bounds; towards 0 where there is no bound."""
    above = np.where(np.isfinite(lower), 2.0 * (values - lower) / span - 1.0, np.inf)
    below = np.where(np.isfinite(upper), 1.0 - 2.0 * (upper - values) / span, -np.inf)
    two_sided = np.isfinite(lower) & np.isfinite(upper)
    return np.where(two_sided, above, np.where(above < 0.0, above, np.maximum(below, 0.0)))


def position_of(problem: Problem, u: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Controls `(K, m)` mapped to [-1, 1] between their bounds."""
    return _map_between(u, np.asarray(problem.lower), np.asarray(problem.upper), span)


def rate_position_of(problem: Problem, rate: np.ndarray) -> np.ndarray:
    """Rates of controls `(K, m)` mapped to [-1, 1] between their bounds."""
    lower, upper = np.asarray(problem.rate_lower), np.asarray(problem.rate_upper)
    return _map_between(rate, lower, upper, problem.rate_span)


def end_bounds(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Bounds `(1 + n,)` of final time and initial state, infinite for a fixed component."""
    (earliest, latest), fixed = problem.time_bounds, problem.is_fixed_initial
    return (
        np.append(earliest, np.where(fixed, -np.inf, problem.start_lower)),
        np.append(latest, np.where(fixed, np.inf, problem.start_upper)),
    )
