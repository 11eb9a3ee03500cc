"""Strain and stress of displacements, and measures derived from them.

Components are xx, yy, zz, xy, yz, zx, with engineering shear strains.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from jaxgrip.checks import numbers
from jaxgrip.fem._body import Body
from jaxgrip.fem.elements.element import Element
from jaxgrip.fem.elements.solid import Rule, Solid, as_solid, stress_tensor
from jaxgrip.solve import dense


@eqx.filter_jit
def strain(body: Body, u: Float[Array, "n d"]) -> Float[Array, "elements points 6"]:
    """Strain of the displacements u [m] at the Gauss points of each element; solids only.

    **Raises:** `ValueError` for beams and for displacements of a wrong shape.

    Source: Schanzer 2007, eq. 3.12-3.13, pp. 26-28.
    """
    element, topology = _solid(body), body.mesh.topology
    u = numbers("The array of displacements u", u, body.free.shape)
    one = jax.vmap(lambda x, ue: element.strain(x, ue, body.material, element.stiffness_rule))
    return one(body.mesh.cell_nodes, u[topology.cells])


@eqx.filter_jit
def stress(body: Body, u: Float[Array, "n d"]) -> Float[Array, "elements points 6"]:
    """Stress [Pa] of the displacements u [m] at the Gauss points of each element; solids only.

    **Raises:** as `strain` does.

    Source: Schanzer 2007, eq. 3.24-3.25, pp. 32-34.
    """
    # `strain` raises for beams, whose material has no `stress`.
    found = strain(body, u)
    return body.material.stress(found)


@eqx.filter_jit
def at_nodes(body: Body, values: Float[Array, "elements points *rest"]) -> Float[Array, " n *rest"]:
    """Values at the nodes, extrapolated from the Gauss points and averaged over the elements.

    In each element a linear function (trilinear in hexahedra) is fitted with the Gauss weights;
    for a 2x2x2 rule it interpolates the points exactly (extrapolation by a factor √3).

    Source: Barlow 1976 for the fit; own choice of the mean at a node.
    """
    element, topology = _solid(body), body.mesh.topology
    matrix, values = _extrapolation(type(element)), numbers("The array of values", values)
    points = (len(topology.cells), len(element.stiffness_rule.points))
    if values.shape[:2] != points:
        raise ValueError(
            f"The values have the shape {values.shape}; it must begin with {points}, the elements "
            "and their Gauss points."
        )
    local = jnp.einsum("np,ep...->en...", matrix, values)
    count = np.bincount(topology.cells.ravel()).astype(float)
    zero = jnp.zeros((topology.n_nodes, *values.shape[2:]), values.dtype)
    return zero.at[topology.cells].add(local) / count.reshape(-1, *(1,) * (values.ndim - 2))


def von_mises(stress: Float[Array, "*points 6"]) -> Float[Array, "*points"]:
    """Von Mises stress [Pa]; where it is zero, its derivative is zero too."""
    normal, shear = stress[..., :3], stress[..., 3:]
    square = jnp.sum((normal - jnp.roll(normal, 1, axis=-1)) ** 2, axis=-1) / 2
    square = square + 3 * jnp.sum(shear**2, axis=-1)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def principal_stresses(stress: Float[Array, "*points 6"]) -> Float[Array, "*points 3"]:
    """Principal stresses [Pa], the largest first.

    The derivative of each is nᵀ dσ n with its direction n. Where some coincide, the derivatives
    are finite and correct for sums over the coinciding ones; a single one has none there.
    """
    return dense.eigvalsh(stress_tensor(stress))[..., ::-1]


def safety_factor(
    stress: Float[Array, "*points 6"], yield_strength: ArrayLike
) -> Float[Array, "*points"]:
    """Yield strength [Pa] over the von Mises stress; infinite where there is no stress."""
    value = von_mises(stress)
    some = value > 0
    return jnp.where(some, yield_strength / jnp.where(some, value, 1.0), jnp.inf)


def smooth_maximum(values: Float[Array, "..."], p: ArrayLike = 100.0) -> Float[Array, ""]:
    """The p-norm of non-negative values, a differentiable upper bound of their maximum.

    With N values it is between the largest and N^(1/p) times the largest. The smooth maximum of
    the smooth maxima of parts is that of the whole, so long series can be processed in parts.
    """
    top = jax.lax.stop_gradient(jnp.max(values))
    some = top > 0
    # Relative to the largest value no power overflows, and the sum is at least 1.
    total = jnp.sum(jnp.where(some, values / jnp.where(some, top, 1.0), 1.0) ** p)
    return jnp.where(some, top * total ** (1 / p), 0.0)


class Peak(NamedTuple):
    """The largest value of a quantity over a body and over time.

    `value` (), at index `time` () and node `node` (); `over_time` (t,), the largest in the body at
    each time; `envelope` (n,), the largest over time at each node.
    """

    value: Float[Array, ""]
    time: Int[Array, ""]
    node: Int[Array, ""]
    over_time: Float[Array, " t"]
    envelope: Float[Array, " n"]


@eqx.filter_jit
def peak(
    body: Body,
    u: Float[Array, "t n d"],
    quantity: Callable[[Float[Array, "*points 6"]], Float[Array, "*points"]] = von_mises,
    *,
    batch_size: int = 32,
) -> Peak:
    """Peak of a quantity of the stress at the nodes while a body moves.

    **Arguments:** `u` (t, n, 3), displacements at many times [m]; `quantity`, function of the
    stress; `batch_size`, number of times processed together, with which memory grows.

    **Raises:** `ValueError` for beams and for displacements of a wrong shape.
    """
    _solid(body)
    u = numbers("The array of displacements u", u)
    count = u.shape[0] if u.ndim == 3 else 0
    if not count or u.shape[1:] != body.free.shape:
        raise ValueError(
            f"The displacements u have the shape {u.shape}; it must be (times, "
            f"{body.free.shape[0]}, 3) with at least one time."
        )
    size = min(batch_size, count)
    groups = -(-count // size)
    # The last time is repeated to fill the last group, which changes no maximum.
    index = np.minimum(np.arange(groups * size), count - 1).reshape(groups, size)

    @jax.checkpoint
    def step(envelope, times):
        values = jax.vmap(lambda one: quantity(at_nodes(body, stress(body, one))))(u[times])
        return jnp.maximum(envelope, values.max(axis=0)), (
            values.max(axis=1),
            values.argmax(axis=1),
        )

    start = jnp.full(u.shape[1], -jnp.inf)
    envelope, (over_time, nodes) = jax.lax.scan(step, start, jnp.asarray(index))
    over_time, nodes = over_time.reshape(-1)[:count], nodes.reshape(-1)[:count]
    time = jnp.argmax(over_time)
    return Peak(over_time[time], time, nodes[time], over_time, envelope)


def _solid(body: Body) -> Solid:
    return as_solid(body.mesh.element, "stress at Gauss points")


@functools.lru_cache(maxsize=64)
def _extrapolation(element: type[Solid]) -> np.ndarray:
    """Matrix (nodes, points) from values at Gauss points to those at the nodes of an element."""
    rule: Rule = element.stiffness_rule
    basis = _basis(element, rule.points)
    if len(rule.points) < basis.shape[1]:
        basis = basis[:, :1]
    root = np.sqrt(rule.weights)[:, None]
    fit = np.linalg.pinv(root * basis) * root.T
    return _basis(element, element.nodes)[:, : basis.shape[1]] @ fit


def _basis(element: type[Element], points: np.ndarray) -> np.ndarray:
    """Linear functions on a simplex, trilinear ones on a cube [-1, 1]^3."""
    x, y, z = points.T
    linear = [np.ones_like(x), x, y, z]
    cube = element.nodes.min() < 0
    return np.stack([*linear, x * y, y * z, z * x, x * y * z] if cube else linear, axis=-1)
