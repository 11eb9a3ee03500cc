"""Models of the same data, compared by what they explain and how many parameters they need."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jaxgrip.checks import brief, listed
from jaxgrip.fitting import _fisher as fisher
from jaxgrip.fitting._fit import Fit


class Score(NamedTuple):
    """What one model achieves.

    `parameters`: their number; `rms`: of the fit; `held_out`: rms of data that were not fitted, or
    None; `aicc`, `bic`: criteria of Akaike, corrected for few samples, and of Schwarz; the less the
    better, and only their differences have a meaning.
    """

    parameters: int
    rms: float
    held_out: float | None
    aicc: float
    bic: float


class Comparison(NamedTuple):
    """Models, the simplest first, and which of them to take.

    `scores`: by name; `recommended`, `best`: names; `samples`: number of independent samples that
    the residuals are worth; `reason`: why, in a sentence.
    """

    scores: dict[str, Score]
    recommended: str
    best: str
    samples: float
    reason: str

    def report(self) -> str:
        """The table and the recommendation."""
        width = max(5, *map(len, self.scores))
        some = next(iter(self.scores.values()))
        least = [min(getattr(s, k) for s in self.scores.values()) for k in ("aicc", "bic")]
        held = "" if some.held_out is None else "  rms held out"
        lines = [f"{'model':{width}}  parameters  rms fitted{held}      AICc       BIC"]
        for name, s in self.scores.items():
            middle = "" if s.held_out is None else f"  {s.held_out:12.4g}"
            lines.append(
                f"{name:{width}}  {s.parameters:10d}  {s.rms:10.4g}{middle}  "
                f"{s.aicc - least[0]:8.1f}  {s.bic - least[1]:8.1f}"
            )
        lines.append(f"AICc and BIC above the least, with {self.samples:.3g} independent samples.")
        return "\n".join([*lines, self.reason])


def effective_samples(residuals: PyTree) -> float:
    """Number of independent samples that residuals correlated in time are worth.

    **Arguments:** `residuals`: array, or tree of arrays, whose last axis is time.

    **Returns:** their number divided by 1 + 2 Σ ρ, by the correlations ρ with later samples up to
    the first pair of neighbouring lags whose sum is not positive.

    Source: own choice of the end of the sum.
    """
    series = [np.atleast_1d(np.asarray(x, float)) for x in jax.tree.leaves(residuals)]
    count = sum(x.size for x in series)
    products = fisher.lagged(series)
    if products[0] == 0 or not fisher._correlated(series):
        return float(count)
    rho = products / products[0]
    pairs = rho[: len(rho) // 2 * 2].reshape(-1, 2).sum(axis=1)
    end = np.argmax(pairs <= 0) if np.any(pairs <= 0) else len(pairs)
    # The first pair begins with the correlation with itself, which is one.
    time = max(2 * float(np.sum(pairs[:end])) - 1, 1.0)
    return max(count / time, 1.0)


def compare(
    fits: dict[str, Fit],
    *,
    held_out: dict[str, PyTree] | None = None,
    threshold: float = 0.05,
) -> Comparison:
    """The simplest of several models that is not worse than the best of them.

    **Arguments:** `fits`: results of [`fit`][] by the names of the models, all of the same data;
    `held_out`: residuals of each at its parameters on data that were not fitted, in the unit of
    the fit, whose last axis is time; `threshold`: by which fraction of the rms a simpler model may
    be worse.

    With held-out data, the best model has the least rms there. Recommended is the simplest model
    that is not worse by more than `threshold`, or whose mean square exceeds the least by less than
    two standard errors of the difference. Without, the best has the least BIC, and recommended is
    the simplest within 2 of it, which is no evidence.

    The criteria take residuals that are correlated in time for as many independent ones as the
    model with the least rms leaves ([`effective_samples`][]), the same number for all models; noise
    that is estimated counts as a parameter.

    **Returns:** `Comparison`.

    **Raises:** `ValueError` for no models, for fits of different data, for fits of a likelihood,
    and for held-out residuals of other models or of different shapes.

    Source: own choice of the thresholds.
    """
    if not fits:
        raise ValueError("There are no fits to compare.")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold is {brief(threshold)}; it must be a fraction, such as 0.05.")
    likelihoods = [name for name, found in fits.items() if found.residuals is None]
    if likelihoods:
        raise ValueError(f"{listed(likelihoods)}: fits of a likelihood have no residuals.")
    _check_same({name: found.residuals for name, found in fits.items()}, "fitted")
    if (
        len({repr((f.resolution, f.noise_given, f.noise_given and f.noise)) for f in fits.values()})
        > 1
    ):
        raise ValueError(
            "The fits must have the same resolution and the same given noise, or none."
        )
    if held_out is not None:
        if held_out.keys() != fits.keys():
            raise ValueError(
                f"held_out is for {listed(held_out)}, the fits are {listed(fits)}; they must be "
                "the same."
            )
        _check_same(held_out, "held-out")
    names = sorted(fits, key=lambda name: (len(fits[name].names), fits[name].rms))
    fullest = min(fits.values(), key=lambda found: found.rms)
    count = _count(fullest.residuals)
    samples = effective_samples(fullest.residuals)
    errors = {name: _squares(held_out[name]) for name in names} if held_out is not None else {}
    scores = {}
    for name in names:
        deviance = _deviance(fits[name], count) * samples / count
        k = len(fits[name].names) + (not fits[name].noise_given)
        few = 2 * k * (k + 1) / (samples - k - 1) if samples > k + 1 else math.inf
        scores[name] = Score(
            len(fits[name].names),
            fits[name].rms,
            math.sqrt(np.mean(errors[name])) if errors else None,
            deviance + 2 * k + few,
            deviance + k * math.log(samples),
        )
    if held_out is None:
        best = min(names, key=lambda name: scores[name].bic)
        recommended = next(name for name in names if scores[name].bic <= scores[best].bic + 2)
        worse = f"its BIC is within 2 of the least, of {best}"
    else:
        best = min(names, key=lambda name: scores[name].held_out)
        residuals = {name: held_out[name] for name in names}
        recommended = next(
            name
            for name in names
            if scores[name].held_out <= (1 + threshold) * scores[best].held_out
            or _within_chance(residuals[name], residuals[best], samples / count)
        )
        worse = (
            f"its rms of held-out data is not worse than the least, of {best}, by more than "
            f"{100 * threshold:g} % or by more than chance explains"
        )
    reason = f"Recommended: {recommended}, which has the least rms of held-out data."
    if held_out is None:
        reason = f"Recommended: {recommended}, which has the least BIC."
    if recommended != best:
        reason = f"Recommended: {recommended}, the simplest model: {worse}."
    return Comparison(scores, recommended, best, samples, reason)


def _leaves(residuals: PyTree) -> Sequence[np.ndarray]:
    return [np.asarray(x, float) for x in jax.tree.leaves(residuals)]


def _count(residuals: PyTree) -> int:
    return sum(x.size for x in _leaves(residuals))


def _squares(residuals: PyTree) -> np.ndarray:
    return np.concatenate([x.ravel() ** 2 for x in _leaves(residuals)])


def _check_same(residuals: dict[str, PyTree], what: str) -> None:
    (first, *others) = residuals
    shapes = {name: [x.shape for x in _leaves(r)] for name, r in residuals.items()}
    for name in others:
        if shapes[name] != shapes[first]:
            raise ValueError(
                f"The {what} residuals of {first} have the shapes {brief(shapes[first])}, those of "
                f"{name} {brief(shapes[name])}; models are compared by the same data."
            )
    for name, r in residuals.items():
        if not np.all(np.isfinite(_squares(r))):
            raise ValueError(f"The {what} residuals of {name} are not finite.")


def _deviance(found: Fit, count: int) -> float:
    """Minus twice the log-likelihood, up to a number that is the same for all models."""
    if found.log_likelihood is not None:
        return -2 * found.log_likelihood
    if found.noise_given:
        return count * (found.rms / found.noise) ** 2
    return 2 * count * math.log(max(found.rms, np.finfo(float).tiny))


def _within_chance(residuals: PyTree, best: PyTree, independent: float) -> bool:
    """Whether squares exceed those of the best by less than two standard errors of their mean.

    `independent`: the share of samples that are.
    """
    difference = _squares(residuals) - _squares(best)
    error = np.std(difference) / math.sqrt(independent * difference.size)
    return bool(np.mean(difference) <= 2 * error)
