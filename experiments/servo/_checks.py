"""What is looked at around a fit: an assumed gear, rounded angles, bounds beyond simulation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.servo._campaign import Motion
from experiments.servo._model import Model, residuals, simulated
from jaxgrip import fitting
from jaxgrip.fitting import Bound, Fit
from jaxgrip.report import Run

# Factor by which a gear that is not known is varied.
VARIED = 3.0
# Points within the bounds that are tried where some are not finite.
TRIED = 64
# Rounded angles bias a fit where their step exceeds its rms error by this factor: the noise is then
# below half a step.
COARSE = 1.7
# Least number of neighbouring angles that show a step; without rounding hardly two are as close.
SHOWN = 10


def vary_gear(
    run: Run,
    bounds: dict[str, Bound],
    found: Fit,
    model: Model,
    measured: tuple[Float[Array, " k"], ...],
) -> None:
    """Say how far an assumed gear that is softer or stiffer moves the parameters."""
    moved, rms = {name: 0.0 for name in bounds if name != "start"}, []
    for factor in (1 / VARIED, VARIED):
        other = model._replace(fixed={**model.fixed, "gear": jnp.asarray(factor)})
        fit = fitting.fit(
            *(residuals, bounds, other, measured),
            resolution=found.resolution,
            guess=found.parameters,
            starts=1,
        )
        rms.append(fit.rms)
        for name in moved:
            off = np.abs(fit.parameters[name] - found.parameters[name])
            off = off / found.standard_deviation[name]
            moved[name] = max(moved[name], float(np.max(off)))
    for name, shift in moved.items():
        run.add(f"{name}_shift_by_gear", shift, "1")
    run.add("rms_softer_gear", rms[0], "rad")
    run.add("rms_stiffer_gear", rms[1], "rad")
    large = [f"{k} {x:.2g}" for k, x in moved.items() if x > 1]
    run.note(
        "The gear is assumed, as there is no creep test: the stall torque twists it by two degrees."
        f" One {VARIED:g} times softer or stiffer moves "
        + (
            f"by more than a standard deviation: {', '.join(large)}. Give the gear, or have it "
            "fitted with bounds.gear = [0.1, 10.0]."
            if large
            else "no parameter by more than its standard deviation."
        )
    )


def mistakes(bounds: dict[str, Bound], model: Model, motions: list[Motion]) -> list[str]:
    """Sentences on simple mistakes in the angles that would explain why a fit does not.

    A fit to such angles bends the model; that of the middle of the bounds is compared.
    """
    size = sum(bound.lower.size for bound in bounds.values())
    middle = fitting.constrain(bounds, jnp.zeros(size))
    said = []
    for motion, angles in zip(motions, np.asarray(simulated(middle, model)), strict=True):
        time, measured = motion.time[motion.clear], motion.angle[motion.clear]
        angles = angles[: len(measured)]
        if np.isfinite(angles).all():
            name = f"angle of {motion.name}"
            said += fitting.mistakes(measured, angles, time, name=name)
    return said


def where_not_finite(
    names: tuple[str, ...],
    bounds: dict[str, Bound],
    model: Model,
    measured: tuple[Float[Array, " k"], ...],
) -> str:
    """A sentence on the share of the bounds where the simulation is not finite, and where it is."""
    share = np.random.default_rng(0).uniform(0.01, 0.99, (TRIED, len(names)))
    good = np.asarray(_finite(bounds, jnp.log(share) - jnp.log1p(-share), model, measured))
    if good.all() or not good.any():
        return (
            f"The simulation is finite at {'all' if good.all() else 'none'} of {TRIED} random "
            "points within the bounds."
        )
    apart = share[~good].mean(axis=0) - share[good].mean(axis=0)
    k = int(np.argmax(np.abs(apart)))
    where = "large" if apart[k] > 0 else "small"
    return (
        f"The simulation is not finite at {np.mean(~good):.0%} of the points within the bounds, "
        f"mostly where {names[k]} is {where}: narrow its bounds. These starts were avoided."
    )


@eqx.filter_jit
def _finite(bounds: dict[str, Bound], x: Array, model: Model, measured: tuple) -> Array:
    """Whether the residuals are finite at points (k, n) within the bounds."""

    def one(x: Array) -> Array:
        parts = residuals(fitting.constrain(bounds, x), model, measured)
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(r)) for r in parts]))

    return jax.vmap(one)(x)


def resolution(angle: Float[np.ndarray, " k"]) -> float:
    """Step to which angles were rounded [rad], zero if there is none or too few samples show it."""
    rises = np.diff(np.unique(angle))
    # Digits of a file add their own rounding, so that steps differ a little.
    single = rises[rises < 1.5 * np.min(rises, initial=np.inf)]
    if len(single) < SHOWN:
        return 0.0
    step = float(np.mean(single))
    parts = rises[rises < 10 * step] / step
    return step if np.all(np.abs(parts - np.round(parts)) < 0.25) else 0.0


def rounded(
    run: Run,
    bounds: dict[str, Bound],
    found: Fit,
    model: Model,
    measured: tuple[Float[Array, " k"], ...],
) -> Fit:
    """The fit by the likelihood of rounded angles, if their steps are coarse; it is said."""
    steps = tuple(resolution(np.asarray(angle)) for angle in measured if len(angle))
    largest = max(steps)
    if not largest:
        return found
    if largest <= COARSE * found.rms:
        run.note(
            f"The angles are rounded to {np.rad2deg(largest):.2g}°, which noise of at least half a "
            "step makes harmless."
        )
        return found
    run.note(
        f"The angles are rounded to {np.rad2deg(largest):.2g}°, more than noise hides: parameters "
        "and deviations are those of the likelihood of rounded angles."
    )
    return fitting.fit(
        residuals, bounds, model, measured, resolution=steps, guess=found.parameters, starts=1
    )._replace(starts=found.starts)
