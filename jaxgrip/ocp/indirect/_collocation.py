"""Radau IIA collocation."""

import numpy as np
from scipy.special import roots_jacobi


def radau(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `(s,)` and matrix `(s, s)` of the Radau IIA method on [0, 1]; its last row weighs.

    Source: Hairer 1996, section IV.5.
    """
    inner = roots_jacobi(stages - 1, 1, 0)[0] if stages > 1 else np.zeros(0)
    c = np.append(0.5 * (inner + 1.0), 1.0)
    powers = np.arange(1, stages + 1)
    return c, (c[:, None] ** powers / powers) @ np.linalg.inv(c[:, None] ** (powers - 1))


def to_monomials(stages: int) -> np.ndarray:
    """Matrix `(s, s)` from values at the Radau nodes to the coefficients of their polynomial."""
    nodes, _ = radau(stages)
    return np.linalg.inv(nodes[:, None] ** np.arange(stages))


def stage_times(times: np.ndarray, intervals: int, stages: int) -> np.ndarray:
    """Times `(arcs, intervals, s)` of the stages of arcs with end `times` [s]."""
    nodes, _ = radau(stages)
    starts = np.concatenate([[0.0], times[:-1]])
    h = (times - starts) / intervals
    return starts[:, None, None] + h[:, None, None] * (np.arange(intervals)[:, None] + nodes)
