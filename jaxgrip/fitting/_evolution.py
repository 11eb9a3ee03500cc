"""Evolutionary searches, which need no derivatives: the baselines of gradient methods."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import PyTree

from jaxgrip.checks import brief
from jaxgrip.fitting import _fisher as fisher
from jaxgrip.fitting._bounds import Bounds, leaves, names, place
from jaxgrip.precision import require_x64


class Search(NamedTuple):
    """The best of an evolutionary search.

    `parameters`: tree of the structure of the bounds; `rms`: root mean square of the residuals;
    `evaluations`: number of simulations; `generations`; `seconds`: wall time, without compiling.
    """

    parameters: PyTree
    rms: float
    evaluations: int
    generations: int
    seconds: float


@eqx.filter_jit
def _mean_squares(residuals, bounds, data, positions):
    def one(s):
        return jnp.mean(fisher.flat(residuals(place(bounds, s), *data)) ** 2)

    values = jax.vmap(one)(positions)
    return jnp.where(jnp.isfinite(values), values, jnp.inf)


class _Population:
    """Mean squares of populations of one size, and how many were computed."""

    def __init__(self, residuals, bounds, data, size, budget, first):
        require_x64("An evolutionary search")
        leaves(bounds)
        if not isinstance(budget, int | np.integer) or budget < first:
            raise ValueError(
                f"evaluations is {brief(budget)}; it must be a whole number, at least "
                f"{first}, the size of the first generation."
            )
        self.numbers = (fisher.dynamic(residuals), bounds, fisher.dynamic(data))
        self.n, self.size, self.budget = len(names(bounds)), size, budget
        _mean_squares(*self.numbers, jnp.full((size, self.n), 0.5))
        self.begin, self.evaluations, self.generations = time.perf_counter(), 0, 0

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        # A program for one size also serves smaller populations.
        missing = self.size - len(positions)
        padded = np.pad(positions, ((0, missing), (0, 0)), mode="edge")
        self.evaluations += len(positions)
        return np.asarray(_mean_squares(*self.numbers, jnp.asarray(padded)))[: len(positions)]

    def spent(self, generation: int) -> bool:
        """Whether less is left of the budget than a generation of this size needs."""
        return self.evaluations + generation > self.budget

    def result(self, position: np.ndarray, value: float) -> Search:
        parameters = place(self.numbers[1], jnp.asarray(position))
        rms = float(np.sqrt(value))
        seconds = time.perf_counter() - self.begin
        return Search(parameters, rms, self.evaluations, self.generations, seconds)


def differential_evolution(
    residuals: Callable[..., PyTree],
    bounds: Bounds,
    *data: Any,
    evaluations: int,
    population: int = 64,
    seed: int = 0,
) -> Search:
    """Differential evolution of scipy, the whole population in one batch.

    **Arguments:** `residuals`, `bounds`, `data`: as for [`fit`][], but no derivative is needed;
    residuals that are not finite count as infinite. `evaluations`: budget of simulations, spent in
    whole generations; the search stops earlier when all members are equal. `population`: number of
    members; `seed`: of the random numbers.

    **Returns:** `Search`.

    **Raises:** `ValueError` for bad bounds, a budget below one generation and a population below
    five.

    Source: Storn 1997 (rand/1/bin); own choice of F = 0.7, CR = 0.9.
    """
    if population < 5:
        raise ValueError(f"population is {population}; differential evolution needs at least 5.")
    squares = _Population(residuals, bounds, data, population, evaluations, population)

    def stop(intermediate_result):
        squares.generations += 1
        return squares.spent(population)

    rng = np.random.default_rng(seed)
    found = scipy.optimize.differential_evolution(
        lambda x: squares(x.T),
        [(0.0, 1.0)] * squares.n,
        strategy="rand1bin",
        mutation=0.7,
        recombination=0.9,
        init=scipy.stats.qmc.LatinHypercube(squares.n, rng=rng).random(population),
        maxiter=10**9,
        tol=0.0,
        atol=1e-14,
        polish=False,
        vectorized=True,
        updating="deferred",
        callback=stop,
        rng=rng,
    )
    return squares.result(found.x, found.fun)


def mu_plus_lambda(
    residuals: Callable[..., PyTree],
    bounds: Bounds,
    *data: Any,
    evaluations: int,
    mu: int = 20,
    offspring: int = 100,
    step: float = 0.1,
    seed: int = 0,
) -> Search:
    """An evolution strategy (μ + λ), by the tools of DEAP, all offspring in one batch.

    **Arguments:** as for [`differential_evolution`][]; `mu`: parents; `offspring`: λ; `step`:
    standard deviation, at first, of the logarithm of a parameter's change, or on a linear scale of
    the change as a fraction of the range. It grows when more than a fifth of the offspring are
    better than their parents, and shrinks when fewer are.

    **Returns:** `Search`.

    **Raises:** `ImportError` without the package deap (extra `fit`); `ValueError` as
    [`differential_evolution`][].

    Source: own choice of the sizes; the rule of one fifth: Rechenberg 1973.
    """
    try:
        from deap import base, tools
    except ImportError:
        raise ImportError(
            "mu_plus_lambda needs the package deap: pip install 'jaxgrip[fit]'."
        ) from None
    for name, value in (("mu", mu), ("offspring", offspring)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {brief(value)}; it must be a positive whole number.")

    class Least(base.Fitness):
        weights = (-1.0,)

    class Member(list):
        def __init__(self, position, value):
            super().__init__(position)
            self.fitness = Least((value,))

    squares = _Population(residuals, bounds, data, max(mu, offspring), evaluations, mu)
    rng = np.random.default_rng(seed)
    reach = _reach(bounds)

    def members(positions):
        return [Member(*pair) for pair in zip(positions, squares(positions), strict=True)]

    parents = members(rng.uniform(size=(mu, squares.n)))
    while not squares.spent(offspring):
        chosen = [parents[i] for i in rng.integers(mu, size=offspring)]
        change = step * reach * rng.normal(size=(offspring, squares.n))
        # Reflected at the bounds, so that members do not accumulate there.
        position = np.abs(np.asarray(chosen) + change) % 2.0
        children = members(np.minimum(position, 2.0 - position))
        better = np.mean([c.fitness > p.fitness for c, p in zip(children, chosen, strict=True)])
        step = min(step * float(np.exp((better - 0.2) / 2)), 10.0)
        parents = tools.selBest(parents + children, mu)
        squares.generations += 1
    return squares.result(np.asarray(parents[0]), parents[0].fitness.values[0])


def _reach(bounds: Bounds) -> np.ndarray:
    """Change of a position per unit of a logarithm, or per range on a linear scale."""
    parts = [
        1 / jnp.log(b.upper / b.lower) if b.scale == "log" else jnp.ones_like(b.lower)
        for b in leaves(bounds)
    ]
    return np.concatenate([np.ravel(x) for x in parts])
