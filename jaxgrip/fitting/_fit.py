"""Parameters that fit data, from many starts at once, with their uncertainties."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PyTree

from jaxgrip.checks import brief, concrete, positive
from jaxgrip.fitting import _fisher as fisher
from jaxgrip.fitting import _objective as objective
from jaxgrip.fitting import _rounding as rounding
from jaxgrip.fitting._bounds import Bounds, leaves, names, place, position, ravel, units
from jaxgrip.fitting._descent import Descent, descend
from jaxgrip.precision import require_x64

# Candidates for each start, and steps of Adam before the damped Newton steps.
_CANDIDATES = 8
_ADAM_STEPS = 40
_ADAM_RATE = 0.1
# Relative standard deviation above which the interval of a logarithm is not taken for symmetric,
# and normal standard deviations to the ends of an interval of 95 %.
_SKEWED = 0.1
_NINETY_FIVE = 1.959964


class RESULTS(eqx.Enumeration):
    """Outcome of a fit; the message says what to try."""

    successful = ""
    not_converged = (
        "The best start did not converge in the allowed steps: raise `steps`, or give a `guess`."
    )


class Starts(NamedTuple):
    """Outcome of every start, the best first.

    `first`, `last`: trees of parameters with a leading axis (k,). `first_value`, `value`: (k,) rms
    of the residuals, or the log-likelihood, there. `converged`, `failed`: (k,); failed where the
    function was not finite at the start. `untried`: number of candidates that were left out
    because it was not finite there.
    """

    first: PyTree
    last: PyTree
    first_value: Float[Array, " k"]
    value: Float[Array, " k"]
    converged: Bool[Array, " k"]
    failed: Bool[Array, " k"]
    untried: int

    @property
    def agreeing(self) -> int:
        """Number of starts that reached the best value, to 1e-8 of their median reduction."""
        best = float(self.value[0])
        above = np.abs(np.asarray(self.first_value) - best)
        near = 1e-8 * np.median(above[np.isfinite(above)]) if np.any(np.isfinite(above)) else 0.0
        return int(np.sum(np.abs(np.asarray(self.value) - best) <= near))


class Fit(NamedTuple):
    """Fitted parameters, and how well they are known.

    `parameters`: tree of the structure of the bounds. `standard_deviation`: the same, in the units
    of the parameters; inf where the data do not determine them. `covariance`: (n, n) by `names`.
    `worst_direction`: the combination determined worst. `at_bound`: names of parameters at
    a bound; uncertainties do not account for it. `unidentifiable`: groups of names of which the
    data determine combinations at most. `rms`, `residuals`: of the fit; None for a likelihood.
    `noise`: standard deviation of the residuals, as given or estimated. `correlated`:
    whether residuals are correlated in time. `log_likelihood`: its maximum; None for residuals
    without a resolution. `starts`: outcome of all starts. `evaluations`: simulations that the fit
    cost, a derivative by one parameter counted as one. `result`: whether it converged. `bounds`: as
    given. `information`: (n, n) inverse of the covariance, zero along what the data leave open.
    `resolution`: as given; `noise` is then that before rounding, and `log_likelihood` that of the
    rounded samples.
    """

    parameters: PyTree
    standard_deviation: PyTree
    names: tuple[str, ...]
    covariance: np.ndarray
    worst_direction: fisher.Direction
    at_bound: tuple[str, ...]
    unidentifiable: tuple[tuple[str, ...], ...]
    rms: float | None
    residuals: PyTree
    noise: float | None
    noise_given: bool
    correlated: bool
    log_likelihood: float | None
    starts: Starts
    evaluations: int
    result: RESULTS
    bounds: Bounds
    information: np.ndarray
    resolution: PyTree = None

    def report(self) -> str:
        """The fit in words, with everything that needs attention."""
        n, k = len(self.names), len(self.starts.value)
        count = f"{n} parameter{'s' if n > 1 else ''}"
        if self.rms is None:
            head = f"{count}, log-likelihood {self.log_likelihood:.6g}"
        else:
            m = sum(np.size(x) for x in jax.tree.leaves(self.residuals))
            head = f"{count}, {m} residuals, rms {self.rms:.4g}"
        lines = [f"{head}; {self.starts.agreeing} of {k} starts agree."]
        values = np.asarray(ravel(self.parameters))
        deviations = np.asarray(ravel(self.standard_deviation))
        width = max(map(len, self.names))
        limits = zip(*self._skewed(values, deviations), strict=True)
        for name, x, s, (low, high) in zip(self.names, values, deviations, limits, strict=True):
            share = f"({100 * s / abs(x):.2g} %)" if x != 0 and np.isfinite(s) else ""
            spread = f"± {s:.2g}  {share}".rstrip()
            if np.isfinite(low):
                spread = f"{low:.3g} to {high:.3g} in 95 % of cases  {share}"
            lines.append(f"  {name:{width}}  {x:< 12.6g} {spread}")
        return "\n".join(lines + self._sentences())

    def _skewed(self, values: np.ndarray, deviations: np.ndarray) -> np.ndarray:
        """Ends (2, n) of intervals that are symmetric in the logarithm, NaN where ± will do."""
        limits = np.full((2, len(values)), np.nan)
        at = 0
        for bound in leaves(self.bounds):
            here = slice(at, at + bound.lower.size)
            at = here.stop
            if bound.scale == "log":
                x, share = values[here], deviations[here] / values[here]
                with np.errstate(over="ignore"):
                    ends = x * np.exp(np.outer([-_NINETY_FIVE, _NINETY_FIVE], share))
                ends = np.clip(ends, np.ravel(bound.lower), np.ravel(bound.upper))
                skewed = (share > _SKEWED) & np.isfinite(share)
                limits[:, here] = np.where(skewed, ends, np.nan)
        return limits

    def _sentences(self) -> list[str]:
        found = [self.result_message] if self.result_message else []
        for group in self.unidentifiable:
            if len(group) == 1:
                found.append(f"{group[0]} has no influence on the data: fix it, or leave it out.")
            else:
                found.append(
                    f"The data determine {_listed(group)} only in combination: fix some of them."
                )
        for name in self.at_bound:
            found.append(
                f"{name} is at its bound: widen it, or doubt the model; the uncertainties "
                "do not account for it."
            )
        vague = [
            name
            for name, x, s in zip(
                self.names, ravel(self.parameters), ravel(self.standard_deviation), strict=True
            )
            if abs(x) < s < np.inf
        ]
        if vague:
            found.append(f"Not determined, their error exceeds their value: {', '.join(vague)}.")
        if not self.unidentifiable and len(self.names) > 1:
            direction = self.worst_direction
            found.append(f"Worst determined: {direction}, to {100 * direction.deviation:.2g} %.")
        if self.noise is not None and self.noise <= 1.001 * rounding.SMALLEST * self._coarsest():
            found.append(
                "The samples show no noise before rounding: uncertainties rest on the few of them "
                "that change; `intervals` follow the likelihood itself."
            )
        if self.correlated:
            found.append(
                "The residuals are correlated in time; "
                + (
                    "the given noise assumes independent ones: leave it out for uncertainties "
                    "that account for it."
                    if self.noise_given
                    else "the uncertainties account for it."
                )
            )
        expected = math.hypot(self.noise or 0.0, self._coarsest() / math.sqrt(12))
        if self.noise_given and self.rms > 1.5 * expected:
            found.append(
                f"The residuals are {self.rms / expected:.2g} times the given noise: the "
                "model does not explain the data."
            )
        failed = int(np.sum(np.asarray(self.starts.failed)))
        if failed:
            found.append(f"{failed} of {len(self.starts.failed)} starts failed: not finite there.")
        if self.starts.untried:
            found.append(
                f"{self.starts.untried} candidates for a start were left out: not finite there."
            )
        if self.starts.agreeing == 1 and len(self.starts.value) > 1:
            found.append("Only one start reached this optimum: try more, there may be better ones.")
        return found

    def marginal(self, *nuisance: str) -> "Fit":
        """The fit of the other parameters of a dictionary, whose uncertainties allow for these.

        It is the end of a fit: [`intervals`][] needs the fit of all parameters.
        """
        bounds = _without(self.bounds, nuisance)
        own = np.array([name in names(bounds) for name in self.names])
        matrix, cross = self.information[np.ix_(own, own)], self.information[np.ix_(own, ~own)]
        left = matrix - cross @ np.linalg.pinv(self.information[np.ix_(~own, ~own)]) @ cross.T
        parameters = _without(self.parameters, nuisance)
        known = fisher.from_information(parameters, left, np.asarray(units(bounds, parameters)))
        return self._replace(
            parameters=parameters,
            standard_deviation=known.standard_deviation,
            names=names(bounds),
            covariance=known.covariance,
            worst_direction=known.worst_direction,
            at_bound=tuple(name for name in self.at_bound if name in names(bounds)),
            unidentifiable=known.unidentifiable,
            starts=self.starts._replace(
                first=_without(self.starts.first, nuisance),
                last=_without(self.starts.last, nuisance),
            ),
            bounds=bounds,
            information=known.information,
        )

    def _coarsest(self) -> float:
        return max(map(float, jax.tree.leaves(self.resolution)), default=0.0)

    @property
    def result_message(self) -> str:
        """What to try, when the fit did not converge."""
        return RESULTS[self.result]


def _without(parameters: dict[str, Any], left_out: tuple[str, ...]) -> dict[str, Any]:
    return {name: x for name, x in parameters.items() if name not in left_out}


def _listed(group: tuple[str, ...]) -> str:
    return ", ".join(group[:-1]) + " and " + group[-1]


def _cube(key: Array, k: int, n: int) -> Float[Array, "k n"]:
    """k points in the unit cube, one in each k-th of every axis (Latin hypercube)."""
    shuffle, jitter = jax.random.split(key)
    order = jax.vmap(
        lambda key: jax.random.permutation(key, jnp.arange(k, dtype=float)), out_axes=1
    )(jax.random.split(shuffle, n))
    return (order + jax.random.uniform(jitter, (k, n))) / k


def _adam(evaluate: Callable, starts: Array, scale: Callable) -> Array:
    """The best point that Adam finds from every start, in logistic coordinates within bounds."""
    optimizer = optax.adam(_ADAM_RATE)

    def step(carry, _):
        x, state, best, least = carry
        s = jax.nn.sigmoid(x)
        model = evaluate(s)
        better = model.value < least
        best = jnp.where(better[:, None], s, best)
        least = jnp.where(better, model.value, least)
        slope = model.gradient * s * (1 - s) / scale(model.value)[:, None]
        # Adam raises its rates to an integer power, which strict promotion forbids.
        with jax.numpy_dtype_promotion("standard"):
            change, state = optimizer.update(jnp.where(jnp.isfinite(slope), slope, 0.0), state)
        return (x + change, state, best, least), None

    inside = jnp.clip(starts, 1e-6, 1 - 1e-6)
    x = jnp.log(inside) - jnp.log1p(-inside)
    carry = (x, optimizer.init(x), starts, jnp.full(x.shape[:1], jnp.inf))
    (_, _, best, _), _ = jax.lax.scan(step, carry, length=_ADAM_STEPS)
    return best


def _searches(guess: Array | None, starts: int) -> bool:
    """Whether starts are searched for; a single guess is only refined."""
    return guess is None or starts > 1


def _search(
    cost: Callable,
    evaluate: Callable,
    scale: Callable,
    n: int,
    key: Array,
    guess: Array | None,
    starts: int,
    limit: Array,
) -> tuple[Array, Array, Array, Descent]:
    """Starts, the function there, the number of failed candidates, and the descents."""
    if not _searches(guess, starts):
        first = guess[None]
        descent = descend(evaluate, first, limit=limit, scale=scale)
        return first, jax.vmap(cost)(first), jnp.array(0), descent
    candidates = _cube(key, _CANDIDATES * starts, n)
    if guess is not None:
        candidates = candidates.at[0].set(guess)
    costs = jax.vmap(cost)(candidates)
    failed = ~jnp.isfinite(costs)
    rank = jnp.where(failed, jnp.inf, costs)
    if guess is not None:
        rank = rank.at[0].set(-jnp.inf)
    order = jnp.argsort(rank)[:starts]
    untried = jnp.sum(failed) - jnp.sum(failed[order])
    first = candidates[order]
    best = _adam(jax.vmap(evaluate), first, scale)
    descent = descend(evaluate, best, limit=limit, scale=scale)
    return first, costs[order], untried, descent


# Relative to the sum of squares, Adam minimizes its logarithm.
def _relative(value):
    return jnp.maximum(value, jnp.finfo(value.dtype).tiny)


@eqx.filter_jit
def _least_squares(residuals, bounds, data, key, guess, starts, limit):
    cost, evaluate = objective.squares(residuals, bounds, data)
    return _search(cost, evaluate, _relative, len(names(bounds)), key, guess, starts, limit)


@eqx.filter_jit
def _likelihood(log_likelihood, bounds, data, key, guess, starts, limit):
    cost, evaluate = objective.likelihood(log_likelihood, bounds, data)
    return _search(cost, evaluate, jnp.ones_like, len(names(bounds)), key, guess, starts, limit)


@eqx.filter_jit
def _rounded(residuals, bounds, data, resolution, noises, start, held, limit):
    evaluate = objective.rounded(residuals, bounds, data, resolution, noises)
    return descend(evaluate, start, limit=limit, scale=jnp.ones_like, held=held)


def _polished(residuals, bounds, data, ordered, noise, resolution, limit, size):
    """The maximum of the likelihood of rounded samples, from the least squares on.

    `size`: simulations in one evaluation.

    **Returns:** what `_ordered` gave, with position, cost and convergence of the maximum; its
    log-likelihood; the noise.
    """
    table, s, cost, converged = ordered
    coarsest = float(jnp.max(resolution))
    rms = math.sqrt(2 * float(table.value[0]) / resolution.size)
    if noise is None:
        noises = rounding.range_of_noise(rms, coarsest)
        first = math.sqrt(max(rms**2 - coarsest**2 / 12, 0.01 * coarsest**2, noises[0] ** 2))
    else:
        noises, first = (noise, noise), noise
    start = jnp.append(s, objective.position_of(noises, first))[None]
    held = jnp.zeros(start.shape, bool).at[0, -1].set(noise is not None)
    noises = jnp.asarray(noises)
    found = _rounded(residuals, bounds, data, resolution, noises, start, held, limit)
    sigma = float(objective.noise_at(noises, found.position[0, -1]))
    cost += size * int(found.steps)
    converged = converged and bool(found.converged[0])
    return (table, found.position[0, :-1], cost, converged), -float(found.model.value[0]), sigma


@eqx.filter_jit
def _observed(log_likelihood, parameters, data):
    """Minus the second derivative of a log-likelihood, by the scalars of the parameters."""
    x, rebuild = jax.flatten_util.ravel_pytree(parameters)
    value = log_likelihood(parameters, *data)
    return value, -jax.jacfwd(jax.jacfwd(lambda x: log_likelihood(rebuild(x), *data)))(x)


def _prepared(what, bounds, guess, key, starts, steps):
    require_x64(what)
    leaves(bounds)
    for name, value in (("starts", starts), ("steps", steps)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {brief(value)}; it must be a positive whole number.")
    key = jax.random.key(0) if key is None else key
    return key, None if guess is None else position(bounds, guess), jnp.asarray(steps)


def _check_finite(data: tuple) -> None:
    """Raise where data have NaN; infinite numbers may have a meaning for the residuals."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        if eqx.is_inexact_array(leaf) and concrete(leaf) and np.any(np.isnan(leaf)):
            number, *rest = path
            where = jax.tree_util.keystr(tuple(rest), simple=True, separator=".")
            raise ValueError(
                f"Argument {number.idx + 1} of the data{' at ' + where if where else ''} has "
                f"{int(np.sum(np.isnan(leaf)))} values that are not numbers (NaN): leave them out."
            )


def _ordered(what, bounds, found, size, guess) -> tuple[Starts, Array, int, bool]:
    """The table of starts, the position of the best, the cost in evaluations, convergence."""
    first, before, untried, descent = found
    failed = ~np.isfinite(before)
    value = jnp.where(jnp.isfinite(descent.model.value), descent.model.value, jnp.inf)
    order = jnp.argsort(value)
    if not np.isfinite(value[order[0]]):
        tried = jax.tree.map(lambda x: round(float(x), 6), _dictionary(bounds, first[0]))
        raise ValueError(
            f"{what} is finite at none of the {len(failed)} starts, nor at any candidate for one, "
            f"such as {tried}: check it there, or narrow the bounds."
        )
    table = Starts(
        jax.vmap(lambda s: place(bounds, s))(first[order]),
        jax.vmap(lambda s: place(bounds, s))(descent.position[order]),
        before[order],
        value[order],
        descent.converged[order],
        failed[order],
        int(untried),
    )
    k = first.shape[0]
    cost = k * size * int(descent.steps)
    if _searches(guess, k):
        cost += k * (_CANDIDATES + size * _ADAM_STEPS)
    return table, descent.position[order[0]], cost, bool(descent.converged[order[0]])


def _concluded(bounds, ordered, known, **own) -> Fit:
    """The fit at the best start; `own`: the fields of residuals or of a likelihood alone."""
    _, s, cost, converged = ordered
    return Fit(
        parameters=place(bounds, s),
        standard_deviation=known.standard_deviation,
        names=names(bounds),
        covariance=known.covariance,
        worst_direction=known.worst_direction,
        at_bound=_on_bound(bounds, s),
        unidentifiable=known.unidentifiable,
        evaluations=cost,
        result=RESULTS.successful if converged else RESULTS.not_converged,
        bounds=bounds,
        information=known.information,
        **own,
    )


def _dictionary(bounds, s):
    return dict(zip(names(bounds), ravel(place(bounds, s)), strict=True))


def _on_bound(bounds: Bounds, s: Array) -> tuple[str, ...]:
    near = np.abs(np.asarray(s) - 0.5) >= 0.5 - 1e-6
    return tuple(name for name, on in zip(names(bounds), near, strict=True) if on)


def fit(
    residuals: Callable[..., PyTree],
    bounds: Bounds,
    *data: Any,
    noise: float | None = None,
    resolution: PyTree | None = None,
    guess: PyTree | None = None,
    starts: int = 16,
    steps: int = 100,
    key: Array | None = None,
) -> Fit:
    """Parameters within bounds that minimise a sum of squared residuals, and their uncertainties.

    **Arguments:**

    - `residuals`: function of `(parameters, *data)` giving an array, or a tree of arrays, whose
      last axis is time; all in one unit (otherwise divide each by its noise). It must allow
      forward mode.
    - `bounds`: tree of `Bound`; `parameters` has the same structure.
    - `data`: anything the residuals need; other numbers of the same shape do not recompile, a new
      function does.
    - `noise`: standard deviation of residuals known to be independent. Without it, it is estimated
      from the residuals, along with their correlation in time, and the uncertainties account for
      both.
    - `resolution`: step to which the sensor rounded the data, in the unit of the residuals: a
      number, or one for every series of residuals in their structure, zero for none. The
      parameters then maximise the likelihood of rounded normal errors, from those of the least
      squares on, together with the noise before rounding unless `noise` is given. The residuals
      must be simulated minus measured values, or minus that.
    - `guess`: parameters for one of the starts; with `starts=1` they are refined without a search.
    - `starts`: number of descents, in one batch, from the best of eight times as many candidates.
    - `steps`: largest number of steps of a descent.
    - `key`: random key of the candidates; a fixed one by default.

    **Returns:** `Fit`. It compiles programs itself and cannot be traced by `jit`, `vmap` or `grad`.

    **Raises:** `ValueError` for bad input and for residuals that are nowhere finite.

    Source: own choice: Levenberg-Marquardt after Adam on the logarithm of the sum.
    """
    key, guess, limit = _prepared("fit", bounds, guess, key, starts, steps)
    noise = None if noise is None else float(positive("noise", noise, ()))
    residuals, data = fisher.dynamic(residuals), fisher.dynamic(data)
    _check_finite(data)
    shapes = jax.eval_shape(lambda: residuals(place(bounds, jnp.zeros(len(names(bounds)))), *data))
    m = sum(x.size for x in jax.tree.leaves(shapes))
    n = len(names(bounds))
    if m <= n and noise is None:
        raise ValueError(
            f"There are {m} residuals for {n} parameters; the noise can be estimated from more "
            "residuals only: give `noise`."
        )
    pattern = fisher.pattern(bounds, shapes)
    found = _least_squares(residuals, bounds, data, key, guess, starts, limit)
    size = 2 + int(np.max(pattern.group))
    ordered = _ordered("The sum of residuals", bounds, found, size, guess)
    table, s, *_ = ordered
    parameters = place(bounds, s)
    log_likelihood = None
    if resolution is not None:
        resolutions = rounding.spread(resolution, shapes)
        ordered, log_likelihood, sigma = _polished(
            residuals, bounds, data, ordered, noise, resolutions, limit, size
        )
        parameters = place(bounds, ordered[1])
    value, J = fisher._jacobian(residuals, parameters, *data)
    pattern.check(np.asarray(J), names(bounds))
    unit = np.asarray(units(bounds, parameters))
    if resolution is None:
        known = fisher.from_jacobian(parameters, value, J, unit, noise)
    else:
        known = rounding.uncertainty(
            parameters, value, J, unit, sigma, resolutions, noise is not None
        )
    first_value, value_rms = (jnp.sqrt(2 * x / m) for x in (table.first_value, table.value))
    squares = sum(float(jnp.sum(x**2)) for x in jax.tree.leaves(value))
    return _concluded(
        bounds,
        ordered,
        known,
        rms=math.sqrt(squares / m),
        residuals=value,
        noise=known.noise,
        noise_given=noise is not None,
        correlated=known.correlated,
        log_likelihood=log_likelihood,
        resolution=resolution,
        starts=table._replace(first_value=first_value, value=value_rms),
    )


def maximize_likelihood(
    log_likelihood: Callable[..., Float[Array, ""]],
    bounds: Bounds,
    *data: Any,
    guess: PyTree | None = None,
    starts: int = 16,
    steps: int = 100,
    key: Array | None = None,
) -> Fit:
    """Parameters within bounds that maximise a log-likelihood; the noise may be one of them.

    **Arguments:** `log_likelihood`: function of `(parameters, *data)` giving a number; it must
    allow forward mode twice. The others as for [`fit`][].

    **Returns:** `Fit`, with uncertainties from the observed information.

    **Raises:** as [`fit`][].
    """
    key, guess, limit = _prepared("maximize_likelihood", bounds, guess, key, starts, steps)
    log_likelihood, data = fisher.dynamic(log_likelihood), fisher.dynamic(data)
    _check_finite(data)
    found = _likelihood(log_likelihood, bounds, data, key, guess, starts, limit)
    n = len(names(bounds))
    ordered = _ordered("The log-likelihood", bounds, found, 1 + n + n**2, guess)
    table, s, *_ = ordered
    parameters = place(bounds, s)
    value, matrix = _observed(log_likelihood, parameters, data)
    unit = np.asarray(units(bounds, parameters))
    known = fisher.from_information(parameters, np.asarray(matrix), unit)
    return _concluded(
        bounds,
        ordered,
        known,
        rms=None,
        residuals=None,
        noise=None,
        noise_given=False,
        correlated=False,
        log_likelihood=float(value),
        starts=table._replace(first_value=-table.first_value, value=-table.value),
    )
