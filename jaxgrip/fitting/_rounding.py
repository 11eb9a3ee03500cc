"""Likelihood of normal errors that a sensor has rounded to its resolution."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxgrip.checks import non_negative
from jaxgrip.fitting import _fisher as fisher

# Below this fraction of the noise a resolution changes no digit that counts.
_FINE = 1e-3
# Noise below this fraction of the coarsest resolution leaves no trace in the samples.
SMALLEST = 0.02


class Terms(NamedTuple):
    """Log-probability of samples and its derivatives by residual `r` and log of the noise `l`."""

    value: Float[Array, " m"]
    r: Float[Array, " m"]
    l: Float[Array, " m"]  # noqa: E741
    rr: Float[Array, " m"]
    rl: Float[Array, " m"]
    ll: Float[Array, " m"]


def terms(r: Float[Array, " m"], noise: Float[Array, ""], resolution: Float[Array, " m"]) -> Terms:
    """Log-probability of normal residuals that are rounded to a resolution.

    **Arguments:** `r`: (m,) residuals; `noise`: standard deviation before rounding; `resolution`:
    (m,), of every residual; where it is zero the probability is a density.

    Source: own derivation: Φ((d/2 − r)/σ) − Φ((−d/2 − r)/σ).
    """
    fine = resolution <= _FINE * noise
    d = jnp.where(fine, noise, resolution)
    # By symmetry, so that the greater of the two terms never lies in the upper tail.
    sign, x = jnp.where(r < 0, -1.0, 1.0), jnp.abs(r)
    a, b = (0.5 * d - x) / noise, (-0.5 * d - x) / noise
    above, below = jax.scipy.special.log_ndtr(a), jax.scipy.special.log_ndtr(b)
    value = above + jnp.log(-jnp.expm1(below - above))

    def share(z):
        return jnp.exp(-0.5 * z**2 - 0.5 * jnp.log(2 * jnp.pi) - value)

    A, B = share(a), share(b)
    D, C = A - B, a * A - b * B
    rounded = Terms(
        value,
        -sign * D / noise,
        -C,
        -(C + D**2) / noise**2,
        sign * (D - (a**2 * A - b**2 * B) - D * C) / noise,
        C - (a**3 * A - b**3 * B) - C**2,
    )
    z = r / noise
    unit = jnp.where(resolution > 0, resolution, 1.0)
    plain = Terms(
        -0.5 * z**2 - jnp.log(noise / unit) - 0.5 * jnp.log(2 * jnp.pi),
        -z / noise,
        z**2 - 1,
        jnp.full_like(r, -1 / noise**2),
        2 * z / noise,
        -2 * z**2,
    )
    return jax.tree.map(lambda x, y: jnp.where(fine, x, y), plain, rounded)


def spread(resolution: PyTree, shapes: PyTree) -> Float[Array, " m"]:
    """The resolution of every residual, from one number or one for every leaf of residuals."""
    found = jax.tree.leaves(shapes)
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(resolution)):
        values = [resolution] * len(found)
    else:
        try:
            values = jax.tree.structure(shapes).flatten_up_to(resolution)
        except ValueError:
            raise ValueError(
                f"The resolution is {resolution}; it must be a number, or one for each of the "
                f"{len(found)} series of residuals, in the same structure."
            ) from None
    parts = [
        np.full(x.size, float(non_negative("resolution", value, ())))
        for x, value in zip(found, values, strict=True)
    ]
    return jnp.asarray(np.concatenate(parts))


def range_of_noise(rms: float, coarsest: float) -> tuple[float, float]:
    """Least and greatest noise that residuals of this rms, rounded to `coarsest`, may have."""
    greatest = 3 * max(rms, coarsest, np.finfo(float).tiny ** 0.5)
    return max(SMALLEST * coarsest, 1e-6 * greatest), greatest


def excess(samples: float, n: int) -> float:
    """Factor from noise estimated by maximum likelihood, along with n parameters, to unbiased."""
    return math.sqrt(samples / max(samples - n, 1.0)) if samples > 0 else 1.0


def uncertainty(
    parameters: PyTree,
    residuals: PyTree,
    J: Array,
    unit: np.ndarray,
    noise: float,
    resolution: Array,
    noise_given: bool,
) -> fisher.Uncertainty:
    """Uncertainty from the curvature of the log-probability of rounded samples.

    It is that of residuals and a Jacobian with one row a sample, of which the share that is also
    explained by other noise is taken out. Noise that is estimated is too small, as n parameters
    follow it, by what so many samples as show noise leave: those that are information about it.
    """
    leaves, structure = jax.tree.flatten(residuals)
    t = jax.tree.map(np.asarray, terms(fisher.flat(residuals), jnp.asarray(noise), resolution))
    # The middle of a step has next to no curvature.
    weight = np.sqrt(np.maximum(-t.rr, 1e-6 / (noise**2 + np.asarray(resolution) ** 2)))
    rows, score = np.asarray(J) * weight[:, None], t.r / weight
    dispersion = 1.0
    if not noise_given:
        tied, total = -t.rl / weight, -np.sum(t.ll)
        share = tied @ tied
        if 0 < share < total:
            rows -= np.outer(tied * (1 - math.sqrt(1 - share / total)) / share, tied @ rows)
        dispersion = excess(total / 2, len(unit))
    ends = np.cumsum([x.size for x in leaves])[:-1]
    parts = [y.reshape(x.shape) for x, y in zip(leaves, np.split(score, ends), strict=True)]
    score = structure.unflatten(parts)
    known = fisher.from_jacobian(parameters, score, rows, unit, dispersion)
    if known.correlated and not noise_given:
        # Without noise, the errors of rounding compensate each other by chance alone.
        known = fisher.from_jacobian(parameters, score, rows, unit, None, dispersion)
    return known._replace(noise=noise)
