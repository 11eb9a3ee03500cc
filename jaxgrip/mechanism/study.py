"""Poses of short chains as algebraic equations in Study's coordinates, eliminated from the chain.

With cosine and sine of half its angle, or one and its slide, every joint enters the dual quaternion
of the chain linearly: q = B (u ⊗ v ⊗ w) with a matrix B of the links. Where B has full rank,
elimination is linear: a pose belongs to the chain if it is in the range of B, and B⁻¹ q is a
product u ⊗ v ⊗ w, so that all minors of two rows vanish.

Source: own derivation; the equations are those that Stigger 2017 eliminates by other means.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import brief, check_shape, concrete, numbers
from jaxgrip.solve import dense
from jaxgrip.spatial import dual_quaternions as dq

_IDENTITY = np.eye(8)[0]
# Along and about z: what a slide of one adds to a pose, and what half a turn is.
_STEP = {"R": np.eye(8)[3], "P": 0.5 * np.eye(8)[7]}


class Chain(eqx.Module):
    """Joints in a row, each along or about its z axis.

    **Fields:** `joints`: "R" for each that turns and "P" for each that slides, such as "PRR";
    `base` (8,): unit dual quaternion from the base to the first joint; `links` (n, 8): from every
    joint to the next, the last to the tip.

    **Raises:** `ValueError` for other letters, and links of another number.
    """

    base: Float[Array, "8"]
    links: Float[Array, "n 8"]
    joints: str = eqx.field(static=True)

    def __check_init__(self):
        if not self.joints or set(self.joints) - set(_STEP):
            raise ValueError(
                f"The joints of the chain are {brief(self.joints)}; there are R, which turns, and "
                'P, which slides, such as "PRR".'
            )
        check_shape("base of the chain", self.base, (8,))
        check_shape("links of the chain", self.links, (len(self.joints), 8))


def link(theta: ArrayLike, d: ArrayLike, a: ArrayLike, alpha: ArrayLike) -> Float[Array, "8"]:
    """Unit dual quaternion (8,) of Rz(theta) Tz(d) Tx(a) Rx(alpha), in [rad] and [m]."""
    theta, d, a, alpha = (jnp.asarray(x, float) for x in (theta, d, a, alpha))
    zero = jnp.zeros_like(theta)
    first = dq.exponential(jnp.stack([zero, zero, theta, zero, zero, d]))
    return dq.product(first, dq.exponential(jnp.stack([alpha, zero, zero, a, zero, zero])))


def from_dh(joints: str, rows: ArrayLike | Sequence) -> Chain:
    """Chain of Denavit and Hartenberg's rows.

    **Arguments:** `joints`, such as "PRR"; `rows` (n, 4): theta [rad], d [m], a [m] and alpha [rad]
    of every joint, whose own coordinate adds to theta or d.
    """
    rows = numbers("The rows of the chain", rows, (len(joints), 4))
    return Chain(jnp.asarray(_IDENTITY), jax.vmap(link)(*rows.T), joints)


def pose(chain: Chain, coordinates: Float[Array, " n"]) -> Float[Array, "8"]:
    """Unit dual quaternion (8,) of the tip, by coordinates (n,) of the joints [rad or m]."""
    place = np.array([5 if kind == "P" else 2 for kind in chain.joints])
    twists = coordinates[:, None] * jnp.asarray(np.eye(6)[place], coordinates.dtype)
    moved = jax.vmap(dq.product)(jax.vmap(dq.exponential)(twists), chain.links)
    q = chain.base
    for step in moved:
        q = dq.product(q, step)
    return q


def inverted(chain: Chain) -> Chain:
    """The chain with base and tip exchanged.

    At the coordinates in reverse order and with the other sign, its pose is the conjugate.
    """
    back = [dq.conjugate(x) for x in (chain.base, *chain.links)][::-1]
    return Chain(back[0], jnp.stack(back[1:]), chain.joints[::-1])


def equations(chain: Chain, q: Float[Array, "8"]) -> Float[Array, " m"]:
    """Polynomials that vanish at the poses of a chain of up to three joints, and there only.

    For one or two joints linear ones (8,), of which n = 2 has four that are independent, and for
    two joints one of degree two; for three joints 18 of degree two, nine of them independent. They
    are homogeneous in q and differentiable by it and by the chain. Those of the inverse chain are
    `equations(chain, conjugate(q))`, without another elimination.

    **Raises:** `ValueError` for more joints, and for a chain whose joints do not determine its
    equations in this way, such as three with parallel axes, or two slides.
    """
    count = len(chain.joints)
    if count > 3:
        raise ValueError(
            f"The chain {chain.joints} has {count} joints; equations are eliminated for three at "
            "most."
        )
    columns = _columns(chain)
    if concrete(columns):
        values = np.linalg.svd(np.asarray(columns), compute_uv=False)
        if values[-1] < 1e-9 * values[0]:
            raise ValueError(
                f"The joints of the chain {chain.joints} are in special positions, such as three "
                "parallel axes or two slides, at which linear elimination fails."
            )
    shares = dense.solve(columns.T @ columns, columns.T @ q, positive=True)
    found = [q - columns @ shares] if count < 3 else []
    shares = shares.reshape((2,) * count)
    for axis in range(count if count > 2 else count - 1):
        one, other = jnp.moveaxis(shares, axis, 0).reshape(2, -1)
        i, j = np.triu_indices(one.size, 1)
        found.append(one[i] * other[j] - one[j] * other[i])
    return jnp.concatenate(found)


def _columns(chain: Chain) -> Float[Array, "8 k"]:
    """The matrix B (8, 2^n), the last joint changing fastest."""
    after = jax.vmap(dq.product, (0, None))
    found = chain.base[None]
    for kind, behind in zip(chain.joints, chain.links, strict=True):
        stepped = after(found, jnp.asarray(_STEP[kind], found.dtype))
        found = after(jnp.stack([found, stepped], axis=1).reshape(-1, 8), behind)
    return found.T
