"""The motion to record next: the one whose angles would determine the parameters best."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.signal import chirp, sawtooth

from experiments.servo import _model
from experiments.servo._campaign import Motion
from experiments.servo._model import Logs, Model
from jaxgrip import fitting
from jaxgrip.fitting import Fit, Proposal

# Length of a motion and time between its samples [s].
LENGTH, PERIOD = 8.0, 0.01
# Most set-ups (arm, load, controller, voltage) that are tried.
SETS = 4
# Inputs as shares of the largest ones recorded.
SHARES = (1.0, 0.3)


def propose(found: Fit, model: Model, motions: list[Motion], step: float) -> tuple[Proposal, str]:
    """The usual motion that determines the worst-determined parameters best, and its name.

    **Arguments:** `motions`: those recorded, whose set-ups and ranges of inputs are taken; `step`
    of the simulation, about [s].
    """
    names, tried, of = [], [], []
    for k in _sets(motions):
        for name, candidate in _candidates(motions, k):
            names.append(f"{name}, with all else as in {motions[k].name}")
            tried.append(candidate)
            of.append(k)
    logs = _model.logs(tried, step, float(model.voltage))
    gained = fitting.next_experiment(
        jax.tree_util.Partial(_angles, model), found, (logs, jnp.asarray(of))
    )
    return gained, names[gained.index]


def _angles(
    model: Model, parameters: dict[str, Array], candidate: tuple[Logs, Array]
) -> Float[Array, " k"]:
    logs, k = candidate
    own = {name: x[k] if jnp.ndim(x) else x for name, x in parameters.items()}
    one = model._replace(logs=jax.tree.map(lambda x: x[None], logs))
    return _model.simulated(own, one)[0]


def _sets(motions: list[Motion]) -> list[int]:
    """The first motion of every set-up."""
    first = {}
    for k, m in enumerate(motions):
        gains = None if m.controller is None else tuple(map(float, jax.tree.leaves(m.controller)))
        first.setdefault((m.arm, m.load, gains), k)
    return list(first.values())[:SETS]


def _candidates(motions: list[Motion], k: int) -> Iterator[tuple[str, Motion]]:
    """Motions of the set-up of number k, with their names."""
    largest = max(float(np.max(np.abs(m.input - m.input[0]))) for m in motions)
    time = np.arange(0.0, LENGTH, PERIOD)
    shapes = {f"sine of {f:g} Hz": np.sin(2 * np.pi * f * time) for f in (0.25, 0.5, 1.0, 2.0)}
    shapes["triangle of 8 s"] = sawtooth(2 * np.pi * (time / 8.0 + 0.25), 0.5)
    shapes["sine sweep from 0.2 to 4 Hz"] = chirp(time, 0.2, LENGTH, 4.0, phi=-90)
    steps = np.array([0.0, 1.0, -1.0, 0.5, -0.5, 0.8, -0.2, 0.3])
    shapes["row of steps, one a second"] = steps[np.floor(time).astype(int)]
    shapes["row of steps, one in 0.4 s"] = np.tile(steps, 3)[np.floor(time / 0.4).astype(int)]
    m = motions[k]
    duty = m.controller is None
    begin = 0.0 if duty else float(m.input[0])
    for share in SHARES:
        size = share * largest
        said = f"±{size:.2g} of duty" if duty else f"±{np.rad2deg(size):.2g}°"
        for name, shape in shapes.items():
            yield (
                f"{name}, {said}",
                m._replace(
                    time=time,
                    angle=np.full(len(time), _model.start(m)),
                    input_time=time,
                    input=begin + size * shape,
                    clear=np.full(len(time), True),
                    on=None if m.on is None else np.ones(len(time)),
                    voltage=None if m.voltage is None else np.full(len(time), m.voltage.mean()),
                ),
            )
