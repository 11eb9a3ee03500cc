"""Intervals of parameters by the profile of their likelihood."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from jaxgrip.checks import brief, near
from jaxgrip.fitting import _fisher as fisher
from jaxgrip.fitting import _objective as objective
from jaxgrip.fitting import _rounding as rounding
from jaxgrip.fitting._bounds import place, position, ravel, spans
from jaxgrip.fitting._descent import Descent, descend
from jaxgrip.fitting._fit import Fit
from jaxgrip.precision import require_x64

# Ends are found to this fraction of their distance from the best value, in so many rounds at most.
_NEAR = 1e-4
_ROUNDS = 40
_STEPS = 50


class Interval(NamedTuple):
    """Range of a parameter that data allow.

    `value`: the best; `lower`, `upper`: ends, in its unit. `lower_open`, `upper_open`: whether the
    end is no more than the bound of the parameter, at which the data still allow it, or the last
    value at which the model is finite.
    """

    value: float
    lower: float
    upper: float
    lower_open: bool
    upper_open: bool

    def __str__(self) -> str:
        value, lower, upper = map(self._digits, self[:3])
        ends = f"({lower} to {upper})"
        if self.lower_open and self.upper_open:
            ends = f"(open: all of {lower} to {upper} is possible)"
        elif self.lower_open:
            ends = f"(below {upper}; no lower end down to {lower})"
        elif self.upper_open:
            ends = f"(above {lower}; no upper end up to {upper})"
        return f"{value} {ends}"

    def _digits(self, x: float) -> str:
        """A number to a hundredth of the width of the interval, three digits at least."""
        sizes = [s for s in (self.upper - self.lower, abs(x)) if s > 0]
        if not sizes:
            return f"{x:g}"
        return f"{round(x, 2 - math.floor(math.log10(min(sizes)))):.15g}"


class Intervals(NamedTuple):
    """Intervals of parameters.

    `level`: probability with which each holds the true value; `of`: `Interval` by name; `better`:
    parameters met on the way that fit better than the best ones given, or None; `evaluations`:
    simulations, a derivative by one parameter counted as one.
    """

    level: float
    of: dict[str, Interval]
    better: Any
    evaluations: int

    def report(self) -> str:
        """The intervals in words."""
        width = max(map(len, self.of))
        lines = [f"Intervals that hold the true value in {100 * self.level:g} % of cases:"]
        lines += [f"  {name:{width}}  {interval}" for name, interval in self.of.items()]
        if self.better is not None:
            lines.append(
                "On the way a better fit was found, so the fit was not the best one: fit again "
                "with `better` as a `guess`."
            )
        return "\n".join(lines)


@eqx.filter_jit
def _lowest(kind, function, bounds, data, extra, starts, held, enough):
    """Least values from every start (k, n), with some components held, to `enough` (k,)."""
    if kind == "rounded":
        evaluate = objective.rounded(function, bounds, data, *extra)
    else:
        make = objective.squares if kind == "squares" else objective.likelihood
        _, evaluate = make(function, bounds, data)
    return descend(
        evaluate, starts, limit=jnp.asarray(_STEPS), scale=lambda _: 1e14 * enough, held=held
    )


def intervals(
    residuals: Callable,
    found: Fit,
    *data: Any,
    level: float = 0.95,
    names: Iterable[str] | None = None,
) -> Intervals:
    """Intervals of parameters by the profile likelihood, which need not be symmetric.

    An interval ends where the likelihood, maximised over all other parameters, has fallen as far
    as it does for a linear model at t standard deviations. Unlike standard deviations, intervals do
    not depend on the scale of a parameter, and show where data set it no limit. Noise that is
    estimated, or correlated in time, widens them in the same proportion.

    **Arguments:** `residuals`, `data`: as for the fit, or its log-likelihood; `found`: the result
    of [`fit`][] or [`maximize_likelihood`][]; `level`: probability; `names`: of the parameters, as
    in `found.names`; all by default. Descents of all ends run in one batch.

    **Returns:** `Intervals`.

    **Raises:** `ValueError` for a level not between 0 and 1 and for unknown names.

    Source: own choice.
    """
    require_x64("intervals")
    if not 0 < level < 1:
        raise ValueError(f"level is {brief(level)}; it must lie between 0 and 1, such as 0.95.")
    chosen = list(found.names if names is None else names)
    for name in chosen:
        if name not in found.names:
            raise ValueError(f"There is no parameter {name}; {near(name, found.names)}")
    index = np.repeat([found.names.index(name) for name in chosen], 2)
    profile = _Profile(residuals, found, data, level, index)
    positions, opened = profile.ends()
    values = np.asarray(ravel(found.parameters))
    ends = [
        float(ravel(place(found.bounds, jnp.asarray(s)))[i])
        for s, i in zip(positions, index, strict=True)
    ]
    of = {
        name: Interval(float(values[index[k]]), *ends[k : k + 2], *map(bool, opened[k : k + 2]))
        for name, k in zip(chosen, range(0, len(index), 2), strict=True)
    }
    better = None
    if profile.better is not None:
        better = place(found.bounds, jnp.asarray(profile.better))
    return Intervals(level, of, better, profile.evaluations)


class _Profile:
    """Ends of parameters by `index`, each twice, downward and upward."""

    def __init__(
        self, function: Callable, found: Fit, data: tuple, level: float, index: np.ndarray
    ):
        self.index, self.n = index, len(found.names)
        self.evaluations, self.better = 0, None
        # Those of one evaluation, with its derivatives.
        self.simulations = 2 + int(np.max(fisher.pattern(found.bounds, found.residuals).group))
        x = np.asarray(position(found.bounds, found.parameters))
        kind, extra = "squares", ()
        if found.rms is None:
            kind = "likelihood"
        elif found.resolution is not None:
            kind = "rounded"
            resolution = rounding.spread(found.resolution, found.residuals)
            noises = (found.noise, found.noise)
            if not found.noise_given:
                noises = rounding.range_of_noise(found.rms, float(jnp.max(resolution)))
            extra = (resolution, jnp.asarray(noises))
            x = np.append(x, objective.position_of(noises, found.noise))
        self.program = (kind, fisher.dynamic(function), found.bounds, fisher.dynamic(data), extra)
        self.best = x
        self.held = np.zeros((len(index), len(x)), bool)
        self.held[:, self.n :] = found.noise_given
        start = np.tile(x, (len(index), 1))
        here = self._run(start, np.ones(start.shape, bool), np.ones(len(index)))
        self.value = float(here.model.value[0])
        curvature = np.asarray(here.model.matrix[0])
        inverse, tangents = _followed(curvature, self.held[0])
        # A position's change for that of the parameter.
        span = np.asarray(spans(found.bounds, found.parameters))
        variance = np.diagonal(found.covariance) / span**2
        plain = inverse[: self.n]
        usual = found.noise**2 if kind == "squares" else 1.0
        known = np.isfinite(variance) & (plain > 0) & (kind != "likelihood")
        scale = np.where(known, variance / np.where(known, plain, 1.0), usual)
        self.unit = scale[index]
        self.tangents = tangents[index]
        self.step = np.sqrt(np.where(np.isfinite(variance), variance, 1.0))[index]
        samples = math.inf
        if kind == "squares":
            samples = sum(np.size(r) for r in jax.tree.leaves(found.residuals))
        elif kind == "rounded" and not found.noise_given:
            samples = curvature[-1, -1] / (2 * math.log(noises[1] / noises[0]) ** 2)
        tail = 0.5 + level / 2
        self.reach = float(scipy.stats.norm.ppf(tail))
        if not found.noise_given and kind != "likelihood":
            self.reach = float(scipy.stats.t.ppf(tail, max(samples - self.n, 1.0)))

    def _run(self, starts: np.ndarray, held: np.ndarray, enough: np.ndarray) -> Descent:
        found = _lowest(*self.program, *map(jnp.asarray, (starts, held, enough)))
        self.evaluations += starts.shape[0] * self.simulations * int(found.steps)
        return found

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions (k, n) of the ends, and whether they are open (k,)."""
        k = len(self.index)
        rows = np.arange(k)
        direction = np.tile([-1.0, 1.0], k // 2)
        here = self.best[self.index]
        room = np.where(direction < 0, here, 1 - here)
        held = self.held.copy()
        held[rows, self.index] = True
        enough = 1e-6 * self.unit
        # The farthest position within the interval and the nearest beyond it, and how many
        # standard deviations a linear model would be away from the best there.
        inside, beyond = np.tile(self.best, (2, k, 1))
        u_in, z_in = np.zeros((2, k))
        u_out, z_out = np.full((2, k), np.inf)
        end, opened, done = inside.copy(), room <= 0, room <= 0
        u = np.minimum(self.reach * self.step, room)
        lowest = self.value
        for count in range(_ROUNDS):
            if np.all(done):
                break
            starts = self._predicted(u, direction, inside, u_in, beyond, u_out)
            starts[rows, self.index] = np.clip(here + direction * u, 0.0, 1.0)
            starts[done] = end[done]
            found = self._run(starts, held | done[:, None], enough)
            x, value = np.asarray(found.position), np.asarray(found.model.value)
            if np.min(value) < lowest - 1e-4 * np.min(self.unit):
                lowest, self.better = np.min(value), x[np.argmin(value), : self.n]
            z = np.sqrt(2 * np.maximum(value - self.value, 0.0) / self.unit)
            z = np.where(np.isfinite(z), z, np.inf)
            within, going = z <= self.reach, ~done
            for new, old, where in ((x, inside, within), (x, beyond, ~within)):
                old[going & where] = new[going & where]
            u_in, z_in = (np.where(going & within, new, old) for new, old in ((u, u_in), (z, z_in)))
            u_out, z_out = (
                np.where(going & ~within, new, old) for new, old in ((u, u_out), (z, z_out))
            )
            at_face = within & (u >= room)
            hit = np.abs(z - self.reach) <= _NEAR * self.reach
            narrow = np.isfinite(u_out) & (u_out - u_in <= _NEAR * u_out)
            end = np.where(going[:, None], np.where(hit[:, None], x, inside), end)
            opened |= going & ~hit & (at_face | narrow & np.isinf(z_out))
            done |= hit | at_face | narrow
            u = np.where(done, u, self._next(count, room, u_in, z_in, u_out, z_out))
        return end[:, : self.n], opened

    def _predicted(self, u, direction, inside, u_in, beyond, u_out) -> np.ndarray:
        """Where the other components probably are, from what is known about the same end."""
        along = (u - u_in)[:, None]
        first = direction[:, None] * self.tangents
        secant = (inside - self.best) / np.where(u_in > 0, u_in, 1.0)[:, None]
        between = (beyond - inside) / np.where(np.isfinite(u_out), u_out - u_in, 1.0)[:, None]
        slope = np.where((u_in > 0)[:, None], secant, first)
        slope = np.where(np.isfinite(u_out)[:, None], between, slope)
        return np.clip(inside + along * slope, 0.0, 1.0)

    def _next(self, count, room, u_in, z_in, u_out, z_out) -> np.ndarray:
        """The next trial: the secant's, or the middle where that may not get on."""
        farther = np.clip(self.reach / np.maximum(z_in, 1e-3), 1.2, 3.0) * np.maximum(u_in, 1e-12)
        with np.errstate(invalid="ignore"):
            share = (self.reach - z_in) / (z_out - z_in)
            middle = 0.5 * (u_in + u_out)
            secant = u_in + share * (u_out - u_in)
        bisects = ~np.isfinite(z_out) | (count % 3 == 2)
        return np.where(
            np.isfinite(u_out), np.where(bisects, middle, secant), np.minimum(farther, room)
        )


def _followed(matrix: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is left when all components but one follow it to the least of a quadratic function.

    **Returns:** the inverse of the curvature (n,) that each component then has, and the directions
    (n, n), row by row, in which the others follow it.
    """
    n = len(matrix)
    size = np.sqrt(np.maximum(np.abs(np.diagonal(matrix)), np.finfo(float).tiny))
    scaled = matrix / np.outer(size, size)
    inverse, directions = np.zeros(n), np.eye(n)
    for i in range(n):
        others = np.flatnonzero(~held & (np.arange(n) != i))
        follow = -np.linalg.pinv(scaled[np.ix_(others, others)], 1e-13) @ scaled[others, i]
        left = scaled[i, i] + scaled[i, others] @ follow
        inverse[i] = 1 / (left * size[i] ** 2) if left > 1e-13 else 0.0
        directions[i, others] = follow * size[i] / size[others]
    return inverse, directions
