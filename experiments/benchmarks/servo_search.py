"""Parameters of a servo from its logs, against SciPy's least squares and CMA-ES.

All search the same bounds for the least of the same compiled residuals, with as many simulations.
"""

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from experiments.benchmarks import servo_campaigns
from experiments.benchmarks.table import Row
from experiments.servo import fit
from experiments.servo._model import residuals
from jaxgrip import fitting
from tests.experiments import servo_campaign as made

SEEDS, STARTS, DURATION = 5, 4, 3.0
# A search has found the optimum when its sum of squares is above it by less than this share.
FOUND = 1e-3
# Relative step of SciPy's differences: the root of the rounding of so many steps of a simulation.
DIFFERENCE = 1e-6
NOTE = (
    f"Nine parameters of a servo like an STS3215 within the bounds of its data sheet, six motions "
    f"of {DURATION:g} s, {SEEDS} searches with random starts. Ours: {STARTS} starts. Peers have as "
    "many simulations as ours took, where a derivative by one parameter counts as one, and the "
    "same coordinates, in which bounds are 0 and 1: SciPy (trf, forward differences) from random "
    "starts, one after another; CMA-ES with restarts, populations in one vectorised call. "
    f"Found: a sum of squares within {FOUND:g} of the least one known."
)


class _Spent(Exception):
    """All simulations of a search are used up."""


class _Counted:
    """Residuals at positions between the bounds, counted up to a limit."""

    def __init__(self, problem: tuple, limit: int):
        self.problem, self.limit, self.count = problem, limit, 0
        self.best = np.inf

    def __call__(self, s: np.ndarray) -> np.ndarray:
        """The residuals of one point."""
        return self.many(s[None])[0]

    def many(self, s: np.ndarray) -> np.ndarray:
        """The residuals of many points at once; large where they are not finite."""
        if self.count >= self.limit:
            raise _Spent
        self.count += len(s)
        r = np.asarray(_residuals(jnp.asarray(s), *self.problem))
        r = np.where(np.isfinite(r), r, 1e3)
        self.best = min(self.best, float(np.min(np.sum(r**2, axis=1))))
        return r


@jax.jit
def _residuals(s: jax.Array, bounds: dict, model: tuple, measured: tuple) -> jax.Array:
    s = jnp.clip(s, 1e-9, 1.0 - 1e-9)

    def one(s):
        parts = residuals(fitting.constrain(bounds, jnp.log(s) - jnp.log1p(-s)), model, measured)
        return jnp.concatenate(parts)

    return jax.vmap(one)(s)


def _scipy(counted: _Counted, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    while True:
        start = rng.uniform(0.05, 0.95, size)
        least_squares(counted, start, bounds=(0.0, 1.0), diff_step=DIFFERENCE)


def _cma(counted: _Counted, size: int, seed: int) -> None:
    import cma

    restart = 0
    while True:
        rng = np.random.default_rng([seed, restart])
        options = {"bounds": [0, 1], "seed": 1 + 100 * seed + restart, "verbose": -9}
        search = cma.CMAEvolutionStrategy(rng.uniform(0.05, 0.95, size), 0.25, options)
        while not search.stop():
            points = search.ask()
            search.tell(points, np.sum(counted.many(np.array(points)) ** 2, axis=1).tolist())
        restart += 1


def _spent(search: Callable, problem: tuple, limit: int, size: int, seed: int) -> tuple:
    counted = _Counted(problem, limit)
    begun = time.perf_counter()
    with warnings.catch_warnings(action="ignore"), suppress(_Spent):
        search(counted, size, seed)
    return time.perf_counter() - begun, counted.best


def _problem() -> tuple[dict, tuple, tuple, dict]:
    """Bounds, model, measured angles, and the true parameters."""
    truth, sensor = made.STS, made.Sensor()
    (logs,) = made.logs(truth, range(1), DURATION, sensor)
    settings, motions = servo_campaigns.read(truth, logs)
    true = servo_campaigns.parameters(truth, sensor)
    measured = tuple(jnp.asarray(m.angle[m.clear]) for m in motions)
    bounds = fit._bounds(settings, motions)
    del bounds["start"]
    return bounds, fit._model(settings, motions), measured, true


def _sum_of_squares(found: fitting.Fit) -> float:
    return found.rms**2 * sum(map(len, found.residuals))


def main(_: str, seeds: int = SEEDS, starts: int = STARTS) -> list[Row]:
    """One row for each peer, which are run here: the residuals are ours."""
    bounds, model, measured, true = _problem()
    size, problem = len(true), (bounds, model, measured)

    def ours(seed: int) -> tuple[float, float, int]:
        """Seconds, sum of squares and simulations of a search."""
        begun = time.perf_counter()
        found = fitting.fit(residuals, *problem, starts=starts, key=jax.random.key(seed))
        return time.perf_counter() - begun, _sum_of_squares(found), found.evaluations

    first, *_ = ours(0)
    walls, sums, limits = zip(*map(ours, range(seeds)), strict=True)
    from_truth = fitting.fit(residuals, *problem, guess=true, starts=1)
    note = NOTE + f" Simulations: {min(limits)} to {max(limits)}."
    searched = {"SciPy least_squares": _scipy}
    if find_spec("cma"):
        searched["CMA-ES"] = _cma
    else:
        note += " CMA-ES was not run: the package cma is not installed."
    peers = {}
    for name, search in searched.items():
        compiling, _ = _spent(search, problem, 1, size, 0)
        each = [_spent(search, problem, limits[k], size, k) for k in range(seeds)]
        peers[name] = (compiling, *zip(*each, strict=True))
    least = min([*sums, _sum_of_squares(from_truth), *(min(best) for _, _, best in peers.values())])

    def said(found: list[float]) -> str:
        above = np.array(found) / least - 1.0
        return f"{np.sum(above < FOUND)} of {seeds} found, median {np.median(above):.1e} above"

    run = float(np.median(walls))
    return [
        Row(
            "A servo from its logs",
            run,
            first - run,
            answer=said(sums),
            peer=name,
            peer_run_s=float(np.median(spent)),
            peer_setup_s=compiling,
            peer_answer=said(best),
            note=note,
        )
        for name, (compiling, spent, best) in peers.items()
    ]
