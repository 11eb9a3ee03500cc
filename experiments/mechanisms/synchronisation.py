"""A Rayleigh-van der Pol oscillator under a harmonic force: control by synchronisation.

Source: Bartkowiak 2017. The control law printed there (14) does not have the motion that it is
derived for; the law here does. All numbers are defaults of this project.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float
from pydantic import Field

from jaxgrip import config, orbits, viz
from jaxgrip.config import Real
from jaxgrip.orbits import Orbit
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
SEGMENTS = 8
# Parameters, and n*, eta*, H0, A, S and the largest multiplier by an independent program.
ROWS = (
    (
        (1.0, 1.0, 0.5, 3.0, 1.2, np.pi / 4, 2.0),
        (3.910464, 0.473139, 0.841314, -2.224466, 2.500660, 0.11484),
    ),
    (
        (1.0, 1.0, 0.5, 3.0, 1.2, np.pi / 4, 0.1),
        (3.910464, 0.473139, 2.10329e-3, 70.69628, 22.65320, 6.885e-4),
    ),
    (
        (1.0, 1.0, 0.2, 2.0, 1.0, np.pi / 6, 1.0),
        (9.0, 0.732051, 1.15187e-2, 9.0, 2.732051, 3.156e-2),
    ),
)
QUANTITIES = ("n", "eta", "energy", "damping", "stiffness", "multiplier")
NAMES = ("mass", "stiffness", "growth", "force", "rate", "lag", "amplitude")


def named(values) -> dict[str, Array]:
    """Parameters by name: mass m, stiffness c, gamma, force, rate Omega, lag and amplitude."""
    return {k: jnp.asarray(v, float) for k, v in zip(NAMES, values, strict=True)}


def law(p: dict[str, Array]) -> tuple[Array, Array]:
    """A [N m] and S [1/s²] of the law with which the amplitude and the lag are those wanted."""
    size = p["force"] / (p["mass"] * p["amplitude"])
    stiff = p["rate"] ** 2 + size * jnp.cos(p["lag"])
    damp = 2 * p["force"] * jnp.sin(p["lag"]) / (p["growth"] * p["amplitude"] * p["rate"])
    return damp - p["mass"] * (p["rate"] * p["amplitude"]) ** 2, stiff


def printed(p: dict[str, Array]) -> tuple[Array, Array]:
    """A and S of equation (14) as printed."""
    n, eta, energy = dimensionless(p)
    length = jnp.sqrt(2 * energy / (p["mass"] * p["rate"] ** 2))
    damp = -((n + 1) / (n * eta * length**3) - eta**2 * n**2) * 2 * energy
    return damp, p["rate"] ** 2 + p["rate"] * (eta + 1) / (n * length)


def dimensionless(p: dict[str, Array]) -> tuple[Array, Array, Array]:
    """n*, eta* of equations (13) and H0 [J] of (15)."""
    eta = p["force"] * jnp.cos(p["lag"]) / (p["mass"] * p["rate"] ** 2) - 1
    n = 2 * p["force"] * jnp.sin(p["lag"]) / (p["growth"] * p["mass"] * p["rate"] ** 3) - 1
    energy = p["rate"] ** 2 * p["mass"] * p["amplitude"] ** 2 / (2 * n**2 * eta**2)
    return n, eta, energy


def controlled(t: Array, y: Float[Array, "2"], numbers: tuple) -> Float[Array, "2"]:
    """The oscillator under the force with A and S of a law."""
    p, (damp, stiff) = numbers
    bracket = p["mass"] * (y[1] ** 2 + (p["rate"] * y[0]) ** 2) + damp
    force = p["force"] * jnp.sin(p["rate"] * t) - 0.5 * p["growth"] * bracket * y[1]
    return jnp.stack([y[1], force / p["mass"] - stiff * y[0]])


def exact(p: dict[str, Array]) -> Orbit:
    """The motion wanted, as an orbit."""
    times = 2 * jnp.pi / p["rate"] * jnp.arange(1.0 * SEGMENTS) / SEGMENTS
    angle = p["rate"] * times - p["lag"]
    states = p["amplitude"] * jnp.stack([jnp.sin(angle), p["rate"] * jnp.cos(angle)], axis=1)
    zero = jnp.zeros(())
    return Orbit(
        states,
        2 * jnp.pi / p["rate"],
        zero,
        True,
        zero,
        jnp.zeros((), int),
        orbits.RESULTS.successful,
    )


def free(t: Array, q: Float[Array, "2"], numbers: dict[str, Array]) -> Float[Array, "2"]:
    """The oscillator of equation (7), without units."""
    drive = numbers["force"] * jnp.sin(numbers["eta"] * t)
    return jnp.stack([q[1], drive - numbers["eps"] * (q @ q - 1) * q[1] - q[0]])


def tongue(eps: float, etas: np.ndarray, forces: np.ndarray) -> np.ndarray:
    """Largest multiplier of the orbit with the period of the drive (h, f); NaN without one."""
    eta, force = (x.ravel() for x in np.meshgrid(etas, forces, indexing="ij"))
    guesses = np.stack([_balanced(eps, *pair) for pair in zip(eta, force, strict=True)])

    def one(guess: Array, eta: Array, force: Array) -> tuple[Array, Array]:
        numbers = {"eps": jnp.asarray(eps), "eta": eta, "force": force}
        period = 2 * jnp.pi / eta
        found = orbits.periodic(free, guess, period, numbers, driven=True, throw=False, rtol=1e-8)
        matrix = orbits.monodromy(free, found, numbers, rtol=1e-8)
        return matrix, found.gap < 1e-6

    data = (jnp.asarray(x) for x in (guesses, eta, force))
    matrix, known = map(np.asarray, jax.jit(jax.vmap(one))(*data))
    largest = np.full(len(eta), np.nan)
    fine = known & np.all(np.isfinite(matrix), axis=(1, 2))
    largest[fine] = np.max(np.abs(np.linalg.eigvals(matrix[fine])), axis=1)
    return largest.reshape(len(etas), len(forces))


def _balanced(eps: float, eta: float, force: float) -> np.ndarray:
    """States of a sine that balances the first harmonic of equation (7), the largest one."""
    # a² [(1 - eta²)² + eps² eta² (a² - 1)²] = force²
    k = (eps * eta) ** 2
    roots = np.roots([k, -2 * k, k + (1 - eta**2) ** 2, -(force**2)])
    size = np.sqrt(np.max(roots[np.abs(roots.imag) < 1e-9].real))
    shift = np.arctan2(-eps * eta * size * (size**2 - 1), (1 - eta**2) * size)
    angle = 2 * np.pi * np.arange(SEGMENTS) / SEGMENTS + shift
    return size * np.stack([np.sin(angle), eta * np.cos(angle)], axis=1)


def absorbed(t: Array, y: Float[Array, "4"], numbers: dict[str, Array]) -> Float[Array, "4"]:
    """A driven primary mass with the controlled oscillator on it.

    States: primary's position and speed, the oscillator's relative to it.
    """
    x, v, u, w = y
    mass, rate = numbers["mass"], numbers["rate"]
    bracket = mass * (w**2 + (rate * u) ** 2) + numbers["damping"]
    between = mass * numbers["stiffness"] * u + 0.5 * numbers["growth"] * bracket * w
    push = numbers["force"] * jnp.sin(rate * t) - numbers["spring"] * x - numbers["loss"] * v
    primary = (push + between) / numbers["primary"]
    return jnp.stack([v, primary, w, -between / mass - primary])


def shaken(numbers: dict[str, Array], guess: Array) -> tuple[Array, Array]:
    """Mean square of the primary's position over the orbit [m²], and the orbit's states."""
    period = 2 * jnp.pi / numbers["rate"]
    found = orbits.periodic(absorbed, guess, period, numbers, driven=True, throw=False)
    return jnp.mean(found.states[:, 0] ** 2), found.states


class Config(config.Config):
    """The cases that are looked at."""

    cases: Annotated[int, Field(ge=10, le=5000)] = Field(500, description="random laws")
    eps: Positive = Field(0.1, description="strength of the free oscillator's cycle")
    points: Annotated[int, Field(ge=3, le=101)] = Field(
        31, description="frequencies and forces of the region of synchronisation, each"
    )


def run(settings: Config, run: Run) -> None:
    """Rows, printed and corrected law, random cases, synchronisation, absorber."""
    run.note("The source gives no numbers: they are defaults of this project.")
    with run.stage("Control laws"):
        _rows(run)
    with run.stage("Printed and corrected law"):
        curves = _laws(run)
    with run.stage(f"{settings.cases} random laws"):
        _random(run, settings.cases)
    with run.stage("Region of synchronisation"):
        region = _region(run, settings)
    with run.stage("Absorber"):
        absorber = _absorber(run)
    with run.stage("Pictures"):
        _draw(run, curves, region, absorber)


def _rows(run: Run) -> None:
    for k, (values, known) in enumerate(ROWS, 1):
        p = named(values)
        n, eta, energy = dimensionless(p)
        damp, stiff = law(p)
        largest = orbits.floquet(controlled, exact(p), (p, (damp, stiff))).largest
        ours = [float(x) for x in (n, eta, energy, damp, stiff, largest)]
        for name, value, reference in zip(QUANTITIES, ours, known, strict=True):
            unit = {"energy": "J", "damping": "N m", "stiffness": "1/s^2"}.get(name, "1")
            run.add(f"row_{k}_{name}", value, unit, reference)


def _laws(run: Run) -> list[Curve]:
    p = named(ROWS[0][0])
    period = 2 * jnp.pi / p["rate"]
    times = jnp.linspace(0.0, 12.0, 481) * period
    wanted = p["amplitude"] * jnp.sin(p["rate"] * times - p["lag"])
    curves = [Curve("wanted", np.asarray(times), np.asarray(wanted), points=True)]

    @jax.jit
    def moved(law: tuple) -> Array:
        """From rest, each interval from the end of the one before."""

        def step(y: Array, t: Array) -> tuple[Array, Array]:
            after = orbits.flow(controlled, y, t, times[1] - times[0], (p, law))
            return after, y[0]

        return jax.lax.scan(step, jnp.zeros(2), times)[1]

    for name, one in (("corrected", law(p)), ("printed", printed(p))):
        x = np.asarray(moved(one))
        curves.append(Curve(f"{name} law", np.asarray(times), x))
        off = np.max(np.abs(x[-80:] - np.asarray(wanted)[-80:]))
        run.add(f"{name}_law_off", float(off), "m")
    run.note("The law as printed does not lead to the motion wanted; the corrected one does.")
    return curves


def _random(run: Run, cases: int) -> None:
    rng = np.random.default_rng(0)
    low = np.array([1.0, 1.0, 0.1, 0.5, 0.5, 0.0, 0.1])
    high = np.array([1.0, 1.0, 1.0, 5.0, 2.0, np.pi, 3.0])
    values = jnp.asarray(rng.uniform(low, high, (cases, 7)))

    def one(row: Array) -> tuple[Array, Array]:
        p = dict(zip(NAMES, row, strict=True))
        found = law(p)
        return orbits.monodromy(controlled, exact(p), (p, found), rtol=1e-8), found[1]

    matrix, stiff = map(np.asarray, jax.jit(jax.vmap(one))(values))
    known = np.all(np.isfinite(matrix), axis=(1, 2))
    largest = np.full(cases, np.inf)
    largest[known] = np.max(np.abs(np.linalg.eigvals(matrix[known])), axis=1)
    unstable = largest >= 1
    run.add("unstable_laws", int(unstable.sum()), "1")
    run.add("unstable_laws_with_positive_stiffness", int(np.sum(unstable & (stiff > 0))), "1", 0)
    run.note(
        f"Of {cases} random laws {int(unstable.sum())} are unstable, of which "
        f"{int(np.sum(unstable & (stiff < 0)))} have a negative stiffness S."
    )


def _region(run: Run, settings: Config):
    etas = np.linspace(0.9, 1.1, settings.points)
    forces = np.linspace(0.01, 0.2, settings.points)
    largest = tongue(settings.eps, etas, forces)
    stable = largest < 1
    borders = np.array(
        [(etas[s].min(), etas[s].max()) if s.any() else (np.nan, np.nan) for s in stable.T]
    )
    run.add("synchronised_share", float(np.mean(stable)), "1")
    return forces, borders, stable


def _absorber(run: Run):
    start = {
        "primary": 10.0,
        "mass": 1.0,
        "spring": 360.0,
        "loss": 2.0,
        "force": 5.0,
        "rate": 6.0,
        "growth": 0.5,
    }
    numbers = {k: jnp.asarray(v) for k, v in start.items()}

    def with_law(x: Array) -> dict[str, Array]:
        return {**numbers, "damping": 5.0 * x[0], "stiffness": 36.0 * x[1]}

    @jax.jit
    def evaluate(x: Array, guess: Array):
        (value, states), slope = jax.value_and_grad(
            lambda z: shaken(with_law(z), guess), has_aux=True
        )(x)
        return jnp.log(value), states, slope / value

    guess = jnp.zeros((SEGMENTS, 4))
    history = []

    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal guess
        value, states, slope = evaluate(jnp.asarray(x), guess)
        if not np.isfinite(value):
            return 1e3, np.zeros(2)
        guess = states
        history.append(float(np.sqrt(np.exp(value))))
        return float(value), np.asarray(slope)

    found = scipy.optimize.minimize(
        both,
        np.array([1.0, 0.8]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-2.0, 2.0), (0.5, 1.5)],
        options={"maxiter": 60},
    )
    size = start["force"] / (start["mass"] * start["rate"] ** 2)
    ideal = -start["mass"] * (start["rate"] * size) ** 2
    run.add("primary_before", history[0], "m")
    run.add("primary_after", min(history), "m")
    run.add("absorber_damping", float(5.0 * found.x[0]), "N m", float(ideal))
    run.add("absorber_stiffness", float(36.0 * found.x[1]), "1/s^2", start["rate"] ** 2)
    return history


def _draw(run: Run, curves, region, history) -> None:
    forces, borders, _ = region
    run.figure(
        "synchronisation",
        viz.curves(
            [
                Panel("time [s]", "position [m]", curves),
                Panel(
                    "amplitude of the drive",
                    "frequency of the drive",
                    [
                        Curve("lowest that the oscillator follows", forces, borders[:, 0]),
                        Curve("highest that it follows", forces, borders[:, 1]),
                        Curve("weak drives, lowest", forces, 1 - forces / 2, points=True),
                        Curve("weak drives, highest", forces, 1 + forces / 2, points=True),
                    ],
                ),
                Panel(
                    "evaluations",
                    "rms of the primary mass [m]",
                    [Curve("absorber", np.arange(1, len(history) + 1), np.array(history))],
                    log="y",
                ),
            ],
            "An oscillator that synchronises",
        ),
        "The corrected law reaches the motion wanted; the printed one does not.",
    )
