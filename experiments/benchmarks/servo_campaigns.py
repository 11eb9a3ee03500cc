"""Coverage of the parameters of servos: synthetic campaigns of many seeds.

`python -m experiments.benchmarks.servo_campaigns [AX MX STS] [--seeds 20] [--search] [--stamps 0]`

Logs are made by a program of its own (tests/experiments/servo_campaign.py). Every fit starts at the
true parameters, or with `--search` from the starts of the configuration, and has the same number of
samples of each log, so that one compiled program serves all seeds. `--stamps` are errors of the
times in the logs in milliseconds.
"""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxgrip as jg
from experiments.servo import _campaign, fit
from experiments.servo._model import residuals
from jaxgrip import config, fitting
from tests.experiments import servo_campaign as made

# Samples of each log that are fitted, and parts of the steps of 10 ms.
SAMPLES, SUBSTEPS = 550, 4


def main() -> None:
    """Fit all campaigns and print how far off their parameters are, in standard deviations."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", default=list(made.TRUTHS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--stamps", type=float, default=0.0)
    given = parser.parse_args()
    jg.enable_x64()
    sensor = dataclasses.replace(made.Sensor(), stamps=1e-3 * given.stamps)
    for family in given.families:
        truth = made.TRUTHS[family]
        true = parameters(truth, sensor)
        off, spent = [], []
        for logs in made.logs(truth, range(given.seeds), 8.0, sensor):
            settings, motions = read(truth, logs)
            begun = time.process_time()
            found = _fitted(settings, motions, None if given.search else true)
            spent.append(time.process_time() - begun)
            off.append(
                [(found.parameters[k] - true[k]) / found.standard_deviation[k] for k in true]
            )
            worst = int(np.argmax(np.abs(off[-1])))
            name, z = list(true)[worst], off[-1][worst]
            print(f"{family} seed {len(off) - 1}: farthest off is {name}, z {z:.2f}", flush=True)
        _print(family, list(true), np.array(off), spent)


def parameters(truth: made.Truth, sensor: made.Sensor) -> dict[str, Array]:
    """The true parameters of a campaign."""
    own = {k: jnp.asarray(getattr(truth, k)) for k in truth.EIGHT}
    return own | {"offset": jnp.asarray(sensor.offset)}


def read(truth: made.Truth, logs: list[dict]) -> tuple[fit.Config, list[_campaign.Motion]]:
    """The configuration of a campaign, and its motions as read from files."""
    with tempfile.TemporaryDirectory() as folder:
        settings, _ = config.load(made.write(Path(folder), truth, logs))
        motions, _ = _campaign.read(settings.motions())
    return settings, motions


def _fitted(settings, motions, guess):
    model = fit._model(settings, motions)
    measured = tuple(jnp.asarray(m.angle[m.clear][:SAMPLES]) for m in motions)
    bounds = fit._bounds(settings, motions)
    if guess is None:
        guess = fitting.fit(residuals, bounds, model, measured, starts=settings.starts).parameters
    model = model._replace(substeps=jnp.asarray(SUBSTEPS))
    guess = {"start": jnp.zeros(len(motions))} | guess
    return fitting.fit(residuals, bounds, model, measured, guess=guess, starts=1).marginal("start")


def _print(family, names, z, spent):
    size = np.abs(z)
    print(f"\n{family}: {len(z)} seeds, {size.size} parameters")
    for k, name in enumerate(names):
        print(
            f"  {name:18} mean z {np.mean(z[:, k]):5.2f}  rms {np.sqrt(np.mean(z[:, k] ** 2)):5.2f}"
            f"  largest {np.max(size[:, k]):5.2f}"
        )
    print(
        f"  |z| < 3: {np.mean(size < 3):.1%} of the parameters, all of a campaign in "
        f"{np.sum(np.all(size < 3, axis=1))} of {len(z)}"
    )
    print(f"  processor time: {spent[0]:.0f} s with compiling, then {np.mean(spent[1:]):.0f} s\n")


if __name__ == "__main__":
    main()
