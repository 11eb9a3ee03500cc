"""Elliptic motion and its inverse in Study's coordinates, and chains with base and tip exchanged.

Source: Stigger 2017, an abstract: conjugation of dual quaternions exchanges base and tip. Equations
of the chains and all numbers are derived here.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field

from jaxgrip import config, viz
from jaxgrip.config import Real
from jaxgrip.report import Run
from jaxgrip.spatial import dual_quaternions as dq

Positive = Annotated[Real, Field(gt=0.0)]
STEPS = 120
# Points of the bar whose paths are drawn, by their share of its length and their height [m].
POINTS = ((0.3, 0.0), (0.5, 0.15), (1.2, 0.0))


def about_z(angle: Array, x: Array, y: Array) -> Float[Array, "8"]:
    """Planar pose: a rotation about z [rad], then a translation [m]."""
    zero = jnp.zeros_like(angle)
    turn = dq.exponential(jnp.stack([zero, zero, angle, zero, zero, zero]))
    move = dq.exponential(jnp.stack([zero, zero, zero, x, y, zero]))
    return dq.product(move, turn)


def elliptic(angle: Array, length: Array) -> Float[Array, "8"]:
    """A bar whose ends move on two axes, by its angle."""
    return about_z(angle, -length * jnp.cos(angle), jnp.zeros_like(angle))


def elliptic_equations(q: Float[Array, "8"], length: Array) -> Float[Array, "2"]:
    """Both equations of the elliptic motion, zero on it."""
    x0, x3, y1, y2 = q[0], q[3], q[5], q[6]
    second = 2 * (x0 * y1 - x3 * y2) + length * (x0**2 - x3**2)
    return jnp.stack([x0 * y2 + x3 * y1, second])


def link(theta: Array, d: Array, a: Array, alpha: Array) -> Float[Array, "8"]:
    """Pose of a link, Rz(theta) Tz(d) Tx(a) Rx(alpha)."""
    zero = jnp.zeros_like(theta)
    first = dq.exponential(jnp.stack([zero, zero, theta, zero, zero, d]))
    return dq.product(first, dq.exponential(jnp.stack([alpha, zero, zero, a, zero, zero])))


def inverse_link(theta: Array, d: Array, a: Array, alpha: Array) -> Float[Array, "8"]:
    """The inverse of a link, Rx(-alpha) Tx(-a) Tz(-d) Rz(-theta)."""
    zero = jnp.zeros_like(theta)
    first = dq.exponential(jnp.stack([-alpha, zero, zero, -a, zero, zero]))
    return dq.product(first, dq.exponential(jnp.stack([zero, zero, -theta, zero, zero, -d])))


def slide_and_turn(slide: Array, angle: Array, length: Array) -> Float[Array, "8"]:
    """Planar chain PR: a slide along x and a link on a hinge."""
    zero = jnp.zeros_like(slide)
    return dq.product(about_z(angle, slide, zero), about_z(zero, length, zero))


def slide_and_turn_equation(q: Float[Array, "8"], length: Array) -> Float[Array, ""]:
    """Zero for the poses of the chain PR: the height is that of the link."""
    return q[3] * q[5] + q[0] * q[6] - length * q[0] * q[3]


def turn_and_slide_equation(q: Float[Array, "8"], length: Array) -> Float[Array, ""]:
    """Zero for the poses of the chain RP, that of PR with x3, y1 and y2 negated."""
    return q[3] * q[5] - q[0] * q[6] + length * q[0] * q[3]


def chain(numbers: Float[Array, "n 4"]) -> Float[Array, "8"]:
    """Pose of links with theta, d, a and alpha (n, 4)."""
    start = jnp.zeros(8, numbers.dtype).at[0].set(1.0)
    return jax.lax.scan(lambda q, row: (dq.product(q, link(*row)), None), start, numbers)[0]


def inverse_chain(numbers: Float[Array, "n 4"]) -> Float[Array, "8"]:
    """Pose of the chain with base and tip exchanged, link by link."""
    start = jnp.zeros(8, numbers.dtype).at[0].set(1.0)
    return jax.lax.scan(
        lambda q, row: (dq.product(q, inverse_link(*row)), None), start, numbers[::-1]
    )[0]


def degree(points: Float[np.ndarray, "n 2"], most: int = 6) -> int:
    """The least degree of an algebraic curve through points of a path."""
    x, y = ((points - points.mean(axis=0)) / np.ptp(points, axis=0).max()).T
    for d in range(1, most + 1):
        terms = np.stack([x**i * y**j for i in range(d + 1) for j in range(d + 1 - i)], axis=1)
        terms /= np.linalg.norm(terms, axis=0)
        values = np.linalg.svd(terms, compute_uv=False)
        if values[-1] < 1e-10 * values[0]:
            return d
    return most + 1


_moved = jax.vmap(jax.vmap(dq.transform, (None, 0)), (0, None))


class Config(config.Config):
    """The bar and the random chains."""

    length: Positive = Field(1.0, description="length of the bar [m]")
    chains: Annotated[int, Field(ge=1, le=10_000)] = Field(1000, description="random chains")
    links: Annotated[int, Field(ge=1, le=12)] = Field(6, description="links of each")


def run(settings: Config, run: Run) -> None:
    """Equations, degrees of the paths, inverse chains."""
    length = jnp.asarray(settings.length)
    angles = jnp.linspace(0.0, 2 * jnp.pi, STEPS + 1)
    points = jnp.asarray([[s * settings.length, h, 0.0] for s, h in POINTS])
    with run.stage("Elliptic motion and its inverse"):
        poses = jax.vmap(lambda a: elliptic(a, length))(angles)
        inverse = jax.vmap(dq.conjugate)(poses)
        off = jax.vmap(lambda q: elliptic_equations(q, length))(poses)
        back = jax.vmap(lambda q: elliptic_equations(dq.conjugate(q), length))(inverse)
        paths = [np.asarray(_moved(some, points)) for some in (poses, inverse)]
    run.add("elliptic_off", float(jnp.max(jnp.abs(off))), "m", 0.0)
    run.add("inverse_off", float(jnp.max(jnp.abs(back))), "m", 0.0)
    for name, path, known in (("elliptic", paths[0], 2), ("inverse", paths[1], 4)):
        found = [degree(path[:, k, :2]) for k in range(len(POINTS))]
        run.add(f"{name}_degrees", found, "1", [known] * len(POINTS))
    with run.stage("Chains with base and tip exchanged"):
        rng = np.random.default_rng(0)
        numbers = jnp.asarray(rng.uniform(-2.0, 2.0, (settings.chains, settings.links, 4)))
        both = jax.jit(jax.vmap(lambda x: dq.product(chain(x), inverse_chain(x))))(numbers)
        pair = jnp.asarray(rng.uniform(-2.0, 2.0, (settings.chains, 2)))
        slid = jax.vmap(lambda x: slide_and_turn(x[0], x[1], length))(pair)
        zero = jax.vmap(
            lambda q: jnp.stack(
                [
                    slide_and_turn_equation(q, length),
                    turn_and_slide_equation(dq.conjugate(q), length),
                ]
            )
        )(slid)
    one = jnp.zeros(8).at[0].set(1.0)
    run.add("chains_off", float(jnp.max(jnp.abs(both - one[None]))), "1", 0.0)
    run.add("slide_and_turn_off", float(jnp.max(jnp.abs(zero))), "m", 0.0)
    run.note(
        "The chain RP satisfies the equation of PR at the conjugate of its pose. Planar PRR and "
        "RRP reach all planar poses near, so that they have no equation of their own."
    )
    with run.stage("Pictures"):
        _draw(run, settings, poses, inverse, paths)


def _draw(run: Run, settings: Config, poses: Array, inverse: Array, paths: list) -> None:
    ends = jnp.asarray([[0.0, 0.0, 0.0], [settings.length, 0.0, 0.0]])
    arms = settings.length * jnp.asarray([[1.2, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.2, 0.0]])
    for name, some, path, body in (
        ("elliptic", poses, paths[0], ends),
        ("inverse", inverse, paths[1], arms),
    ):
        drawn = np.asarray(
            jax.vmap(lambda q, b=body: jax.vmap(lambda x: dq.transform(q, x))(b))(some)
        )
        still = np.asarray(arms if name == "elliptic" else ends)
        parts = {
            "moves": xarray.DataArray(drawn, dims=("step", "point", "axis")),
            "stands": xarray.DataArray(
                np.broadcast_to(still, (len(drawn), *still.shape)), dims=("step", "point", "axis")
            ),
        }
        marks = {
            f"point {k + 1}": xarray.DataArray(path[:, k], dims=("step", "axis"))
            for k in range(len(POINTS))
        }
        title = {
            "elliptic": "A bar on two axes: points move on ellipses",
            "inverse": "The axes move and the bar stands: points move on limaçons",
        }[name]
        run.figure(
            f"{name}_motion",
            viz.linkage(parts, title, plane="xy", step=12, paths=marks),
            "The same relative motion, base and body exchanged.",
        )
        run.animation(
            f"{name}_motion",
            viz.animate_linkage(
                {key: part[::2] for key, part in parts.items()},
                title,
                plane="xy",
                captions=[f"{3 * 2 * k}°" for k in range(len(drawn[::2]))],
            ),
            "One revolution.",
        )
