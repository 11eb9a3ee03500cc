"""What a fit of a servo's motions says: numbers, sentences, pictures."""

import re

import numpy as np
import xarray
from jaxtyping import Array

from experiments.servo._campaign import LONG, Motion
from experiments.servo._sheet import UNITS
from jaxgrip import viz
from jaxgrip.fitting import Fit, Intervals
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

# Units of the parameters that are not those of the servo itself.
OTHERS = {"offset": "rad", "delay": "s"} | dict.fromkeys(
    ("gain", "load", "gear", "load_friction", "winding"), "1"
)
# Most motions in the picture.
DRAWN = 6


def record(
    run: Run,
    found: Fit,
    fixed: dict[str, Array],
    off: list[np.ndarray],
    used: list[int],
    motions: list[Motion],
    missed: bool,
) -> None:
    """Record the parameters, how well they are known, and how well they explain the motions."""
    known = {**fixed, **found.parameters}
    for name, unit in (UNITS | OTHERS).items():
        values = np.atleast_1d(known[name])
        if name in OTHERS and name in fixed:
            continue
        labels = [name] if values.size == 1 else [f"{name}_{m.name}" for m in motions]
        deviations = np.atleast_1d(found.standard_deviation.get(name, np.nan))
        for label, value, deviation in zip(labels, values, deviations, strict=True):
            run.add(label, value, unit)
            if name in found.parameters:
                run.add(f"{label}_deviation", deviation, unit)
    run.add("rms", found.rms, "rad")
    kept = np.concatenate([r[k:] for r, k in zip(off, used, strict=True)])
    if kept.size:
        run.add("rms_held_out", np.sqrt(np.mean(kept**2)), "rad")
        if np.sqrt(np.mean(kept**2)) > 1.5 * found.rms:
            run.note(
                "The error on the held-out data is more than 1.5 times that on the fitted data: "
                "the parameters do not generalise."
            )
    if missed:
        run.note(
            "The model does not explain the motion: the error is more than 30 % of it. The arm "
            "must hang down near angle zero, and a positive duty must move it to positive angles."
        )
    run.add("starts_agreeing", found.starts.agreeing, "1")
    for sentence in found.report().splitlines()[1:]:
        run.note(" ".join(_named(sentence, motions).split()))
    if float(known["stiction"]) < float(known["coulomb"]):
        run.note(
            "The stiction found is below the Coulomb level, which is impossible for dry contact: "
            "the data have too little slow motion, or the model is incomplete."
        )


def intervals(run: Run, found: Intervals, motions: list[Motion]) -> None:
    """Record intervals; an open end, where the data set no limit, is only said."""
    for name, one in found.of.items():
        label = _named(name, motions).replace(" of ", "_")
        unit = (UNITS | OTHERS)[name.partition(".")[0]]
        if not one.lower_open:
            run.add(f"{label}_low", one.lower, unit)
        if not one.upper_open:
            run.add(f"{label}_high", one.upper, unit)
    run.note("\n".join(_named(line, motions) for line in found.report().splitlines()))


def misses(off: list[np.ndarray], motions: list[Motion]) -> bool:
    """Whether the model does not explain the motions, of which it is `off` [rad]."""
    measured = np.concatenate([m.angle[m.clear] for m in motions])
    return bool(np.sqrt(np.mean(np.concatenate(off) ** 2)) > 0.3 * np.std(measured))


def _named(sentence: str, motions: list[Motion]) -> str:
    """A sentence of the fit with names of motions for the numbers of their parameters."""

    def name(found: re.Match) -> str:
        return f"{found[1]} of {motions[int(found[2])].name}"

    return re.sub(r"\b(offset|delay|load)\.(\d+)", name, sentence)


def draw(run: Run, motions: list[Motion], off: list[np.ndarray], used: list[int]) -> None:
    """Draw the first motions, and what the model makes of them."""
    panels = []
    for motion, r, k in list(zip(motions, off, used, strict=True))[:DRAWN]:
        name, time, angle = motion.name, motion.time[motion.clear], motion.angle[motion.clear]
        after_gap = np.diff(time, prepend=time[0]) > LONG
        bands = [(time[k], time[-1], "held out")] if k < len(time) else []
        dots = slice(None, None, max(1, len(time) // 200))
        panels += [
            Panel(
                "time [s]",
                "angle [°]",
                [
                    Curve("data", time[dots], np.rad2deg(angle[dots]), points=True),
                    Curve("model", time, np.rad2deg(np.where(after_gap, np.nan, angle + r))),
                ],
                title=name,
                bands=bands,
            ),
            Panel(
                "time [s]",
                "model minus data [°]",
                [Curve("difference", time[dots], np.rad2deg(r[dots]), points=True)],
                title=f"{name}: difference",
                bands=bands,
            ),
        ]
    run.figure(
        "fit",
        viz.curves(panels, "Motion of the arm: data, and the fitted model", columns=2),
        "Data, fitted model and their difference; shaded: held out of the fit."
        + (f" The first {DRAWN} of {len(motions)} motions." if len(motions) > DRAWN else ""),
    )


def store(run: Run, motions: list[Motion], off: list[np.ndarray]) -> None:
    """Store measured and simulated angles."""
    for motion, r in zip(motions, off, strict=True):
        time, angle = motion.time[motion.clear], motion.angle[motion.clear]
        run.arrays(
            motion.name,
            xarray.Dataset(
                {
                    "measured": ("time", angle, {"units": "rad", "long_name": "measured angle"}),
                    "simulated": (
                        "time",
                        angle + r,
                        {"units": "rad", "long_name": "simulated angle"},
                    ),
                },
                {"time": ("time", time, {"units": "s"})},
            ),
        )
