"""A bevelled needle that is shot into tissue, and where its tip goes.

The needle is an Euler-Bernoulli beam that grows into an elastic foundation: tissue pushes it back
to the channel that its tip has cut. Speicher 2017 gives neither equations nor data: model and
numbers are defaults of this project; the two stages of a biopsy gun, damping and the rupture of
tissue are not modelled.
"""

import math
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from jaxgrip import config, viz
from jaxgrip.config import Real
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
# Elements of the needle, which advances by one in a step.
ELEMENTS = 320
ANGLES = 25
# Deflection by length at which a beam is no longer the linear one.
SMALL = 0.15


class Needle(eqx.Module):
    """A needle and its tissue.

    `diameter` and free `length` [m], `modulus` [Pa]; `bevel`, the angle between the face of its tip
    and its axis [rad]; `stiffness` of the tissue, force per length and displacement [N/m²];
    `resistance`, pressure on the face [Pa].
    """

    diameter: Float[Array, ""]
    length: Float[Array, ""]
    modulus: Float[Array, ""]
    bevel: Float[Array, ""]
    stiffness: Float[Array, ""]
    resistance: Float[Array, ""]


class Path(NamedTuple):
    """A needle that advances by one element a step.

    `depth` (n,) of the tip [m]; `tip` (n,), its displacement [m]; `shape` (n, n + 1), that of the
    nodes in every step, the clamp first.
    """

    depth: Float[Array, " n"]
    tip: Float[Array, " n"]
    shape: Float[Array, "n m"]


def bending(needle: Needle) -> Float[Array, ""]:
    """Flexural rigidity of the round needle [N m²]."""
    return needle.modulus * jnp.pi * needle.diameter**4 / 64


def forces(needle: Needle) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Force on the tip along the needle and across it [N], those of a pressure on the face."""
    along = needle.resistance * jnp.pi * needle.diameter**2 / 4
    return along, along / jnp.tan(needle.bevel)


def steady_curvature(needle: Needle) -> Float[Array, ""]:
    """Curvature of the channel deep in the tissue [1/m].

    Source: own derivation. Behind the tip, at x, the needle is off its channel by u = A exp(-b x)
    sin(b x) with b⁴ = k/(4 EI). No moment at the tip makes the curvature 2 b² A; the shear there is
    the force across, F = 2 EI b³ A.
    """
    rigidity = bending(needle)
    b = (needle.stiffness / (4 * rigidity)) ** 0.25
    return forces(needle)[1] / (rigidity * b)


def insert(needle: Needle, elements: int = ELEMENTS) -> Path:
    """Push the needle in to its whole length, and let its tip cut the channel."""
    h = needle.length / elements
    # By displacements and slopes times h, so that all entries are alike.
    bend = jnp.array([[12.0, 6, -12, 6], [6, 4, -6, 2], [-12, -6, 12, -6], [6, 2, -6, 4]])
    bend = bending(needle) / h**3 * bend
    # The clamped node is left out; the last one ends the beam.
    diagonal = jnp.broadcast_to(bend[:2, :2] + bend[2:, 2:], (elements, 2, 2))
    diagonal = diagonal.at[-1].set(bend[2:, 2:])
    across = forces(needle)[1]
    # The face enters over its own length, with a force in proportion to what is in the tissue.
    face = needle.diameter / jnp.tan(needle.bevel)
    nodes = 1 + np.arange(elements)

    def advance(channel: Array, inside: Array) -> tuple[Array, Array]:
        """`channel` (m,): displacements by depth; the tip is `inside` elements deep."""
        depth = nodes - (elements - inside)
        # Every node stands for an element's length of tissue, the one at the surface for half.
        # Around the tip there is none: what it displaces is not the channel yet.
        share = jnp.where(depth == 0, 0.5, 1.0)
        springs = jnp.where((depth >= 0) & (depth < inside), needle.stiffness * h * share, 0.0)
        load = springs * channel[jnp.clip(depth, 0)]
        tip_depth = h * inside.astype(h.dtype)
        load = load.at[-1].add(across * jnp.minimum(tip_depth / jnp.maximum(face, 1e-12), 1.0))
        found = _solved(diagonal.at[:, 0, 0].add(springs), bend[:2, 2:], load)
        return channel.at[inside].set(found[-1]), found

    channel, shape = jax.lax.scan(advance, jnp.zeros(elements + 1), 1 + jnp.arange(elements))
    shape = jnp.concatenate([jnp.zeros((elements, 1)), shape], axis=1)
    return Path(h * jnp.arange(1.0, elements + 1), channel[1:], shape)


def _solved(diagonal: Array, upper: Array, load: Array) -> Array:
    """Displacements (n,) of nodes by their loads; blocks (n, 2, 2), (2, 2) between neighbours."""
    force = jnp.stack([load, jnp.zeros_like(load)], axis=-1)

    def eliminate(before, row):
        pivot, right = before
        factor = upper.T @ _inverse(pivot)
        here = row[0] - factor @ upper, row[1] - factor @ right
        return here, here

    def substitute(after, row):
        here = _inverse(row[0]) @ (row[1] - upper @ after)
        return here, here

    first = diagonal[0], force[0]
    _, rest = jax.lax.scan(eliminate, first, (diagonal[1:], force[1:]))
    pivots, right = (jnp.concatenate([a[None], b]) for a, b in zip(first, rest, strict=True))
    last = _inverse(pivots[-1]) @ right[-1]
    _, found = jax.lax.scan(substitute, last, (pivots[:-1], right[:-1]), reverse=True)
    return jnp.append(found[:, 0], last[0])


def _inverse(a: Array) -> Array:
    adjoint = jnp.array([[1.0, -1.0], [-1.0, 1.0]]) * a[::-1, ::-1].T
    return adjoint / (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])


def tip(needle: Needle) -> Float[Array, ""]:
    """Displacement of the tip of the inserted needle [m]."""
    return insert(needle).tip[-1]


class Launch(NamedTuple):
    """How far and how fast a spring shoots the needle.

    `depth` [m] and `time` [s] at which it stops or reaches the end of the spring; `speed` there,
    and `fastest` [m/s].
    """

    depth: Float[Array, ""]
    time: Float[Array, ""]
    speed: Float[Array, ""]
    fastest: Float[Array, ""]


def launch(mass: Array, spring: Array, tension: Array, cut: Array, friction: Array) -> Launch:
    """A mass on a relaxing spring against a force that rises with the depth.

    m x'' = spring (tension - x) - cut - friction x is a harmonic motion about the depth of
    equilibrium, until it reverses or the spring is relaxed.

    **Arguments:** `mass` [kg]; `spring` [N/m]; `tension`, its initial length of compression [m];
    `cut` [N]; `friction` along the needle by depth [N/m].
    """
    middle = (spring * tension - cut) / (spring + friction)
    rate = jnp.sqrt((spring + friction) / mass)
    depth = jnp.clip(jnp.minimum(2 * middle, tension), 0.0)
    moves = middle > 0
    # At the reversal the angle is pi, where the arccosine has no derivative but is not needed.
    ends = 2 * middle <= tension
    share = jnp.where(moves & ~ends, depth / jnp.where(moves, middle, 1.0), 1.0)
    angle = jnp.where(ends, jnp.pi, jnp.arccos(1.0 - share))
    amplitude = jnp.maximum(middle, 0.0) * rate
    return Launch(
        depth,
        jnp.where(moves, angle / rate, 0.0),
        amplitude * jnp.where(ends, 0.0, jnp.sin(angle)),
        amplitude * jnp.where(angle > jnp.pi / 2, 1.0, jnp.sin(angle)),
    )


class Config(config.Config):
    """A needle, its tissue, and the spring that shoots it."""

    diameter: Positive = Field(1.0e-3, description="diameter [m]")
    length: Positive = Field(0.12, description="free length, which is inserted [m]")
    modulus: Positive = Field(2.0e11, description="Young's modulus [Pa]")
    bevel_deg: Annotated[Real, Field(gt=5.0, lt=90.0)] = Field(
        25.0, description="angle between the face of the tip and the axis [deg]"
    )
    stiffness: Positive = Field(
        4.0e4, description="force of the tissue by length and displacement [N/m²]"
    )
    resistance: Positive = Field(5.0e4, description="pressure of the tissue on the face [Pa]")
    friction: Annotated[Real, Field(ge=0.0)] = Field(
        8.0, description="friction along the needle by depth [N/m]"
    )
    mass: Positive = Field(0.012, description="mass that the spring shoots [kg]")
    spring: Positive = Field(1500.0, description="stiffness of the spring [N/m]")
    tension: Positive = Field(0.022, description="compression of the cocked spring [m]")

    @model_validator(mode="after")
    def _bends_little(self) -> "Config":
        needle = self.needle()
        free = float(forces(needle)[1] * needle.length**2 / (3 * bending(needle)))
        if self.diameter > 0.1 * self.length:
            raise ValueError(
                f"diameter: {self.diameter:g} m is too thick for a beam of {self.length:g} m."
            )
        if free > 3.0:
            raise ValueError(
                f"the force on the tip would bend the free needle by {free:.2g} of its length; it "
                "must be a beam that bends little: take a thicker or shorter needle."
            )
        return self

    def needle(self) -> Needle:
        """The needle and its tissue."""
        numbers = (
            *(self.diameter, self.length, self.modulus),
            *(math.radians(self.bevel_deg), self.stiffness, self.resistance),
        )
        return Needle(*(jnp.asarray(x, float) for x in numbers))


def run(settings: Config, run: Run) -> None:
    """The launch, the channel, and where the tip goes by the angle of its bevel."""
    needle = settings.needle()
    along, across = map(float, forces(needle))
    run.note("The source gives no equations and no data: all numbers are defaults or your own.")
    with run.stage("Launch"):
        numbers = (settings.mass, settings.spring, settings.tension, along, settings.friction)
        shot = launch(*(jnp.asarray(x, float) for x in numbers))
    run.add("launch_depth", float(shot.depth), "m")
    run.add("launch_time", float(shot.time), "s")
    run.add("launch_fastest", float(shot.fastest), "m/s")
    run.note(
        f"The spring shoots the needle {1e3 * float(shot.depth):.3g} mm deep in "
        f"{1e3 * float(shot.time):.3g} ms"
        + ("." if float(shot.speed) == 0 else f", where it still has {float(shot.speed):.3g} m/s.")
    )
    with run.stage("Insertion"):
        path = jax.tree.map(np.asarray, jax.jit(insert)(needle))
        slopes = jax.jit(jax.grad(tip))(needle)
    run.add("force_along", along, "N")
    run.add("force_across", across, "N")
    run.add("tip", float(path.tip[-1]), "m")
    run.add("tip_by_bevel", float(slopes.bevel), "m/rad")
    run.add("tip_by_stiffness", float(slopes.stiffness), "m^3/N")
    rigidity = float(bending(needle))
    run.add("tip_by_diameter", float(slopes.diameter), "m/m")
    run.add("steady_curvature", float(steady_curvature(needle)), "1/m")
    run.add("length_of_decay", float((4 * rigidity / needle.stiffness) ** 0.25), "m")
    if abs(path.tip[-1]) > SMALL * settings.length:
        run.note(
            f"The tip moves {100 * abs(path.tip[-1]) / settings.length:.0f} % of the length aside; "
            "the beam is linear, so that the numbers are rough."
        )
    with run.stage("Angles of the bevel"):
        bevels = jnp.deg2rad(jnp.linspace(15.0, 75.0, ANGLES))
        tips, by_bevel = jax.jit(
            lambda x: jax.vmap(jax.value_and_grad(lambda b: tip(_with_bevel(needle, b))))(x)
        )(bevels)
    run.arrays("path", _arrays(path))
    with run.stage("Pictures"):
        run.figure(
            "needle",
            _figure(settings, path, np.rad2deg(bevels), np.asarray(tips), np.asarray(by_bevel)),
            "A sharper bevel is pushed aside by a larger force.",
        )


def _with_bevel(needle: Needle, bevel: Array) -> Needle:
    return eqx.tree_at(lambda n: n.bevel, needle, bevel)


def _arrays(path: Path) -> xarray.Dataset:
    return xarray.Dataset(
        {
            "depth": ("step", path.depth, {"units": "m"}),
            "tip": ("step", path.tip, {"units": "m"}),
            "shape": (("step", "node"), path.shape, {"units": "m"}),
        }
    )


def _figure(settings: Config, path: Path, bevels: np.ndarray, tips: np.ndarray, slopes: np.ndarray):
    nodes = np.linspace(0.0, settings.length, path.shape.shape[1])
    curves = []
    for share in (0.25, 0.5, 0.75, 1.0):
        k = round(share * len(path.depth)) - 1
        at = 1e3 * (nodes - settings.length + path.depth[k])
        curves.append(Curve(f"needle {1e3 * path.depth[k]:.0f} mm deep", at, 1e3 * path.shape[k]))
    curves.append(Curve("channel that its tip has cut", 1e3 * path.depth, 1e3 * path.tip))
    most = 1e3 * settings.length
    return viz.curves(
        [
            Panel(
                "depth in the tissue [mm]",
                "displacement [mm]",
                curves,
                bands=[(0.0, most, "tissue")],
            ),
            Panel(
                "angle between the tip's face and the axis [°]",
                "displacement of the tip [mm]",
                [
                    Curve("tip at full depth", bevels, 1e3 * tips),
                    Curve(
                        "its tangent by the exact derivative",
                        *_tangent(settings, bevels, tips, slopes),
                    ),
                ],
            ),
        ],
        f"A bevelled needle of {1e3 * settings.diameter:g} mm in tissue",
    )


def _tangent(settings: Config, bevels: np.ndarray, tips: np.ndarray, slopes: np.ndarray):
    """A piece of the tangent at the needle's own bevel, in degrees and millimetres."""
    here = np.clip(settings.bevel_deg, bevels[0], bevels[-1])
    near = here + np.array([-8.0, 8.0])
    slope = np.deg2rad(np.interp(here, bevels, slopes))
    return near, 1e3 * (np.interp(here, bevels, tips) + slope * (near - here))
