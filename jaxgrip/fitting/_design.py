"""Which experiment to do next."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from jaxgrip.checks import brief, positive
from jaxgrip.fitting import _fisher as fisher
from jaxgrip.fitting._bounds import units
from jaxgrip.fitting._comparison import effective_samples
from jaxgrip.fitting._fit import Fit
from jaxgrip.precision import require_x64


class Proposal(NamedTuple):
    """The candidate to measure next, and what is then known.

    `index`: among the candidates; `candidate`: itself; `before`: the combination that the fit
    determines worst; `after`: `Uncertainty` that is predicted with the new data; `worst`: (c,)
    relative deviation of the worst-determined combination after each candidate, inf where it stays
    unknown.
    """

    index: int
    candidate: PyTree
    before: fisher.Direction
    after: fisher.Uncertainty
    worst: Float[np.ndarray, " c"]

    def report(self, name: str | None = None) -> str:
        """The proposal in words, with the name of the candidate if it has one."""
        if name is None:
            name = f"candidate {self.index} of {len(self.worst)}"
        now, then = self.before.deviation, self.after.worst_direction
        known = f"{100 * now:.2g} %" if math.isfinite(now) else "unknown"
        lines = [
            f"Record {name} next: the worst-determined "
            f"combination is now {self.before}, {'to ' if math.isfinite(now) else ''}{known};"
        ]
        if math.isfinite(then.deviation):
            lines.append(f"after it, {then}, to {100 * then.deviation:.2g} %.")
        else:
            lines.append(f"{then} stays unknown even after it.")
        return " ".join(lines)


@eqx.filter_jit
def _informations(simulate, parameters, candidates):
    def one(candidate):
        _, J = fisher.jacobian(simulate, parameters, candidate)
        return J.T @ J

    return jax.vmap(one)(candidates)


def next_experiment(
    simulate: Callable[[PyTree, PyTree], PyTree],
    found: Fit,
    candidates: PyTree,
    *,
    noise: float | None = None,
    criterion: Literal["worst", "volume"] = "worst",
) -> Proposal:
    """The candidate among experiments whose data, added to those of a fit, determine most.

    **Arguments:**

    - `simulate`: function of `(parameters, candidate)` giving an array, or a tree of arrays, of
      what would be measured, in the unit of the residuals of the fit. It must allow forward mode.
    - `found`: the fit of the data so far.
    - `candidates`: tree of arrays whose first axis counts the candidates, such as inputs (c, k).
    - `noise`: standard deviation of independent errors of the new data; by default what the
      residuals of the fit are worth, so that correlated ones count as fewer independent samples.
    - `criterion`: "worst" lowers the deviation of the worst-determined combination of parameters
      (E-optimal), "volume" that of the ellipsoid of all (D-optimal); either first makes as many
      combinations known as it can.

    **Returns:** `Proposal`. Predictions hold as far as the model is linear within the
    uncertainties.

    **Raises:** `ValueError` for another criterion, for candidates of different number and where
    a simulation is not finite.

    Source: own choice: Fisher information at the parameters found.
    """
    require_x64("next_experiment")
    if criterion not in ("worst", "volume"):
        raise ValueError(f'criterion is {brief(criterion)}; it must be "worst" or "volume".')
    counts = {np.shape(x)[:1] for x in jax.tree.leaves(candidates)}
    if len(counts) != 1 or counts == {()} or counts == {(0,)}:
        raise ValueError(
            "The first axis of all arrays of candidates must count the candidates; it has the "
            f"lengths {sorted(c[0] if c else 1 for c in counts)}."
        )
    if noise is None:
        noise = _usual_noise(found)
    noise = float(positive("noise", noise, ()))
    candidates = fisher.dynamic(candidates)
    gained = np.asarray(_informations(fisher.dynamic(simulate), found.parameters, candidates))
    bad = ~np.all(np.isfinite(gained), axis=(1, 2))
    if np.any(bad):
        raise ValueError(
            f"The simulation of candidate {int(np.argmax(bad))}, or its derivative, is not finite."
        )
    unit = np.asarray(units(found.bounds, found.parameters))
    total = (found.information + gained / noise**2) * np.outer(unit, unit)
    values = np.linalg.eigvalsh(total)
    known = values > _KNOWN * values[:, -1:]
    open_ = np.sum(~known, axis=1)
    least = np.min(np.where(known, values, np.inf), axis=1)
    volume = np.sum(np.log(np.where(known, values, 1.0)), axis=1)
    best = int(np.lexsort((-(least if criterion == "worst" else volume), open_))[0])
    after = fisher.from_information(found.parameters, total[best] / np.outer(unit, unit), unit)
    return Proposal(
        best,
        jax.tree.map(lambda x: x[best], candidates),
        found.worst_direction,
        after._replace(noise=noise),
        np.where(open_ > 0, np.inf, 1 / np.sqrt(least)),
    )


# As in `from_information`.
_KNOWN = 1e-11


def _usual_noise(found: Fit) -> float:
    """Standard deviation of independent errors that tell as little as those of the fit."""
    if found.noise is None:
        raise ValueError("The fit of a likelihood has no noise of its own: give `noise`.")
    coarsest = max(map(float, jax.tree.leaves(found.resolution)), default=0.0)
    noise = math.hypot(found.noise, coarsest / math.sqrt(12))
    if found.noise_given:
        return noise
    count = sum(np.size(x) for x in jax.tree.leaves(found.residuals))
    return noise * math.sqrt(count / effective_samples(found.residuals))
