"""All configurations in which the parts of a system fit together."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from jaxgrip.joints import Frame, relative
from jaxgrip.mechanism import poses as pose
from jaxgrip.mechanism._assemble import Assembly, solve
from jaxgrip.mechanism._equations import bodies_of, frames, pairs, size
from jaxgrip.mechanism._mobility import mobility
from jaxgrip.mechanism.poses import Poses, placed
from jaxgrip.mechanism.system import System
from jaxgrip.spatial import quaternions

# Closures are equal if positions, over the largest part, and rotation matrices differ by less.
_SAME = 1e-6


def closures(
    system: System,
    parameters: Mapping[str, object] | None = None,
    *,
    key: PRNGKeyArray,
    starts: int = 256,
) -> list[Assembly]:
    """Configurations in which the parts fit together, found from random joint positions.

    A series that starts from one of them stays on its branch.

    **Arguments:** `system`; `parameters`, values of drives [m or rad] by the name of the
    connection; `key`, of JAX's random numbers; `starts`: how many, all solved at once.

    **Returns:** the closures, the closest to the poses of the parts first. More starts may find
    more of them.

    **Raises:** `ValueError` without starts, or when degrees of freedom are left, so that closures
    are not countable.
    """
    if not starts > 0:
        raise ValueError(f"The number of starts is {starts}; it must be at least 1.")
    system = system.with_parameters(parameters or {})
    given = pose.start(system)
    length = float(size(system))
    found = _solve_all(system, jax.random.split(key, starts))
    good = np.flatnonzero(np.asarray(found.succeeded))
    position = np.asarray(found.poses.position) / length
    rotation = np.asarray(jax.vmap(lambda p: p.rotation)(found.poses))
    far = np.abs(rotation - np.asarray(given.rotation)).sum(axis=(1, 2, 3))
    far += np.abs(position - np.asarray(given.position) / length).sum(axis=(1, 2))
    kept: list[int] = []
    for k in good[np.argsort(far[good])]:
        same = (
            max(np.abs(position[k] - position[j]).max(), np.abs(rotation[k] - rotation[j]).max())
            for j in kept
        )
        if all(distance > _SAME for distance in same):
            kept.append(int(k))
    all_ = [jax.tree.map(lambda x, k=k: x[k], found) for k in kept]
    free = mobility(system, all_[0].poses if all_ else given)
    if free.degrees_of_freedom:
        raise ValueError(f"Closures are not countable. {free.verdict}")
    return all_


def _tree(system: System) -> list[tuple[int, bool]]:
    """Joints that connect each part to the ground or an earlier part; whether it is their second.

    Of the joints that could come next the one with the fewest degrees of freedom is taken.
    """
    bodies = bodies_of(system)
    reached, tree = {len(system.parts)}, []
    freedoms = [connection.joint.degrees_of_freedom for connection in pairs(system)]
    while True:
        ready = [
            (freedoms[j], j, bool(first in reached))
            for j, (first, second) in enumerate(bodies.tolist())
            if (first in reached) != (second in reached)
        ]
        if not ready:
            return tree
        _, j, outward = min(ready)
        tree.append((j, outward))
        reached.add(int(bodies[j, int(outward)]))


def _scattered(system: System, key: PRNGKeyArray) -> Poses:
    """Parts connected by the joints of `_tree` in random positions."""
    bodies, fixed = bodies_of(system), frames(system)
    ground = Frame(jnp.zeros(3), jnp.eye(3))
    known = {len(system.parts): ground}
    for j, outward in _tree(system):
        key, subkey = jax.random.split(key)
        motions = pairs(system)[j].joint.motions(ground)
        sizes = jnp.where(jnp.any(motions[:, 3:] != 0, axis=1), np.pi, size(system))
        motion = (sizes * jax.random.uniform(subkey, sizes.shape, minval=-1.0)) @ motions
        rotation = quaternions.to_matrix(quaternions.exponential(motion[3:]))
        place = Frame(motion[:3], rotation)
        first, second = (jax.tree.map(lambda x, j=j, k=k: x[j, k], fixed) for k in range(2))
        if not outward:
            first, second, place = second, first, relative(place, ground)
        parent = known[int(bodies[j, int(not outward)])]
        for frame in (first, place, relative(second, ground)):
            parent = placed(frame, *parent)
        known[int(bodies[j, int(outward)])] = parent
    parts = [known.get(k, ground) for k in range(len(system.parts))]
    return Poses(
        jnp.stack([part.origin for part in parts]),
        jnp.stack([quaternions.from_matrix(part.rotation) for part in parts]),
    )


@eqx.filter_jit
def _solve_all(system: System, keys: Array) -> Assembly:
    return jax.vmap(lambda key: solve(system, _scattered(system, key)))(keys)
