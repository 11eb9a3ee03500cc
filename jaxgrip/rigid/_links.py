"""Links of a robot's file: fixed ones merged into their carriers, masses judged, made a tree."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import listed, near, numbers
from jaxgrip.rigid._tree import Tree
from jaxgrip.rigid.builders import FramePlacement, Placement, from_placements

# Of the largest principal value of an inertia: what rounding in a file may miss.
SLACK = 1e-9
# Coordinates of joints with more than one, in the order of the rates.
PARTS = {
    "free": ("x", "y", "z", "rx", "ry", "rz"),
    "planar": ("x", "y", "rz"),
    "spherical": ("rx", "ry", "rz"),
}


class Link(NamedTuple):
    """A rigid part of a file, placed in the frame of its parent by a joint.

    As `Placement`, with `joint` its name, `kind` as `Placement.joint`, and `passive`: armature,
    stiffness, reference, damping and friction by name. `parent` is None for the base. The frame
    of the link, of `com` and of what it carries, has its `origin` (3,) and its axes `turn` (3, 3)
    in the frame of the joint.
    """

    name: str
    parent: str | None
    translation: np.ndarray
    rotation: np.ndarray
    mass: float = 0.0
    com: np.ndarray = np.zeros(3)
    inertia: np.ndarray = np.zeros((3, 3))
    joint: str = ""
    kind: str = "fixed"
    axis: Any = (0.0, 0.0, 1.0)
    passive: Mapping[str, Any] = MappingProxyType({})
    origin: np.ndarray = np.zeros(3)
    turn: np.ndarray = np.eye(3)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the degrees of freedom of the joint."""
        if self.kind == "fixed":
            return ()
        parts = PARTS.get(self.kind)
        return tuple(f"{self.joint}.{part}" for part in parts) if parts else (self.joint,)


class Mimic(eqx.Module):
    """Coordinate of the joint `follower` = ratio · coordinate of the joint `leader` + offset.

    `ratio`; `offset` [rad or m].
    """

    ratio: Float[Array, ""]
    offset: Float[Array, ""]
    follower: str = eqx.field(static=True)
    leader: str = eqx.field(static=True)


class Import(eqx.Module):
    """Content of a robot's file; numbers of joints are (n,), in the order of the rates.

    **Fields:**

    - `tree`: a body for every link that moves against the one before; links that are fixed are
      merged into the body, or the base, that carries them. A robot without a joint that moves is
      one fixed body.
    - `joints`: (n,) names of the degrees of freedom: the joint's, with `.x`, `.y`, `.z`, `.rx`,
      `.ry`, `.rz` after it where a joint has several.
    - `start`: (nq,) coordinates of the robot's position in the file [rad or m].
    - `lower`, `upper`: limits [rad or m], `velocity` [per s] and `effort` [N m or N]; infinite
      where the file has none.
    - `damping` [N m s or N s/m]; `friction` [N m or N]: part of the tree's dynamics.
    - `mimics`: joints coupled linearly; `mechanism.loops` couples them, in the tree they are
      independent, which `ignored` says.
    - `base`: name of the base link. The base and every link are `frames` of the tree.
    - `repaired`: a sentence for every number that no body can have and was replaced.
    - `ignored`: a sentence for everything in the file that is not used.
    """

    tree: Tree
    start: Float[Array, " nq"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    velocity: Float[Array, " n"]
    effort: Float[Array, " n"]
    damping: Float[Array, " n"]
    friction: Float[Array, " n"]
    mimics: tuple[Mimic, ...]
    joints: tuple[str, ...] = eqx.field(static=True)
    base: str = eqx.field(static=True)
    repaired: tuple[str, ...] = eqx.field(static=True)
    ignored: tuple[str, ...] = eqx.field(static=True)

    @property
    def links(self) -> tuple[str, ...]:
        """Names of the base and of all links."""
        return self.tree.frames.names

    def body(self, link: str) -> str | None:
        """Name of the body that carries a link, None for the base; `ValueError` for no link."""
        body = self.tree.frames.bodies[self._index(link)]
        return None if body < 0 else self.tree.names[body]

    def in_body(self, link: str, points: ArrayLike | Sequence) -> Float[Array, "k 3"]:
        """Points (k, 3) of the frame of a link in the frame of its body in the tree [m].

        The frames differ because the tree has every joint axis along z, and because of the links
        that are merged.
        """
        points = numbers(f"The array of points of link {link!r}", points)
        if points.ndim != 2 or points.shape[1] != 3:
            raise ValueError(f"points of link {link!r} have the shape {points.shape}, not (k, 3).")
        rotation, translation = self.place(link)
        return points @ rotation.T + translation[None]

    def place(self, link: str) -> tuple[Float[Array, "3 3"], Float[Array, "3"]]:
        """Axes (3, 3) and origin (3,) [m] of the frame of a link in that of its body."""
        k = self._index(link)
        return self.tree.frames.rotation[k], self.tree.frames.translation[k]

    def _index(self, link: str) -> int:
        if link not in self.links:
            raise ValueError(f"There is no link {link!r}; {near(link, self.links)}")
        return self.links.index(link)


def uncoupled(file: Import, reader: str) -> Import:
    """`ignored` with a sentence on the mimics, which a tree does not couple.

    **Arguments:** `file`; `reader`, the function that couples them.
    """
    if not file.mimics:
        return file
    said = (
        f"Joints that mimic others move by themselves in a tree; {reader} couples them: "
        f"{listed(mimic.follower for mimic in file.mimics)}."
    )
    return dataclasses.replace(file, ignored=(said, *file.ignored))


class Mass(NamedTuple):
    """Mass [kg], its centre (3,) [m] and the inertia (3, 3) about it [kg m^2]."""

    mass: float
    com: np.ndarray
    inertia: np.ndarray


class Merged(NamedTuple):
    """Links that move, as bodies with all they carry; places of all links; what was repaired."""

    bodies: list[Link]
    places: dict[str, tuple[str | None, np.ndarray, np.ndarray]]
    grounded: list[str]
    repaired: list[str]
    light: list[str]


def merged(links: Sequence[Link], base: str, strict: bool) -> Merged:
    """Bodies of the links, whose masses are judged after the merger.

    **Arguments:** `links`, parents before children; `base`, the name of the base; `strict`:
    whether an inertia that no body can have, or a joint that moves no mass, is an error.

    **Returns:** `Merged`: `places` by link: body, rotation and translation in it; `grounded`:
    links with a mass fixed to the base; `repaired`; `light`: joints that move no mass.

    **Raises:** `ValueError` naming the body.
    """
    places = {base: (None, np.eye(3), np.zeros(3))}
    bodies: list[Link] = []
    parts: dict[str | None, list[tuple[str, Mass]]] = {None: []}
    for link in links:
        _check_mass(link)
        body, rotation, translation = places[base if link.parent is None else link.parent]
        translation = translation + rotation @ link.translation
        rotation = rotation @ link.rotation
        if link.kind == "fixed":
            places[link.name] = (body, rotation, translation)
            turned = Mass(
                link.mass,
                translation + rotation @ link.com,
                rotation @ link.inertia @ rotation.T,
            )
            parts[body].append((link.name, turned))
            continue
        bodies.append(link._replace(parent=body, translation=translation, rotation=rotation))
        turn = link.turn
        places[link.name] = (link.name, turn, link.origin)
        own = Mass(link.mass, link.origin + turn @ link.com, turn @ link.inertia @ turn.T)
        parts[link.name] = [(link.name, own)]
    repaired, found = [], []
    for body in bodies:
        own = [(name, mass) for name, mass in parts[body.name] if mass.mass or mass.inertia.any()]
        whole = together([mass for _, mass in own])
        inertia, change = projected(whole.inertia)
        if change > 0:
            links = f", {len(own)} links together," if len(own) > 1 else ""
            what = f"Body {body.name!r}{links} has an inertia that "
            what += _what_is_wrong(np.linalg.eigvalsh(whole.inertia))
            if strict:
                raise ValueError(f"{what}.")
            repaired.append(
                f"{what}; the closest one that a body can have is used, which differs by "
                f"{100 * change:.2g} % (Frobenius norm)."
            )
        found.append(body._replace(mass=whole.mass, com=whole.com, inertia=inertia))
    light = _light(found)
    if strict and light:
        body = next(body.name for body in found if body.joint == light[0])
        raise ValueError(
            f"mass of body {body!r} is 0 kg, and so is that of all it carries; a body that moves "
            "needs a mass."
        )
    grounded = [name for name, mass in parts[None] if mass.mass or mass.inertia.any()]
    return Merged(found, places, grounded, repaired, light)


def _check_mass(link: Link) -> None:
    if link.mass < 0:
        raise ValueError(f"mass of body {link.name!r} is {link.mass:g} kg; it must be positive.")


def together(parts: Sequence[Mass]) -> Mass:
    """One body of several, all in the same axes and from the same origin.

    Source: parallel axes (Schanzer 2007, eq. 2.3).
    """
    if len(parts) == 1:
        return parts[0]
    mass = sum(part.mass for part in parts)
    com = sum((part.mass * part.com for part in parts), np.zeros(3)) / (mass or 1.0)
    inertia = np.zeros((3, 3))
    for part in parts:
        arm = part.com - com
        inertia = inertia + part.inertia + part.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return Mass(mass, com, inertia)


def projected(inertia: np.ndarray) -> tuple[np.ndarray, float]:
    """The inertia closest in Frobenius' norm that a body can have, and the relative distance.

    Such an inertia has second moments, half the trace minus a principal value, that are not
    negative. The set of them is convex and does not depend on axes, so that the closest one has the
    principal axes of the given one. The distance is zero, and the inertia as it was, where only
    rounding is missing (1e-9 of the largest principal value).

    Source: Traversaro 2016, for the second moments.
    """
    values, axes = np.linalg.eigh(inertia)
    missing = values[2] - values[0] - values[1]
    if missing <= SLACK * np.abs(values).max():
        return inertia, 0.0
    # On the face where the largest is the sum of the others, or else on the edge of a rod.
    closest = values + np.array([1.0, 1.0, -1.0]) * missing / 3
    if closest[0] < 0:
        closest = np.array([0.0, 1.0, 1.0]) * max((values[1] + values[2]) / 2, 0.0)
    distance = np.linalg.norm(closest - values) / np.linalg.norm(values)
    return (axes * closest) @ axes.T, float(distance)


def _what_is_wrong(values: np.ndarray) -> str:
    if values[0] < -SLACK * np.abs(values).max():
        return f"is not positive definite: its smallest principal value is {values[0]:.3g} kg m^2"
    return (
        f"no body can have: its largest principal value {values[2]:.3g} exceeds the sum of the "
        f"others {values[0] + values[1]:.3g} kg m^2"
    )


def _light(bodies: Sequence[Link]) -> list[str]:
    """Joints that move neither a mass nor an inertia nor an armature."""
    heavy = {
        body.name: bool(body.mass or body.inertia.any() or np.any(body.passive.get("armature", 0)))
        for body in bodies
    }
    for body in reversed(bodies):
        if body.parent is not None:
            heavy[body.parent] |= heavy[body.name]
    return [body.joint for body in bodies if not heavy[body.name]]


class Numbers(NamedTuple):
    """Limits of a degree of freedom, infinite where there are none."""

    lower: float = -np.inf
    upper: float = np.inf
    velocity: float = np.inf
    effort: float = np.inf


def made(
    links: Sequence[Link],
    base: str,
    gravity: ArrayLike | Sequence[float],
    strict: bool,
    limits: dict[str, Numbers],
    mimics: Sequence[Mimic] = (),
    start: dict[str, Sequence[float]] | None = None,
    ignored: Sequence[str] = (),
) -> Import:
    """The `Import` of links, parents first.

    **Arguments:** as `merged`; `limits` by degree of freedom; `start`: coordinates of joints in
    the file's position, those of the unmoved tree for the others.
    """
    whole = merged(links, base, strict)
    still = None if whole.bodies else base
    bodies = whole.bodies or [Link(base, None, np.zeros(3), np.eye(3))]
    frames = [
        FramePlacement(name, carrier or still, translation, rotation)
        for name, (carrier, rotation, translation) in whole.places.items()
    ]
    tree = from_placements(
        [_placement(body) for body in bodies], gravity, frames=frames, strict=False
    )
    names = tuple(name for body in bodies for name in body.coordinates)
    columns = np.array([limits.get(name, Numbers()) for name in names]).reshape(-1, 4).T
    losses = [
        np.concatenate([_spread(body, key) for body in bodies]) for key in ("damping", "friction")
    ]
    said = list(ignored)
    if whole.grounded:
        said.append(
            f"Inertia of links fixed to the base {base!r} is not used: {listed(whole.grounded)}."
        )
    if whole.light:
        said.append(
            "Joints that move no mass make the mass matrix singular; forward dynamics needs their "
            f"armature, or `lock`: {listed(whole.light)}."
        )
    return Import(
        tree,
        jnp.asarray(_start(bodies, start or {})),
        *map(jnp.asarray, columns),
        *map(jnp.asarray, losses),
        tuple(mimics),
        joints=names,
        base=base,
        repaired=tuple(whole.repaired),
        ignored=tuple(said),
    )


def _placement(body: Link) -> Placement:
    return Placement(
        body.name,
        body.parent,
        body.translation,
        body.mass,
        body.com,
        body.inertia,
        axis=body.axis,
        rotation=body.rotation,
        joint=body.kind,
        joint_name=body.joint or None,
        **body.passive,
    )


def _spread(body: Link, key: str) -> np.ndarray:
    return np.broadcast_to(np.asarray(body.passive.get(key, 0.0), float), len(body.coordinates))


def _start(bodies: Iterable[Link], start: dict[str, Sequence[float]]) -> np.ndarray:
    unit = [1.0, 0.0, 0.0, 0.0]
    still = {"free": [0.0] * 3 + unit, "planar": [0.0] * 3, "spherical": unit, "fixed": []}
    found = [start.get(body.joint, still.get(body.kind, [0.0])) for body in bodies]
    return np.concatenate([np.asarray(each, dtype=float) for each in found])
