"""Natural frequencies of an elastic quadruped that stands, and tuning of its modes.

Source: Ploeger 2017, whose published frequencies are compared. Data of the machine that it does not
give were identified from its modes by least squares and are defaults here; the springs act on the
angles of thigh and shank against the trunk, which its modes imply.
"""

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from jaxgrip import config, orbits, viz
from jaxgrip.config import Real
from jaxgrip.orbits import Modes
from jaxgrip.report import Run
from jaxgrip.solve import dense
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
GRAVITY = 9.81
# Coordinates: base x, y, z, roll, pitch, yaw, then thigh and shank of legs 1 front right, 2 front
# left, 3 rear left, 4 rear right. Kept: forward, up, roll, pitch.
KEPT = (0, 2, 3, 4)
FRONT = np.array([1.0, 1.0, -1.0, -1.0])
LEFT = np.array([-1.0, 1.0, 1.0, -1.0])
PUBLISHED = {
    ("four", 0.145): (0.4819, 2.2999, 5.6579, 8.0427),
    ("four", 0.12): (0.3081, 2.3476, 3.7455, 6.5270),
    ("two", 0.145): (0.0, 1.6837, 4.1000, 6.0364),
    ("two", 0.12): (0.0, 1.6991, 2.6803, 4.8240),
}
LEGS = {"free": (11.06, 20.72), "standing": (2.68, 7.47)}
# Modes of a leg in angle [rad] and length [m], as columns.
SHAPES = {
    "free": np.array([[-0.9995, 0.9952], [0.0315, 0.0973]]),
    "standing": np.array([[1.0, 0.2682], [0.0009, -0.9634]]),
}
NAMES = ("roll", "polar", "vertical", "pitch")


class Quadruped(eqx.Module):
    """The machine: trunk, four legs of two links, springs against the trunk.

    `stiffness` of each spring [N m/rad]; `link` length [m]; `trunk` mass [kg], its `inertia` (3,)
    [kg m²] and `centre` (3,) [m]; hips `long`, `wide` apart and `low` under the base [m]; `thigh`
    and `shank`: mass [kg], distance of the centre from the upper joint [m], inertia [kg m²].
    """

    stiffness: Float[Array, ""]
    link: Float[Array, ""]
    trunk: Float[Array, ""]
    inertia: Float[Array, "3"]
    centre: Float[Array, "3"]
    long: Float[Array, ""]
    wide: Float[Array, ""]
    low: Float[Array, ""]
    thigh: Float[Array, "3"]
    shank: Float[Array, "3"]


def _turned(angles: Array) -> Array:
    """Rotation of the trunk: roll, pitch, yaw."""
    (a, b, c), (sa, sb, sc) = jnp.cos(angles), jnp.sin(angles)
    x = jnp.array([[1.0, 0, 0], [0, a, -sa], [0, sa, a]])
    y = jnp.array([[b, 0, sb], [0, 1.0, 0], [-sb, 0, b]])
    z = jnp.array([[c, -sc, 0], [sc, c, 0], [0, 0, 1.0]])
    return z @ y @ x


def bodies(machine: Quadruped, q: Float[Array, "14"]) -> tuple[Array, Array, Array]:
    """Centres of trunk, thighs and shanks (9, 3), feet (4, 3), angles of links (8,)."""
    turn, base = _turned(q[3:6]), q[:3]
    angles = q[6:].reshape(4, 2)
    down = jnp.stack([jnp.sin(angles), jnp.zeros_like(angles), -jnp.cos(angles)], axis=-1)
    hips = jnp.stack(
        [
            0.5 * machine.long * jnp.asarray(FRONT),
            0.5 * machine.wide * jnp.asarray(LEFT),
            -machine.low * jnp.ones(4),
        ],
        axis=1,
    )
    knees = hips + machine.link * down[:, 0]
    points = jnp.concatenate(
        [
            machine.centre[None],
            hips + machine.thigh[1] * down[:, 0],
            knees + machine.shank[1] * down[:, 1],
        ]
    )
    feet = knees + machine.link * down[:, 1]
    return base[None] + points @ turn.T, base[None] + feet @ turn.T, angles.ravel()


def standing(machine: Quadruped, length: Array) -> Float[Array, "14"]:
    """Coordinates with legs of a length [m] under their hips, all knees bent the same way."""
    bend = jnp.arccos(length / (2 * machine.link))
    legs = jnp.tile(jnp.stack([-bend, bend]), 4)
    zero = jnp.zeros_like(length)
    return jnp.concatenate([jnp.stack([zero, zero, length + machine.low, zero, zero, zero]), legs])


def masses(machine: Quadruped) -> Float[Array, "9"]:
    """Masses of trunk, thighs and shanks [kg]."""
    legs = jnp.repeat(jnp.stack([machine.thigh[0], machine.shank[0]]), 4)
    return jnp.concatenate([machine.trunk[None], legs])


def mass_matrix(machine: Quadruped, q: Float[Array, "14"]) -> Float[Array, "14 14"]:
    """Mass matrix with a level trunk; links have inertia about the pitch axis alone."""
    by = jax.jacfwd(lambda x: bodies(machine, x)[0])(q)
    matrix = jnp.einsum("b,bci,bcj->ij", masses(machine), by, by)
    turning = jnp.eye(14)[3:6]
    matrix += turning.T @ (machine.inertia[:, None] * turning)
    # A link turns with the trunk's pitch, against which its angle is measured: down leans forward
    # where the trunk pitches back.
    links = jnp.eye(14)[6:] - jnp.eye(14)[4][None]
    inertia = jnp.tile(jnp.stack([machine.thigh[2], machine.shank[2]]), 4)
    return matrix + links.T @ (inertia[:, None] * links)


def constraints(machine: Quadruped, feet: str, q: Float[Array, "14"]) -> Float[Array, "10"]:
    """What stays constant with four feet on the ground, or with feet 1 and 3, the other legs still.

    **Arguments:** `feet`: "four" or "two".
    """
    at = bodies(machine, q)[1]
    if feet == "four":
        return jnp.concatenate([at[0], at[1, ::2], at[2], at[3, ::2]])
    return jnp.concatenate([at[0], q[8:10], at[2], q[12:14]])


def look(machine: Quadruped, feet: str, length: Array) -> Modes:
    """Modes of the standing machine with the springs' stiffness alone, as published."""
    q = standing(machine, length)
    free = orbits.freedoms(lambda x: constraints(machine, feet, x), q, KEPT)
    springs = machine.stiffness * jnp.ones(8)
    stiffness = orbits.spring_stiffness(lambda x: x[6:], springs, q)
    return orbits.modes(mass_matrix(machine, q), stiffness, free)


def look_exactly(machine: Quadruped, feet: str, length: Array) -> Modes:
    """Modes with the second derivative of the energy, springs balancing gravity at rest."""
    q = standing(machine, length)

    def bound(x: Array) -> Array:
        return constraints(machine, feet, x)

    free = orbits.freedoms(bound, q, KEPT)

    def weight(x: Array) -> Array:
        return GRAVITY * masses(machine) @ bodies(machine, x)[0][:, 2]

    # The least torques of the springs that balance gravity along what the feet leave.
    pulled = free.T @ jax.grad(weight)(q)
    torque = -dense.pinv(free[6:].T) @ pulled

    def energy(x: Array) -> Array:
        change = x[6:] - q[6:]
        return weight(x) + torque @ change + 0.5 * machine.stiffness * change @ change

    return orbits.modes(mass_matrix(machine, q), orbits.static_stiffness(energy, q, bound), free)


def leg(machine: Quadruped, kind: str, length: Array) -> tuple[Array, Array]:
    """Frequencies (2,) [Hz] and modes (2, 2), in angle and length, of one leg.

    `free`: the hip fixed; `standing`: the foot fixed, a quarter of the trunk at the hip.
    """
    bend = jnp.arccos(length / (2 * machine.link))
    start = jnp.stack([jnp.zeros_like(bend), jnp.zeros_like(bend), -bend, bend])

    def places(x: Array) -> tuple[Array, Array, Array]:
        """Centres of hip mass, thigh and shank, foot, and foot against the hip."""
        down = jnp.stack([jnp.sin(x[2:]), -jnp.cos(x[2:])], axis=1)
        knee = x[:2] + machine.link * down[0]
        foot = knee + machine.link * down[1]
        upper, lower = machine.thigh[1] * down[0], machine.shank[1] * down[1]
        return jnp.stack([x[:2], x[:2] + upper, knee + lower]), foot, foot - x[:2]

    def polar(x: Array) -> Array:
        px, pz = places(x)[2]
        return jnp.stack([jnp.arctan2(px, -pz), jnp.sqrt(px**2 + pz**2)])

    by = jax.jacfwd(lambda x: places(x)[0])(start)
    weights = jnp.stack([machine.trunk / 4, machine.thigh[0], machine.shank[0]])
    mass = jnp.einsum("b,bci,bcj->ij", weights, by, by)
    mass += jnp.diag(jnp.stack([0.0, 0.0, machine.thigh[2], machine.shank[2]]))
    held = (lambda x: x[:2]) if kind == "free" else (lambda x: places(x)[1])
    kept = (2, 3) if kind == "free" else (0, 1)
    free = orbits.freedoms(held, start, kept)
    springs = machine.stiffness * jnp.ones(2)
    found = orbits.modes(mass, orbits.spring_stiffness(lambda x: x[2:], springs, start), free)
    shapes = jax.jacfwd(polar)(start) @ found.shape
    return found.frequency, shapes / jnp.sqrt(jnp.sum(shapes**2, axis=0))[None]


def orthogonality(machine: Quadruped, shapes: np.ndarray, length: float) -> tuple[float, float]:
    """Off-diagonal of Wᵀ K W, normalised, with springs against the trunk and in the knee."""
    link, k = float(machine.link), float(machine.stiffness)
    sine = np.sqrt(1 - (length / (2 * link)) ** 2)
    # Angles of thigh and shank by polar coordinates of the foot.
    by = np.array([[1.0, -1 / (2 * link * sine)], [1.0, 1 / (2 * link * sine)]])
    values = []
    for springs in (np.eye(2), np.array([[1.0, 0.0], [-1.0, 1.0]])):
        matrix = k * (springs @ by).T @ (springs @ by)
        product = shapes.T @ matrix @ shapes
        values.append(abs(product[0, 1]) / np.sqrt(product[0, 0] * product[1, 1]))
    return tuple(values)


class Config(config.Config):
    """The machine, and the length of its legs."""

    stiffness: Positive = Field(2.0, description="of every spring [N m/rad]")
    trunk: Positive = Field(2.07, description="mass of the trunk [kg]")
    inertia: tuple[Positive, Positive, Positive] = Field(
        (2.42, 0.018, 0.02),
        description="of the trunk about x, y and z [kg m²]; the published roll frequencies need "
        "2.42, a plausible machine has 0.006",
    )
    long: Positive = Field(0.25, description="distance of front and rear hips [m]")
    wide: Positive = Field(0.16, description="distance of left and right hips [m]")
    lengths: tuple[Positive, ...] = Field(
        (0.145, 0.12), min_length=1, description="lengths of the legs that are looked at [m]"
    )

    @model_validator(mode="after")
    def _bends(self) -> "Config":
        for length in self.lengths:
            if length >= 0.16:
                raise ValueError(
                    f"lengths: a leg of two links of 0.08 m cannot be {length:g} m long; bent it "
                    "is below 0.16."
                )
        return self

    def machine(self) -> Quadruped:
        """The machine."""
        numbers = (
            *(self.stiffness, 0.08, self.trunk, self.inertia, (0.014, 0.0, -0.004)),
            *(self.long, self.wide, 0.011, (0.09, 0.0, 1.6e-4), (0.03, 0.06, 6e-5)),
        )
        return Quadruped(*(jnp.asarray(x, float) for x in numbers))


def run(settings: Config, run: Run) -> None:
    """Frequencies against the published ones, findings, tuning."""
    machine = settings.machine()
    for sentence in (
        "The published modes of a leg are orthogonal for springs that act on thigh and shank "
        "against the trunk, not for a spring in the knee.",
        "Free-leg frequencies belong to a leg of 0.15 m, as those of the standing leg do.",
        "The frequencies of the standing leg need a quarter of the trunk's mass at the hip.",
        "The published roll frequencies need an inertia of 2.42 kg m² about x, hundreds of times "
        "that of such a trunk; with 0.006 kg m² they are below.",
    ):
        run.note(sentence)
    with run.stage("Frequencies"):
        _frequencies(run, settings, machine)
    with run.stage("Tuning"):
        curves = _tuning(run, machine)
    with run.stage("Pictures"):
        run.figure(
            "quadruped_modes",
            viz.curves(
                [Panel("length of the legs [m]", "frequency on four feet [Hz]", curves)],
                "Modes of an elastic quadruped that stands on four feet",
            ),
            "Short legs bring the vertical mode down to the polar one.",
        )


def _frequencies(run: Run, settings: Config, machine: Quadruped) -> None:
    plain = eqx.tree_at(lambda m: m.inertia, machine, machine.inertia.at[0].set(0.006))
    for feet in ("four", "two"):
        own = jax.jit(lambda m, r, feet=feet: look(m, feet, r).frequency)
        exact = jax.jit(lambda m, r, feet=feet: look_exactly(m, feet, r).eigenvalue)
        for length in settings.lengths:
            label = f"{feet}_feet_{1e3 * length:.0f}_mm"
            known = PUBLISHED.get((feet, length))
            found = own(machine, jnp.asarray(length))
            run.add(label, np.asarray(found).tolist(), "Hz", known and list(known))
            small = own(plain, jnp.asarray(length))
            run.add(f"{label}_small_roll_inertia", np.asarray(small).tolist(), "Hz")
            values = np.asarray(exact(machine, jnp.asarray(length)))
            run.add(f"{label}_exact_eigenvalues", values.tolist(), "1/s^2")
    for kind, known in LEGS.items():
        found, shapes = jax.jit(lambda m, r, kind=kind: leg(m, kind, r))(machine, jnp.asarray(0.15))
        run.add(f"{kind}_leg", np.asarray(found).tolist(), "Hz", list(known))
        # Signs depend on the side to which the knee bends, which the source does not say.
        ours, printed = (np.abs(np.asarray(x)).T.ravel().tolist() for x in (shapes, SHAPES[kind]))
        run.add(f"{kind}_leg_modes", ours, "1", printed)
        against, knee = orthogonality(machine, SHAPES[kind], 0.15)
        run.add(f"{kind}_leg_orthogonality", [against, knee], "1")


def _tuning(run: Run, machine: Quadruped) -> list[Curve]:
    def gap(x: Array) -> Array:
        """Square of the difference of vertical and polar frequency.

        By the length of the legs [dm], the trunk's mass [kg] and its centre forward [cm].
        """
        centre = machine.centre.at[0].set(0.01 * x[2])
        tuned = eqx.tree_at(lambda m: (m.trunk, m.centre), machine, (x[1], centre))
        frequency = look(tuned, "four", 0.1 * x[0]).frequency
        return (frequency[2] - frequency[1]) ** 2

    evaluate = jax.jit(jax.value_and_grad(gap))
    lengths = np.linspace(0.06, 0.15, 46)
    over = jax.jit(jax.vmap(lambda r: look(machine, "four", r).frequency))
    every = np.asarray(over(jnp.asarray(lengths)))
    found = scipy.optimize.minimize(
        lambda x: tuple(np.asarray(v) for v in evaluate(jnp.asarray(x))),
        np.array([1.2, float(machine.trunk), 100 * float(machine.centre[0])]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.5, 1.55), (0.8, 3.0), (-2.0, 2.0)],
    )
    run.add("tuned_length", 0.1 * float(found.x[0]), "m")
    run.add("tuned_trunk", float(found.x[1]), "kg")
    run.add("tuned_centre", 0.01 * float(found.x[2]), "m")
    run.add("tuned_gap", float(np.sqrt(found.fun)), "Hz")
    run.add("evaluations", int(found.nfev), "1")
    return [Curve(NAMES[j], lengths, every[:, j]) for j in range(4)]
