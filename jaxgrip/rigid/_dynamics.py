"""Forward dynamics with its implicit derivative."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape, real
from jaxgrip.rigid._articulated import (
    articulated,
    articulated_by_piece,
    bias_load,
    bias_motion,
)
from jaxgrip.rigid._body_by_body import MOST_JOINTS, directions, jacobians_in_arrays
from jaxgrip.rigid._coordinates import (
    chart,
    checked,
    given,
    integrate,
    precision,
    turning,
    unturned,
)
from jaxgrip.rigid._derivatives import jacobians
from jaxgrip.rigid._kernels import (
    LIMIT,
    Group,
    Model,
    Tile,
    by_tile,
    can_be_cut,
    fits,
    model_of,
    same_kinds,
    stacked,
)
from jaxgrip.rigid._mass_matrix import (
    NO_MASS,
    Pose,
    along,
    composite,
    crba,
    joint_masses,
    masses,
    poses,
    related,
    unit_load,
)
from jaxgrip.rigid._newton_euler import rnea, upward
from jaxgrip.rigid._passive import left
from jaxgrip.rigid._recursion import (
    Limb,
    each,
    inward,
    limbs,
    one_of,
    outward,
    unrolled,
)
from jaxgrip.rigid._sparse_factor import factor, solve
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve import dense
from jaxgrip.solve.fusion import LEAST_STATES, jvp_of_moving, over_states
from jaxgrip.spatial.components import (
    ZERO,
    Scalar,
    add,
    cross,
    stack,
    sub,
    unstack,
    vadd,
)


def _collect(children: tuple, pose: Pose, load: tuple) -> tuple[tuple, tuple]:
    force, moment = vadd(children[0], load[0]), vadd(children[1], load[1])
    return (force, vadd(moment, cross(pose.offset, force))), (force, moment)


def mass_and_bias(model: Model, one: Scalar) -> tuple[list, list]:
    """Mass matrix rows and bias of a model, in scalars of base axes."""
    limb, body, joint = model.limb, model.body, model.joint
    pose = poses(limb, body, joint, one)
    own = each(limb, masses, body, pose)
    motion = outward(limb, bias_motion, (ZERO, ZERO, upward(model.gravity)), pose, joint)
    load = each(limb, bias_load, body, own, motion)
    load = inward(limb, _collect, (ZERO, ZERO), pose, load)
    axial = each(limb, lambda j, p, wrench: along(j, p.axis, *wrench), joint, pose, load)
    total = inward(limb, composite, NO_MASS, body, pose, own)
    unit = each(limb, unit_load, total, pose, joint)
    m = joint_masses(limb, pose, unit, joint)
    for k, extra in enumerate(model.armature):
        m[k][k] = add(m[k][k], extra)
    return m, [axial[i] for i in limb.moving]


def _solved(model: Model, one: Scalar = 1.0) -> list[Scalar]:
    m, h = mass_and_bias(model, one)
    rest = [sub(t, b) for t, b in zip(model.third, h, strict=True)]
    return solve(factor(m, one), rest, one)


@jax.jit
def solve_mass(tree: Tree, q: Float[Array, " nq"], tau: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve M(q) x = tau.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `tau`: (n,) right-hand
    side, such as torques or forces [N m or N].

    **Returns:** (n,), accelerations for torques [rad/s^2 or m/s^2].

    **Raises:** `ValueError` for another shape.

    Source: Schanzer 2007, section 2.8, pp. 23-24.
    """
    tree, q, tau = given(tree, q=q, tau=tau)
    if not unrolled(tree):
        return dense.solve(crba(tree, q), tau, positive=True)
    one = one_of(q)
    m, _ = mass_and_bias(model_of(tree, q), one)
    return stack(solve(factor(m, one), list(unstack(tau)), one), tau)


@jax.custom_jvp
def _ordinary(tree: Tree, q: Array, qd: Array, tau: Array) -> Array:
    tree, q = chart(tree, q)
    tau = left(tree, tau, q, qd)
    if not unrolled(tree):
        # Faster than the mass matrix in all scanned trees measured, and more accurate, for the
        # condition of the matrix grows with the length of a chain. Derivatives keep the matrix:
        # their many right-hand sides share its factors.
        return articulated(tree, q, qd, tau)
    return stack(_solved(model_of(tree, q, qd, tau), one_of(q)), tau)


def _at_many(tree: Tree, q: Array, qd: Array, tau: Array) -> Float[Array, "batch n"]:
    left_over = _all_left(tree, tau, q, qd)
    return by_tile(tree, _tile_accelerations, (tree.n,), q, qd, left_over)


def _all_left(tree: Tree, *states: Array) -> Float[Array, "batch n"]:
    def of_one(tau: Array, q: Array, qd: Array) -> Array:
        core, q = chart(tree, q)
        return left(core, tau, q, qd)

    return states[0] if tree.passive is None else jax.vmap(of_one)(*states)


def _tile_accelerations(tile: Tile) -> Float[Array, "n states"]:
    every = limbs(tile.tree)
    large = [limb for limb in every if len(limb.bodies) > LIMIT]
    rows = articulated_by_piece(tile, large)
    for same in same_kinds([limb for limb in every if limb not in large]):
        for limb, found in zip(same, _limb_accelerations(tile.group(same)), strict=True):
            rows |= dict(zip(limb.coordinates, found, strict=True))
    return stacked([rows[k] for k in range(tile.tree.n)], tile.q)


def _limb_accelerations(group: Group) -> list[Sequence[Array]]:
    limb = group.limb
    if len(limb.bodies) < LIMIT:
        found = group.of_model(_solved)
    else:
        masses = group.of_model(_masses_and_rest)
        found = group.of_model(lambda _, x: _solved_masses(limb, x), masses)
    return [found[k] for k in range(len(group.limbs))]


def _masses_and_rest(model: Model) -> tuple[list[Scalar], list[Scalar]]:
    m, h = mass_and_bias(model, 1.0)
    rest = [sub(t, b) for t, b in zip(model.third, h, strict=True)]
    return [m[i][j] for i, j in related(model.limb)], rest


def _solved_masses(limb: Limb, found: tuple[list[Scalar], list[Scalar]]) -> list[Scalar]:
    entries, rest = found
    return solve(factor(_matrix(limb, entries), 1.0), rest, 1.0)


def _matrix(limb: Limb, entries: list[Scalar]) -> list[list[Scalar]]:
    m: list[list[Scalar]] = [[0.0] * limb.n for _ in range(limb.n)]
    for (i, j), entry in zip(related(limb), entries, strict=True):
        m[i][j] = m[j][i] = entry
    return m


def _torques(tree: Tree, q: Array, qd: Array, qdd: Array) -> Array:
    tree, q = chart(tree, q)
    return rnea(tree, q, qd, qdd)


def _implicit(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    tree, q, qd, _ = primals
    qdd = _ordinary(*primals)
    _, change = jvp_of_moving(lambda t, x, v: _torques(t, x, v, qdd), (tree, q, qd), tangents[:3])
    dtau = -change if isinstance(tangents[3], SymbolicZero) else tangents[3] - change
    return qdd, solve_mass(tree, q, dtau)


_ordinary.defjvp(_implicit, symbolic_zeros=True)
_in_kernels = over_states(_ordinary, _at_many, _implicit)


def accelerations(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"], tau: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Accelerations in the chart at `q`, with their implicit derivative."""
    return (_in_kernels if fits(tree) else _ordinary)(tree, q, qd, tau)


@jax.jit
def forward_dynamics(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"], tau: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Joint accelerations M^-1 (tau - h).

    Its derivative, in both modes, is the implicit one, M^-1 (d tau - d RNEA), with respect to
    the state, the torques and every number of the tree.

    **Arguments:**

    - `tree`: the model.
    - `q`: (nq,) joint coordinates [rad or m]; `qd`: (n,) rates [per s].
    - `tau`: (n,) joint torques or forces [N m or N].

    **Returns:** (n,) [rad/s^2 or m/s^2].

    **Raises:** `ValueError` for another shape.

    Source: Schanzer 2007, section 2.8, pp. 23-24; Beiblatt 9, eq. 17.
    """
    _, _, qd, tau = given(tree, q=q, qd=qd, tau=tau)
    return unturned(tree, qd, accelerations(tree, checked(tree, q=q)["q"], qd, tau))


def _ordinary_jacobians(tree: Tree, q: Array, qd: Array, tau: Array) -> tuple[Array, ...]:
    def moved(step: Array, qd: Array, tau: Array) -> Array:
        return forward_dynamics(tree, integrate(tree, q, step), qd, tau)

    return jax.jacfwd(moved, (0, 1, 2))(jnp.zeros_like(qd), qd, tau)


def _many_jacobians(tree: Tree, q: Array, qd: Array, tau: Array) -> tuple[Array, ...]:
    held = _holding_rates(tree, q, qd)
    if _is_in_small_kernels(tree):
        shapes = ((tree.n, tree.n),) * 3
        given = q, qd, _all_left(tree, tau, q, qd), *held
        return by_tile(tree, _tile_jacobians, shapes, *given)
    qdd = jax.vmap(forward_dynamics, in_axes=(None, 0, 0, 0))(tree, q, qd, tau)
    if tree.balls:
        qdd = qdd + jax.vmap(turning, in_axes=(None, 0))(tree, qd)
    found = jacobians_in_arrays(tree, q.T, qd.T, qdd.T, [x.T for x in held])
    return tuple(jnp.moveaxis(x, -1, 0) for x in found)


def _holding_rates(tree: Tree, q: Array, qd: Array) -> list[Float[Array, "batch n"]]:
    """Derivatives of `holding` by q, in the directions of `directions`, and by qd."""
    zero, seeds = jnp.zeros_like(qd), directions(tree)
    if tree.passive is None:
        return [zero] * (len(seeds) + 1)

    def holding(step: Array, rate: Array) -> Array:
        moved = jax.vmap(integrate, in_axes=(None, 0, 0))(tree, q, step)
        return -_all_left(tree, zero, moved, rate)

    def along(*rates: Array) -> Array:
        return jax.jvp(holding, (zero, qd), rates)[1]

    by_q = [along(jnp.broadcast_to(jnp.asarray(x, qd.dtype), qd.shape), zero) for x in seeds]
    return [*by_q, along(zero, jnp.ones_like(qd))]


def _is_in_small_kernels(tree: Tree) -> bool:
    """Whether each limb is small enough for derivatives in kernels of scalars."""
    return fits(tree) and not tree.balls and all(len(x.bodies) <= LIMIT for x in limbs(tree))


def _tile_jacobians(tile: Tile) -> tuple[Float[Array, "n n states"], ...]:
    n, entries = tile.tree.n, {}
    for same in same_kinds(limbs(tile.tree)):
        found = jacobians(tile.group(same))
        for k, limb in enumerate(same):
            at = itertools.product(range(3), limb.coordinates, limb.coordinates)
            entries |= dict(zip(at, found[k], strict=True))
    pairs = [*itertools.product(range(n), range(n))]
    rows = ([entries.get((k, *pair), 0.0) for pair in pairs] for k in range(3))
    return tuple(stacked(x, tile.q).reshape(n, n, -1) for x in rows)


_jacobians = over_states(_ordinary_jacobians, _many_jacobians)


@jax.jit
def forward_dynamics_derivatives(
    tree: Tree,
    q: Float[Array, "nq batch"],
    qd: Float[Array, "n batch"],
    tau: Float[Array, "n batch"],
) -> tuple[Float[Array, "n n batch"], Float[Array, "n n batch"], Float[Array, "n n batch"]]:
    """Jacobians of forward dynamics at many states.

    Equal to `jax.jacfwd(forward_dynamics, (1, 2, 3))`; with balls those by q are by the steps of
    `integrate`. At 256 states or more by recursions, on CPUs; otherwise by tangents, one direction
    for all joints that do not influence each other.

    **Arguments:**

    - `tree`: the model.
    - `q`: (nq, batch) joint coordinates [rad or m]; `qd`, `tau`: (n, batch) rates [per s] and
      torques or forces [N m or N], one state a column.

    **Returns:** d qdd/d q, d qdd/d qd and d qdd/d tau = M^-1, each (n, n, batch), rows for
    accelerations, in units of acceleration per unit of the column.

    **Raises:** `ValueError` for another shape.

    Source: own derivation: implicit differentiation of Beiblatt 9, eq. 17; Singh 2022 for the
    recursions.
    """
    q, qd, tau = _columns(tree, q=q, qd=qd, tau=tau)
    many = {"in_axes": (None, -1, -1, -1), "out_axes": -1}
    # Elsewhere the recursions of large trees would be tangents one by one.
    is_recursive = _is_in_small_kernels(tree) or (
        jax.default_backend() == "cpu"
        and can_be_cut(tree)
        and all(limb.n <= MOST_JOINTS for limb in limbs(tree))
    )
    if is_recursive and q.shape[1] >= LEAST_STATES:
        return jax.vmap(_jacobians, **many)(tree, q, qd, tau)
    branch, index = _branches(tree)
    related = np.equal.outer(branch, branch)[:, :, None]
    seeds = jnp.asarray(np.arange(max(index, default=-1) + 1)[:, None] == index, q.dtype)
    torques = jax.vmap(rnea, **many)
    moved = jax.vmap(integrate, in_axes=(None, -1, -1), out_axes=-1)
    qdd = jax.vmap(forward_dynamics, **many)(tree, q, qd, tau)
    solve_many = jax.vmap(solve_mass, in_axes=(None, -1, -1), out_axes=-1)

    def columns(rate: Callable[[Array], Array]) -> Array:
        packed = jax.vmap(
            lambda seed: solve_many(tree, q, rate(jnp.broadcast_to(seed[:, None], qd.shape)))
        )(seeds)
        return jnp.where(related, jnp.swapaxes(packed[np.array(index, dtype=int)], 0, 1), 0.0)

    def by_step(d: Array) -> Array:
        still = jnp.zeros_like(qd)
        return jax.jvp(lambda x: torques(tree, moved(tree, q, x), qd, qdd), (still,), (d,))[1]

    by_q = columns(lambda d: -by_step(d))
    by_qd = columns(lambda d: -jax.jvp(lambda x: torques(tree, q, x, qdd), (qd,), (d,))[1])
    return by_q, by_qd, columns(lambda d: d)


def _columns(tree: Tree, **values: Array) -> list[Array]:
    """States (nq or n, batch) in the tree's precision, as many of all."""
    columns: list[Array] = []
    for name, value in values.items():
        x = real(name, value, precision(tree))
        size = tree.nq if name == "q" else tree.n
        if x.ndim != 2 or x.shape[0] != size:
            raise ValueError(
                f"{name} has the shape {x.shape}; it must be ({size}, batch), one state a column."
            )
        if columns:
            check_shape(name, x, (size, columns[0].shape[1]))
        columns.append(x)
    return columns


def _branches(tree: Tree) -> tuple[list[int], list[int]]:
    """For each joint its branch, by the first body of that, and its index within the branch."""
    roots: list[int] = []
    for i, parent in enumerate(tree.parents):
        roots.append(i if parent < 0 else roots[parent])
    branch = [roots[i] for i in tree.moving]
    return branch, [branch[:k].count(root) for k, root in enumerate(branch)]
