"""Guesses from which the transcription starts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
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
    s = jnp.linspace(0.0, 1.0, intervals + 1)[:, None]
    x = problem.initial_state[None] * (1.0 - s) + problem.final_state[None] * s
    middle = jnp.where(
        jnp.isfinite(problem.lower) & jnp.isfinite(problem.upper),
        0.5 * (problem.lower + problem.upper),
        jnp.clip(0.0, problem.lower + 1.0, problem.upper - 1.0),
    )
    u = jnp.broadcast_to(middle, (intervals, problem.m))
    return Guess(x, u, problem.time_guess, jnp.full(intervals, 1.0 / intervals))


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
    if len(problem.fixed_final) < problem.n:
        end = _end_state(problem, guess)
        end = jnp.where(problem.is_fixed_final | ~jnp.isfinite(end), guess.x[-1], end)
        share = jnp.linspace(0.0, 1.0, intervals + 1)[:, None]
        guess = guess._replace(x=guess.x + share * (end - guess.x[-1])[None])
    bow = np.sin(np.pi * np.linspace(0.0, 1.0, intervals + 1))[:, None]
    amount = np.random.default_rng(seed).normal(size=problem.n)
    return guess._replace(x=guess.x + bow * (amount * np.abs(guess.x[-1] - guess.x[0])))
