"""Elliptic motion and its inverse in Study's coordinates, and chains with base and tip exchanged.

Source: Stigger 2017, an abstract: conjugation of dual quaternions exchanges base and tip. Equations
of the chains and all numbers are derived here.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import Field, model_validator

from jaxgrip import config, viz
from jaxgrip.config import Real
from jaxgrip.mechanism import study
from jaxgrip.report import Run
from jaxgrip.spatial import dual_quaternions as dq
from jaxgrip.viz.style import PALETTE, styled

Positive = Annotated[Real, Field(gt=0.0)]
STEPS = 120
# Points of what moves whose paths are drawn, as shares of the length of the bar.
POINTS = ((0.3, 0.0), (0.5, 0.25), (1.25, 0.0))


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
    """The bar, a short chain and random chains."""

    length: Positive = Field(1.0, description="length of the bar [m]")
    joints: str = Field(
        "PRR", description="a chain of up to three joints that slide, P, or turn, R"
    )
    rows: tuple[tuple[Real, Real, Real, Real], ...] = Field(
        ((0.3, 0.1, 0.2, 1.1), (-0.4, 0.25, 0.3, 0.7), (0.0, 0.05, 0.15, -0.5)),
        description="theta [rad], d [m], a [m] and alpha [rad] of every joint, whose own "
        "coordinate adds to theta or d",
    )
    chains: Annotated[int, Field(ge=1, le=10_000)] = Field(1000, description="random chains")
    links: Annotated[int, Field(ge=1, le=12)] = Field(6, description="links of each")

    @model_validator(mode="after")
    def _has_equations(self) -> "Config":
        # Its sentence says what is wrong with the joints.
        study.equations(self.chain(), jnp.eye(8)[0])
        return self

    def chain(self) -> study.Chain:
        """The short chain."""
        return study.from_dh(self.joints, self.rows)


def quadrics(values: Float[np.ndarray, "k m"], q: Float[np.ndarray, "k 8"]) -> int:
    """How many independent polynomials of degree two have these values at eight numbers."""
    i, j = np.triu_indices(8)
    products = q[:, i] * q[:, j]
    return int(np.linalg.matrix_rank(np.linalg.lstsq(products, values, rcond=None)[0], tol=1e-8))


def sampled_quadrics(q: Float[np.ndarray, "k 8"]) -> int:
    """How many polynomials of degree two vanish at poses."""
    i, j = np.triu_indices(8)
    size = np.linalg.svd(q[:, i] * q[:, j], compute_uv=False)
    return int(np.sum(size < 1e-10 * size[0]))


def run(settings: Config, run: Run) -> None:
    """Equations, degrees of the paths, inverse chains."""
    length = jnp.asarray(settings.length)
    angles = jnp.linspace(0.0, 2 * jnp.pi, STEPS + 1)
    points = jnp.asarray([[s * settings.length, h * settings.length, 0.0] for s, h in POINTS])
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
        _exchanged(settings, run)
    with run.stage(f"Equations of {settings.joints} and its inverse"):
        _eliminated(settings, run)
    with run.stage("Pictures"):
        _draw(run, settings, poses, inverse, paths)


def _exchanged(settings: Config, run: Run) -> None:
    rng = np.random.default_rng(0)
    count, length = settings.links, jnp.asarray(settings.length)
    joints = "RP" * 6
    rows = jnp.asarray(rng.uniform(-2.0, 2.0, (settings.chains, count, 4)))
    moves = jnp.asarray(rng.uniform(-2.0, 2.0, (settings.chains, count)))

    def there_and_back(rows: Array, move: Array) -> Array:
        chain = study.from_dh(joints[:count], rows)
        back = study.pose(study.inverted(chain), -move[::-1])
        return dq.product(study.pose(chain, move), back)

    both = jax.jit(jax.vmap(there_and_back))(rows, moves)
    run.add("chains_off", float(jnp.max(jnp.abs(both - jnp.eye(8)[:1]))), "1", 0.0)
    pair = jnp.asarray(rng.uniform(-2.0, 2.0, (settings.chains, 2)))

    def planar(x: Array) -> Array:
        q = slide_and_turn(x[0], x[1], length)
        back = turn_and_slide_equation(dq.conjugate(q), length)
        return jnp.stack([slide_and_turn_equation(q, length), back])

    run.add("slide_and_turn_off", float(jnp.max(jnp.abs(jax.vmap(planar)(pair)))), "m", 0.0)
    run.note(
        "In the plane PRR and RRP reach all poses near, so that they have no equation of their "
        "own; in space they have, and the run eliminates them."
    )


def _eliminated(settings: Config, run: Run) -> None:
    """Polynomials of the short chain and its inverse at their poses, and how many there are."""
    rng = np.random.default_rng(1)
    chain = settings.chain()
    back = study.inverted(chain)
    moves = jnp.asarray(rng.uniform(-2.0, 2.0, (settings.chains, len(settings.joints))))
    free = jnp.asarray(rng.normal(size=(100, 8)))

    @jax.jit
    def values(chain: study.Chain, q: Array) -> Array:
        return jax.vmap(study.equations, (None, 0))(chain, q)

    @jax.jit
    def reached(chain: study.Chain, moves: Array) -> Array:
        return jax.vmap(study.pose, (None, 0))(chain, moves)

    q = reached(chain, moves)
    other = reached(back, moves)
    run.add("chain_off", float(jnp.max(jnp.abs(values(chain, q)))), "1", 0.0)
    conjugates = jax.vmap(dq.conjugate)(other)
    run.add("inverse_chain_off", float(jnp.max(jnp.abs(values(chain, conjugates)))), "1", 0.0)
    if len(settings.joints) == 3:
        found = quadrics(np.asarray(values(chain, free)), np.asarray(free))
        run.add("quadrics_eliminated", found, "1")
        run.add("quadrics_of_a_sample", sampled_quadrics(np.asarray(q)), "1")
        run.note(
            f"The poses of {settings.joints} satisfy {found} independent quadratic equations in "
            "Study's coordinates, and no others: a sample of poses has as many. Those of "
            f"{back.joints} are the same with x1, x2, x3, y1, y2 and y3 negated."
        )


def _draw(run: Run, settings: Config, poses: Array, inverse: Array, paths: list) -> None:
    length = settings.length
    bar = length * np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    reach = 1.35 * length
    cross = reach * np.array([[-1.0, 0, 0], [1.0, 0, 0], [0, -1.0, 0], [0, 1.0, 0]])
    moved = {
        "bar": np.asarray(_moved(poses, jnp.asarray(bar))),
        "axes": np.asarray(_moved(inverse, jnp.asarray(cross))),
    }
    panels = [
        ("The bar moves: ellipses, degree 2", "bar", moved["bar"], cross, paths[0]),
        ("The axes move: limaçons, degree 4", "axes", moved["axes"], bar, paths[1]),
    ]
    picture = _Picture(panels, length)
    run.figure(
        "both_motions",
        picture.at(STEPS // 8),
        "The same relative motion of a bar and two axes, seen from either: its points draw curves "
        "of different degrees.",
    )
    moving = [x for lines, _, dots, _ in picture.moving for x in (*lines, *dots)]
    run.animation(
        "both_motions",
        viz.film(picture.figure, moving, picture.at, range(0, STEPS, 2), 4.0, colours=32),
        "One revolution.",
    )


class _Picture:
    """Both motions side by side; panels of title, what moves, its points, what stands, paths."""

    @styled
    def __init__(self, panels: list, length: float):
        self.figure = Figure(figsize=(9.6, 5.4), dpi=100)
        self.panels, self.moving = panels, []
        factor, unit = viz.readable(2 * length, "m")
        self.factor = factor
        for k, (title, name, moved, still, paths) in enumerate(panels):
            axes = self.figure.add_axes((0.07 + 0.49 * k, 0.17, 0.42, 0.72))
            axes.set_title(title)
            every = np.concatenate([p.reshape(-1, 3) for p in (paths, still)])[:, :2]
            middle = (every.max(axis=0) + every.min(axis=0)) / 2
            half = 0.55 * np.ptp(every, axis=0).max()
            axes.set(
                xlim=factor * (middle[0] + half * np.array([-1, 1])),
                ylim=factor * (middle[1] + half * np.array([-1, 1])),
                xlabel=f"x [{unit}]",
            )
            axes.set_aspect("equal")
            if k == 0:
                axes.set_ylabel(f"y [{unit}]")
            for path, colour in zip(np.swapaxes(paths, 0, 1), PALETTE[1:4], strict=True):
                axes.plot(*factor * path[:, :2].T, color=colour, linewidth=1.4, zorder=2)
            lines = self._body(axes, "axes" if name == "bar" else "bar")
            self._place(lines, still)
            dots = [
                axes.plot([], [], "o", color=colour, markersize=8, zorder=5)[0]
                for colour in PALETTE[1:4]
            ]
            self.moving.append((self._body(axes, name), moved, dots, paths))
        handles = [
            Line2D([], [], color=PALETTE[0], linewidth=5, label="bar"),
            Line2D([], [], color="black", linewidth=2.5, label="axes"),
            *(
                Line2D([], [], color=colour, marker="o", markersize=8, linewidth=1.4, label=label)
                for colour, label in zip(
                    PALETTE[1:4], ("point 1", "point 2", "point 3"), strict=True
                )
            ),
        ]
        self.figure.legend(handles=handles, loc="lower center", ncols=5)

    def _body(self, axes: Axes, name: str) -> list[Line2D]:
        if name == "bar":
            style = {"color": PALETTE[0], "linewidth": 5.0, "marker": "o", "markersize": 9.0}
            return axes.plot([], [], zorder=4, solid_capstyle="round", **style)
        style = {"color": "black", "linewidth": 2.5}
        return [axes.plot([], [], zorder=3, **style)[0] for _ in range(2)]

    def _place(self, lines: list[Line2D], points: np.ndarray) -> None:
        for line, ends in zip(lines, points.reshape(len(lines), 2, 3), strict=True):
            line.set_data(*self.factor * ends[:, :2].T)

    def at(self, step: int) -> Figure:
        """The figure at a step."""
        for lines, moved, dots, paths in self.moving:
            self._place(lines, moved[step])
            for dot, place in zip(dots, paths[step], strict=True):
                dot.set_data(*(self.factor * place[:2, None]))
        return self.figure
