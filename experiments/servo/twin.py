"""Twin identification of the servo AX-12: simulated motions of known parameters."""

import importlib.util
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

import jaxgrip as jg
from experiments.servo._sheet import RANGES, UNITS
from jaxgrip import fitting, viz
from jaxgrip.actuators import SourceAlgorithm, simulate, simulate_fixed
from jaxgrip.fitting import Bound, Fit
from jaxgrip.models import servo
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

H, DURATION = 0.01, 20.0
TIMES = np.arange(round(DURATION / H)) * H
TRUTH = {**servo.FRICTION, "inertia": servo.INERTIA, "stall_torque": servo.STALL_TORQUE}
WORDS = (
    *("Coulomb\nfriction", "stiction", "viscous\nfriction", "bristle\nstiffness"),
    *("Stribeck\nspeed", "damping\nspeed", "inertia", "stall\ntorque"),
)
BOUNDS = {name: Bound(*RANGES[name]) for name in UNITS}
PROFILES = ("sine", "slow sine", "square", "chirp", "two sines", "steps")
SOURCE_FITNESS = 0.09745
LEVELS = np.random.default_rng(0).uniform(-0.7, 0.7, 20)
SQUARE = 2.5
JUMPS = np.unique(np.concatenate([np.arange(1.0, DURATION), np.arange(SQUARE, DURATION, SQUARE)]))


def profile(k: Array, t: Array) -> Array:
    """Duty of the profile k at a time [s]."""
    phase = 2 * jnp.pi * t
    square = jnp.where(jnp.floor(t / SQUARE) % 2 == 0, 1.0, -1.0)
    level = jnp.asarray(LEVELS)[jnp.clip(jnp.floor(t).astype(int), 0, len(LEVELS) - 1)]
    return jnp.stack(
        [
            0.6 * jnp.sin(phase / 2),
            0.35 * jnp.sin(0.25 * phase),
            0.5 * square,
            0.7 * jnp.sin((0.1 + 0.04 * t) * phase),
            0.25 * jnp.sin(0.4 * phase) + 0.2 * jnp.sin(0.11 * phase),
            level,
        ]
    )[k]


def _command(k, t, q, qd):
    return profile(k, t)[None]


def sampled_profiles() -> Float[Array, "p k"]:
    """Duties of all profiles at the times of the samples."""
    numbers, times = jnp.arange(len(PROFILES)), jnp.asarray(TIMES)
    return jax.vmap(lambda k: jax.vmap(lambda t: profile(k, t))(times))(numbers)


def fixed_steps(parameters: dict[str, Any], duties: Float[Array, "p k"]) -> Float[Array, "p k"]:
    """Angles of the arm [rad] under duties of 10 ms each, in the source's steps."""
    model, arm = jg.models.servo_ax12(**parameters), jg.models.servo_ax12_arm()
    algorithm = SourceAlgorithm()
    return jax.vmap(
        lambda d: simulate_fixed(arm, model, d[:, None], H, algorithm=algorithm).q[:-1, 0]
    )(duties)


def exact(parameters: dict[str, Any], profiles: Array) -> Float[Array, "p k"]:
    """Angles of the arm [rad] under profiles, with error control."""
    model, arm = jg.models.servo_ax12(**parameters), jg.models.servo_ax12_arm()

    def angle(k):
        motion = simulate(
            arm,
            model,
            Partial(_command, k),
            TIMES,
            jumps=JUMPS,
            rtol=1e-7,
            atol=1e-9,
            adjoint=diffrax.ForwardMode(),
            throw=False,
        )
        return motion.q[:, 0]

    return jax.vmap(angle)(profiles)


def _fixed_residuals(parameters, duties, measured):
    return fixed_steps(parameters, duties) - measured


def _exact_residuals(parameters, profiles, measured):
    return exact(parameters, profiles) - measured


def identify(settings: Any, run: Run) -> None:
    """Identify from clean and from noisy motions, and compare with evolutionary searches."""
    duties = sampled_profiles()
    # Kubisch 2008, section 4.3, rates parameters by V = 1/(1 + sum of squares); it reaches 0.09745.
    squares = 1 / SOURCE_FITNESS - 1
    run.add("rms_of_the_source", np.sqrt(squares / duties.size), "rad", 0.0278)
    truth = jax.tree.map(jnp.asarray, TRUTH)
    clean = jax.jit(fixed_steps)(truth, duties)
    with run.stage("Identification in fixed steps, clean motions"):
        found = fitting.fit(_fixed_residuals, BOUNDS, duties, clean, starts=settings.starts)
    _record(run, "clean", found)
    if settings.baselines:
        with run.stage("Identification by evolutionary searches"):
            _baselines(run, found, duties, clean)
    with run.stage(f"Identification in fixed steps, {settings.seeds} noisy experiments"):
        _noisy(settings, run, duties, clean)
    if settings.exact:
        with run.stage("Identification with the exact model"):
            _exactly(run, duties, truth)


def _record(run: Run, name: str, found: Fit) -> None:
    run.add(f"rms_{name}", found.rms, "rad")
    for key, unit in UNITS.items():
        run.add(f"{key}_{name}", found.parameters[key], unit, TRUTH[key])


def _baselines(run: Run, found: Fit, duties: Array, clean: Array) -> None:
    """Searches with as many simulations as the fit, including its derivatives."""
    data = (_fixed_residuals, BOUNDS, duties, clean)
    searches = {"differential evolution": fitting.differential_evolution}
    if importlib.util.find_spec("deap"):
        searches["(mu + lambda) strategy"] = fitting.mu_plus_lambda
    else:
        run.note("The strategy (mu + lambda) is omitted: it needs pip install 'jaxgrip[fit]'.")
    lines = [f"gradients, {found.evaluations} simulations: rms {found.rms:.1e} rad"]
    for name, search in searches.items():
        other = search(*data, evaluations=found.evaluations)
        key = "evolution" if name.startswith("diff") else "strategy"
        run.add(f"rms_{key}", other.rms, "rad")
        run.add(f"simulations_{key}", other.evaluations, "1")
        lines.append(f"{name}, {other.evaluations} simulations: rms {other.rms:.1e} rad")
    run.add("simulations_gradients", found.evaluations, "1")
    run.note("Clean twin with equally many simulations: " + "; ".join(lines) + ".")


def _measured(settings: Any, clean: Array, seed: int) -> np.ndarray:
    """Angles with noise, as the sensor rounds them [rad]."""
    resolution = np.deg2rad(settings.resolution_deg)
    noise = np.random.default_rng(seed).standard_normal(clean.shape)
    noisy = np.asarray(clean) + np.deg2rad(settings.noise_deg) * noise
    return np.round(noisy / resolution) * resolution


def _noisy(settings: Any, run: Run, duties: Array, clean: Array) -> None:
    measured = [_measured(settings, clean, seed) for seed in range(settings.seeds)]
    fits = [
        fitting.fit(
            _fixed_residuals,
            BOUNDS,
            duties,
            jnp.asarray(angles),
            starts=settings.starts,
            key=jax.random.key(seed),
        )
        for seed, angles in enumerate(measured)
    ]
    _record(run, "noisy", fits[0])
    run.note("First noisy experiment: " + " ".join(fits[0].report().split("\n")[len(UNITS) + 1 :]))
    off = np.array([[f.parameters[k] - TRUTH[k] for k in UNITS] for f in fits])
    deviation = np.array([[f.standard_deviation[k] for k in UNITS] for f in fits])
    size = np.array([TRUTH[k] for k in UNITS])
    inside = np.all(np.abs(off) <= 3 * deviation, axis=1)
    run.add("noisy_experiments", len(fits), "1")
    run.add("noisy_experiments_within_three_deviations", int(inside.sum()), "1")
    run.add("relative_deviation", np.mean(deviation, axis=0) / size, "1")
    positions = np.arange(len(UNITS)) + np.linspace(-0.3, 0.3, len(fits))[:, None]
    run.figure(
        "found",
        viz.curves(
            [
                Panel(
                    "",
                    "found minus true value,\nin % of the true one",
                    [
                        Curve(
                            "",
                            positions.T.ravel(),
                            100 * (off / size).T.ravel(),
                            points=True,
                            error=300 * (deviation / size).T.ravel(),
                        )
                    ],
                    ticks=WORDS,
                    levels=[(0.0, "true value")],
                )
            ],
            f"{len(fits)} noisy experiments: parameters found, with three standard deviations",
        ),
        f"All parameters within three of their own standard deviations in {inside.sum()} of "
        f"{len(fits)} experiments, each from {settings.starts} starts; the sensor resolves "
        f"{settings.resolution_deg:g}°.",
    )
    panels = [
        Panel(
            "time [s]",
            "angle [°]",
            [
                Curve(
                    "simulated, with noise",
                    TIMES[::10],
                    np.rad2deg(measured[0][k, ::10]),
                    points=True,
                ),
                Curve(
                    "with the parameters found",
                    TIMES,
                    np.rad2deg(measured[0][k] + fits[0].residuals[k]),
                ),
            ],
            title=name,
        )
        for k, name in enumerate(PROFILES)
    ]
    run.figure(
        "motions",
        viz.curves(panels, "Motion of the arm in a twin experiment", columns=2),
        "The six motions of the first noisy experiment, with the parameters found; every tenth "
        "sample is shown.",
    )


def _exactly(run: Run, duties: Array, truth: dict) -> None:
    """Identification of the exact model from its motions, starting from a fit in fixed steps."""
    profiles = jnp.arange(len(PROFILES))
    measured = jax.jit(exact)(truth, profiles)
    close = fitting.fit(_fixed_residuals, BOUNDS, duties, measured)
    _record(run, "exact_by_fixed_steps", close)
    refined = fitting.fit(
        _exact_residuals, BOUNDS, profiles, measured, guess=close.parameters, starts=1, steps=30
    )
    _record(run, "exact", refined)
    run.note(
        "The source's steps of 10 ms, fitted to motions of the exact model, leave an rms of "
        f"{close.rms:.1e} rad and parameters off by up to "
        f"{100 * max(abs(close.parameters[k] / TRUTH[k] - 1) for k in UNITS):.0f} %: these "
        "parameters have no physical meaning beyond that step."
    )
