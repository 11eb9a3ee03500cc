"""A mass carried by a body of a tree."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import non_negative, real
from jaxgrip.rigid._coordinates import precision
from jaxgrip.rigid._frames import Frame, frame_of
from jaxgrip.rigid._tree import Tree


def with_payload(
    tree: Tree,
    frame: str | Frame,
    mass: ArrayLike,
    com: ArrayLike | Sequence[float] = (0.0, 0.0, 0.0),
    inertia: ArrayLike | Sequence | None = None,
) -> Tree:
    """The tree with a mass fixed to a frame, such as an object in a gripper.

    Every number may be traced.

    **Arguments:** `tree`; `frame`, a `Frame` or its name, on a body that moves; `mass` [kg]; `com`
    (3,), its centre of mass in the axes of the frame [m]; `inertia` (3, 3) about that, in these
    axes [kg m^2]; a point mass when None.

    **Returns:** `Tree` of the same bodies, one of which is heavier.

    **Raises:** `ValueError` for an unknown frame, a frame fixed to the base, a negative mass and
    wrong shapes.

    Source: parallel axes (Schanzer 2007, eq. 2.3).
    """
    k, mass, at, inertia = _on_body(tree, frame, "payload", mass, com, inertia)
    total = tree.mass[k] + mass
    # The centre of a body without mass is that of its payload, also in derivatives at zero.
    has_mass = total > 0.0
    share = jnp.where(has_mass, mass / jnp.where(has_mass, total, 1.0), 1.0)
    apart = at - tree.com[k]
    about = tree.inertia[k] + inertia
    about += tree.mass[k] * share * _of_point(apart)
    return dataclasses.replace(
        tree,
        mass=tree.mass.at[k].set(total),
        com=tree.com.at[k].add(share * apart),
        inertia=tree.inertia.at[k].set(about),
    )


def with_mass_properties(
    tree: Tree,
    frame: str | Frame,
    mass: ArrayLike,
    com: ArrayLike | Sequence[float] = (0.0, 0.0, 0.0),
    inertia: ArrayLike | Sequence | None = None,
) -> Tree:
    """The tree with a body's own mass replaced, for instance by that of a shape.

    What was fixed to the body when the tree was read is replaced as well.

    **Arguments:** as for `with_payload`, of the body that carries the frame.

    **Returns:** `Tree` of the same bodies.

    **Raises:** `ValueError` as `with_payload`.
    """
    k, mass, at, inertia = _on_body(tree, frame, "shape", mass, com, inertia)
    return dataclasses.replace(
        tree,
        mass=tree.mass.at[k].set(mass),
        com=tree.com.at[k].set(at),
        inertia=tree.inertia.at[k].set(inertia),
    )


def _on_body(
    tree: Tree,
    frame: str | Frame,
    what: str,
    mass: ArrayLike,
    com: ArrayLike | Sequence,
    inertia: ArrayLike | Sequence | None,
) -> tuple[int, Array, Array, Array]:
    """Body that carries a frame, and mass, centre and inertia in the axes of the body."""
    place = frame_of(tree, frame)
    kind = precision(tree)
    if place.body < 0:
        raise ValueError(f"The {what} must be carried by a body that moves; the frame is fixed.")
    mass = non_negative(f"mass of the {what}", mass, ())
    com = real(f"com of the {what}", com, kind, (3,))
    inertia = jnp.zeros((3, 3), kind) if inertia is None else inertia
    inertia = real(f"inertia of the {what}", inertia, kind, (3, 3))
    rotation = place.rotation
    return place.body, mass, place.translation + rotation @ com, rotation @ inertia @ rotation.T


def _of_point(r: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Inertia of a unit mass at `r` (3,) [m]."""
    return (r @ r) * jnp.eye(3, dtype=r.dtype) - r[:, None] * r[None, :]
