"""Simpler and fuller models of a servo's friction and gear, compared on the same motions."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from matplotlib.figure import Figure

from experiments.servo import _model
from experiments.servo._model import Model
from jaxgrip import fitting
from jaxgrip.fitting import Bound, Comparison, Fit
from jaxgrip.report import Run
from jaxgrip.viz.style import GREY, PALETTE, settle, styled

# What each law of friction has beyond Coulomb and viscous friction.
FRICTIONS = {
    "Coulomb-viscous": (),
    "load-dependent": ("load_friction",),
    "Stribeck": ("stiction", "stribeck_velocity"),
    "LuGre": ("stiction", "stribeck_velocity", "stiffness", "damping_velocity"),
    "load-dependent LuGre": (
        *("stiction", "stribeck_velocity", "stiffness", "damping_velocity"),
        "load_friction",
    ),
}
VARIED = frozenset(name for names in FRICTIONS.values() for name in names)
# Twist of a gear that counts as stiff by the stall torque [rad].
TWIST = 1e-3
# Where factors on the gear and friction by load are sought unless bounds are given.
SOFTEST, MOST_BY_LOAD = 0.03, 1.0
# Most steps of a fit; later ones only follow what the data hardly determine.
STEPS = 12


class Kind(NamedTuple):
    """One model: by name of parameters, whether each is `free`, and the value of the others.

    `smooth`: whether stiction is that of Coulomb.
    """

    free: dict[str, Bool[Array, ""]]
    fixed: dict[str, Float[Array, "..."]]
    smooth: Bool[Array, ""]


def residuals(
    parameters: dict[str, Array], kind: Kind, model: Model, measured: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Simulated minus measured angles [rad] of a model; one program serves all of them."""
    return _model.residuals(_numbers(parameters, kind, model), model, measured)


def _numbers(parameters: dict[str, Array], kind: Kind, model: Model) -> dict[str, Array]:
    """The numbers that a model has, from those of all parameters."""
    known = model.fixed | {
        name: jnp.where(kind.free[name], x, kind.fixed[name]) for name, x in parameters.items()
    }
    known["stiction"] = jnp.where(kind.smooth, known["coulomb"], known["stiction"])
    return known


_residuals = jax.jit(residuals)


def compare(
    found: Fit,
    model: Model,
    measured: tuple[Float[Array, " k"], ...],
    shown: tuple[Float[Array, " m"], ...],
) -> Comparison:
    """The models, fitted to `measured` and judged by the other angles `shown` [rad], if any.

    **Arguments:** `found`: the fit of LuGre friction with the gear as given, by which fits start.
    """
    everything = _all(found, model)
    fits, off, kinds = {}, {}, _kinds(everything, found, model)
    tried = [found.parameters]
    for name, kind in kinds.items():
        guess = min(
            (_within(everything, model.fixed | x) for x in tried),
            key=lambda guess: _rms(_residuals(guess, kind, model, measured)),
        )
        fit = fitting.fit(
            *(residuals, everything, kind, model, measured),
            resolution=found.resolution,
            guess=guess,
            starts=1,
            steps=STEPS,
        )
        tried.append(_numbers(fit.parameters, kind, model))
        free = tuple(x for x in fit.names if kind.free[x.partition(".")[0]])
        fits[name] = fit._replace(names=free)
        off[name] = _residuals(fit.parameters, kind, model, shown)
    used = [len(angle) for angle in measured]
    kept = {name: [r[k:] for r, k in zip(x, used, strict=True)] for name, x in off.items()}
    held_out = {name: [r for r in parts if r.size] for name, parts in kept.items()}
    return fitting.compare(fits, held_out=held_out if any(held_out.values()) else None)


def _rms(parts: tuple[Array, ...]) -> float:
    rms = float(jnp.sqrt(jnp.mean(jnp.concatenate(parts) ** 2)))
    return rms if np.isfinite(rms) else np.inf


def _all(found: Fit, model: Model) -> dict[str, Bound]:
    """Bounds of the parameters of all models."""
    stiff = _stiff(found, model)
    added = {
        "load_friction": Bound(0.0, MOST_BY_LOAD, "linear"),
        "gear": Bound(min(SOFTEST, 0.1 * stiff), stiff),
    }
    return added | found.bounds


def _stiff(found: Fit, model: Model) -> float:
    """Factor on the gear with which the stall torque hardly twists it."""
    torque = {**model.fixed, **found.parameters}["stall_torque"]
    return float(torque / (TWIST * (model.gear.spring + jnp.sum(model.gear.springs))))


def _kinds(bounds: dict[str, Bound], found: Fit, model: Model) -> dict[str, Kind]:
    """The models that differ in what is free, the simplest first."""
    fixed = {name: jnp.mean(bound.lower) for name, bound in bounds.items()}
    # Bristles that hardly bend, and are damped at rest only.
    if "stiffness" in bounds:
        fixed["stiffness"] = bounds["stiffness"].upper
    fixed |= {"load_friction": jnp.asarray(0.0), "gear": jnp.asarray(_stiff(found, model))}
    kinds = {}
    for friction, own in FRICTIONS.items():
        for elastic in (False, True):
            free = {
                name: name in own if name in VARIED else name != "gear" or elastic
                for name in bounds
            }
            smooth = "stiction" in bounds and "stiction" not in own
            kind = Kind(
                {name: jnp.asarray(x) for name, x in free.items()}, fixed, jnp.asarray(smooth)
            )
            if free not in (x for x, _ in kinds.values()):
                kinds[f"{friction}, {'elastic' if elastic else 'stiff'} gear"] = (free, kind)
    order = sorted(kinds.items(), key=lambda item: sum(item[1][0].values()))
    return {name: kind for name, (_, kind) in order}


def _within(bounds: dict[str, Bound], numbers: dict[str, Array]) -> dict[str, Array]:
    return {
        name: jnp.clip(jnp.broadcast_to(numbers[name], bound.lower.shape), bound.lower, bound.upper)
        for name, bound in bounds.items()
    }


def record(run: Run, found: Comparison) -> None:
    """Record the table, the recommendation and its picture."""
    least = [min(getattr(s, k) for s in found.scores.values()) for k in ("aicc", "bic")]
    lines = ["Models compared, the simplest first; AICc and BIC are above the least:"]
    for name, s in found.scores.items():
        held = "" if s.held_out is None else f", {np.rad2deg(s.held_out):.3g}° held out"
        lines.append(
            f"  {name}: {s.parameters} parameters, rms {np.rad2deg(s.rms):.3g}° fitted{held}, "
            f"AICc {s.aicc - least[0]:.3g}, BIC {s.bic - least[1]:.3g}"
        )
        run.add("rms_of_" + re.sub("[^a-z]+", "_", name.lower()), s.rms, "rad")
    run.note("\n".join(lines))
    run.note(found.reason)
    run.figure(
        "models",
        _picture(found),
        f"Error of every model, the simplest at the top; {found.recommended} is recommended.",
    )


@styled
def _picture(found: Comparison) -> Figure:
    names = list(found.scores)
    held = found.scores[names[0]].held_out is not None
    sizes = [np.rad2deg(s.held_out if held else s.rms) for s in found.scores.values()]
    figure = Figure(figsize=(8.0, 1.4 + 0.36 * len(names)), layout="constrained")
    axis = figure.subplots()
    colours = [PALETTE[0] if name == found.recommended else "#C4C4C4" for name in names]
    bars = axis.barh(range(len(names)), sizes, color=colours, edgecolor=GREY, linewidth=0.5)
    axis.bar_label(bars, [f"{x:.3g}°" for x in sizes], padding=4)
    labels = [f"{name} ({found.scores[name].parameters})" for name in names]
    axis.set_yticks(range(len(names)), labels)
    axis.get_yticklabels()[names.index(found.recommended)].set_fontweight("bold")
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.grid(visible=False, axis="y")
    axis.set_axisbelow(True)
    axis.set_ylabel("model (number of parameters)")
    axis.set_xlabel(f"rms error of the {'held-out' if held else 'fitted'} angles [°]")
    figure.suptitle(f"Recommended: {found.recommended}", x=0.01, ha="left")
    return settle(figure)
