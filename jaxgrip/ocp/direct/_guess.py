"""Guesses from which the transcription starts."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.ocp.statement import Problem


class Guess(NamedTuple):
    """Start of a transcription: states `(N+1, n)`, controls `(N, m)`, final time [s]; `lengths`
    `(N,)` of the intervals, as shares of the final time.
    """

    x: Float[Array, "nodes n"]
    u: Float[Array, "intervals m"]
    final_time: Float[Array, ""]
    lengths: Float[Array, " intervals"]


def straight_line(problem: Problem, intervals: int) -> Guess:
    """States on the straight line between the boundary states, controls mid-range."""
    start, end, lower, upper = map(
        np.asarray, (problem.initial_state, problem.final_state, problem.lower, problem.upper)
    )
    s = np.linspace(0.0, 1.0, intervals + 1)[:, None]
    with np.errstate(invalid="ignore"):
        middle = np.where(
            np.isfinite(lower) & np.isfinite(upper),
            0.5 * (lower + upper),
            np.clip(0.0, lower + 1.0, upper - 1.0),
        )
    u = np.broadcast_to(middle, (intervals, problem.m))
    lengths = np.full(intervals, 1.0 / intervals)
    return jax.device_put(Guess(start * (1.0 - s) + end * s, u, problem.time_guess, lengths))


@eqx.filter_jit
def _end_state(problem: Problem, guess: Guess) -> Float[Array, " n"]:
    """Final state of a motion with the controls of a guess, by Heun's method."""

    def step(x, interval):
        u, h = interval
        rate = problem.dynamics(x, u)
        return x + 0.5 * h * (rate + problem.dynamics(x + h * rate, u)), None

    return jax.lax.scan(step, guess.x[0], (guess.u, guess.final_time * guess.lengths))[0]


def bent_line(problem: Problem, intervals: int, seed: int) -> Guess:
    """The straight line plus half a sine wave of random amplitude in each state.

    The amplitude is of the size of the state's change. Free components of the final state are those
    that the controls of the guess lead to.
    """
    guess = straight_line(problem, intervals)
    x = np.asarray(guess.x)
    if len(problem.fixed_final) < problem.n:
        end = np.asarray(_end_state(problem, guess))
        end = np.where(problem.is_fixed_final | ~np.isfinite(end), x[-1], end)
        x = x + np.linspace(0.0, 1.0, intervals + 1)[:, None] * (end - x[-1])
    bow = np.sin(np.pi * np.linspace(0.0, 1.0, intervals + 1))[:, None]
    amount = np.random.default_rng(seed).normal(size=problem.n)
    return guess._replace(x=jax.device_put(x + bow * (amount * np.abs(x[-1] - x[0]))))
