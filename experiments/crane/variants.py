"""Equipment variants of the crane: booms and masts of many lengths, at many boom angles."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxgrip as jg
from jaxgrip.fem.structures import Condensed, Inertia, NodalForce
from jaxgrip.mechanism import Poses, System
from jaxgrip.models.crane import PIVOTS, SUPERSTRUCTURE, crane_structure, reference_crane

HOOK = 100e3
LOADS = (Inertia(), NodalForce("boom.tip", (0.0, 0.0, -HOOK)))
_FEET = {name: np.add(SUPERSTRUCTURE, pivot) for name, pivot in PIVOTS.items()}


class Variant(NamedTuple):
    """A crane by the lengths of `boom` and `mast` [m], each (v,) in a batch."""

    boom: Float[Array, ""]
    mast: Float[Array, ""]


def catalogue(booms: np.ndarray, masts: np.ndarray) -> Variant:
    """Every boom with every mast."""
    grid = np.meshgrid(booms, masts, indexing="ij")
    return Variant(*(jnp.asarray(axis.ravel()) for axis in grid))


def along(angle: Array) -> Array:
    """Direction of a boom at an angle above the horizon."""
    return jnp.stack([jnp.cos(angle), jnp.zeros_like(angle), jnp.sin(angle)])


def mast_tip(mast: Array) -> Array:
    """Tip of the mast, which stands at 120 degrees."""
    return _FEET["mast foot"] + mast * along(jnp.deg2rad(120.0))


def crane(variant: Variant) -> System:
    """The crane whose rods hold the mast at 120 degrees when the A-frame is at 150."""
    a_frame = _FEET["a-frame foot"] + 7.0 * along(jnp.deg2rad(150.0))
    rods = jnp.linalg.norm(mast_tip(variant.mast) - a_frame)
    return reference_crane(boom=variant.boom, mast=variant.mast, rods=rods)


def rope(variant: Variant, angle: Array) -> Array:
    """Length of the luffing rope [m] that holds the boom at an angle."""
    tip = _FEET["boom foot"] + variant.boom * along(angle)
    return jnp.linalg.norm(tip - mast_tip(variant.mast))


def superelements(variant: Variant) -> Condensed:
    """The finite-element model of a variant, condensed to the nodes where its parts are joined."""
    return jg.fem.structures.condense(crane_structure(crane(variant)), LOADS)


def assembled(variant: Variant, angle: Array, start: Poses) -> jg.mechanism.Assembly:
    """A variant with its boom at an angle."""
    return jg.mechanism.assemble(
        crane(variant), {"luffing rope": rope(variant, angle)}, start=start
    )
