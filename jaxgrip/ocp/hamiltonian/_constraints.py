"""Time derivatives of constraints, and the Hamiltonian with active constraints adjoined.

A constraint c of order p is adjoined by its p-th derivative, the first that contains a control:
H = L + costate . f + multiplier c^(p). Order zero is a mixed constraint.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from jaxgrip.ocp.hamiltonian._hamiltonian import Expansion, expand, with_hessian
from jaxgrip.ocp.statement import Problem
from jaxgrip.solve.fusion import jit_plainly

MAX_ORDER = 3


class ActiveConstraint(NamedTuple):
    """A constraint that is active somewhere: its index among the problem's and its order."""

    index: int
    order: int


class ActiveRows(eqx.Module):
    """Constraints that may be active, by their order.

    `index` `(c,)` among the problem's constraints is data; the `orders` `(c,)`, which increase, are
    static, since each adds to the compiled program.
    """

    index: Int[ArrayLike, " c"]
    orders: tuple[int, ...] = eqx.field(static=True)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.orders)

    @property
    def highest(self) -> int:
        """The highest order; zero without constraints."""
        return max(self.orders, default=0)

    def by_order(self) -> Iterator[tuple[int, Int[ArrayLike, " k"]]]:
        """Each order with the indices of its constraints, in the order of the rows."""
        for order in sorted(set(self.orders)):
            rows = np.flatnonzero(np.array(self.orders) == order)
            yield order, jnp.asarray(self.index)[rows]


def spread(
    values: Shaped[ArrayLike, "... k"], at: Int[ArrayLike, " k"], count: int
) -> Shaped[ArrayLike, "... every"]:
    """Values at the places `at` among `count`, their sum where a place occurs twice, zero
    elsewhere; NumPy's of NumPy's arrays.
    """
    array = np if isinstance(values, np.ndarray) else jnp
    here = array.asarray(at)[:, None] == np.arange(count)[None]
    return array.sum(array.where(here, values[..., None], 0), axis=-2)


def arrange(active: Sequence[ActiveConstraint]) -> tuple[ActiveRows, list[int]]:
    """Rows for constraints that are active somewhere, and the place of each among the rows.

    Those of one order are filled up to a power of two with rows that are active nowhere, so that
    few different numbers of rows are compiled.
    """
    rows: list[ActiveConstraint] = []
    place = [0] * len(active)
    for order in sorted({each.order for each in active}):
        same = [i for i, each in enumerate(active) if each.order == order]
        for i in same:
            place[i] = len(rows)
            rows.append(active[i])
        spare = (1 << (len(same) - 1).bit_length()) - len(same)
        rows += [active[same[0]]] * spare
    index = np.array([each.index for each in rows], dtype=int)
    return ActiveRows(index, tuple(each.order for each in rows)), place


def total_derivative(problem: Problem, index: Int[ArrayLike, " *k"], order: int) -> Callable:
    """The function x, u -> time derivative of the given order of one or several constraints along
    the motion.
    """
    if order == 0:
        return lambda x, u: problem.constraints(x, u)[index]
    below = total_derivative(problem, index, order - 1)
    return lambda x, u: jax.jvp(lambda x: below(x, u), (x,), (problem.dynamics(x, u),))[1]


def lower_derivatives(
    problem: Problem,
    active: ActiveRows,
    x: Float[Array, " n"],
    u: Float[Array, " m"],
) -> Float[Array, "c P"]:
    """Derivatives below the order of each active constraint `(c, P)`, P the highest order.

    They are functions of the state alone; zero where the order is less than P.
    """
    if not active.highest:
        return jnp.zeros((len(active), 0))
    blocks = []
    for order, index in active.by_order():
        below = [total_derivative(problem, index, k)(x, u) for k in range(order)]
        missing = [jnp.zeros(len(index))] * (active.highest - order)
        blocks.append(jnp.stack([*below, *missing], axis=1))
    return jnp.concatenate(blocks)


def hamiltonian(
    problem: Problem,
    active: ActiveRows,
    x: Float[Array, " n"],
    u: Float[Array, " m"],
    costate: Float[Array, " n"],
    multiplier: Float[Array, " c"],
) -> Float[Array, ""]:
    """L + costate . f + multipliers `(c,)` times the highest derivatives of active constraints."""
    f = problem.dynamics(x, u)
    value = problem.cost_rate(x, u) + costate @ f
    highest = []
    for order, index in active.by_order():
        below = total_derivative(problem, index, max(order - 1, 0))
        if order == 0:
            highest.append(below(x, u))
        else:
            highest.append(jax.jvp(lambda x, c=below: c(x, u), (x,), (f,))[1])
    return value + multiplier @ jnp.concatenate([jnp.zeros(0), *highest])


def expand_constrained(
    problem: Problem,
    active: ActiveRows,
    x: Float[Array, " n"],
    u: Float[Array, " m"],
    costate: Float[Array, " n"],
    multiplier: Float[Array, " c"],
) -> tuple[Expansion, Float[Array, " c"], Float[Array, "c z"]]:
    """Expand the Hamiltonian with active constraints to second order in states and controls.

    The highest derivative of a constraint is d_x . f with d the derivative below it, so d_x
    weighted by the multiplier only adds to the costate, and the dynamics are expanded once.

    **Returns:** the [`Expansion`][]; the constraints' highest derivatives `(c,)` and their
    gradients `(c, n+m)` in (x, u).
    """
    if not active:
        empty = jnp.zeros((0, x.shape[0] + u.shape[0]))
        return expand(problem, x, u, costate), jnp.zeros(0), empty
    n = problem.n
    z = jnp.concatenate([x, u])
    groups = dict(active.by_order())
    mixed_index = groups.pop(0, jnp.zeros(0, dtype=int))
    of_mixed, weights = jnp.split(multiplier, [len(mixed_index)])
    below = [total_derivative(problem, index, order - 1) for order, index in groups.items()]

    def slope(x):
        return jax.jacrev(lambda x: jnp.concatenate([jnp.zeros(0), *(d(x, u) for d in below)]))(x)

    d_x = slope(x)
    ex = expand(problem, x, u, costate + weights @ d_x)
    ((_, d_xx), (d_xx_f, d_xxx_f)) = jax.jvp(
        lambda x: (slope(x), jax.jacfwd(lambda x: weights @ slope(x))(x)), (x,), (ex.f,)
    )
    bent = d_xx @ ex.f_z
    h_z = ex.h_z.at[:n].add(d_xx @ ex.f)
    h_zz = ex.h_zz.at[:n].add(bent).at[:, :n].add(bent.T).at[:n, :n].add(d_xxx_f)
    mixed, mixed_z, mixed_zz = with_hessian(
        lambda z: problem.constraints(z[:n], z[n:])[mixed_index], z, of_mixed
    )
    value = jnp.concatenate([mixed, d_x @ ex.f])
    value_z = jnp.concatenate([mixed_z, (d_x @ ex.f_z).at[:, :n].add(d_xx_f)])
    h_z, h_zz = h_z + of_mixed @ mixed_z, h_zz + mixed_zz
    return ex._replace(h_z=h_z, h_zz=h_zz), value, value_z


def constraint_sizes(
    problem: Problem,
    x: Float[Array, "K n"],
    u: Float[Array, "K m"],
    state: Float[Array, " n"],
    control: Float[Array, " m"],
) -> Float[Array, " c"]:
    """Largest change of each constraint by typical changes of states and controls.

    **Arguments:** states `(K, n)` and controls `(K, m)` of a motion, and their typical changes.

    **Returns:** `(c,)`, one for a constraint that nothing changes.
    """
    by_x, by_u = jax.vmap(jax.jacfwd(problem.constraints, argnums=(0, 1)))(x, u)
    largest = jnp.max(jnp.abs(by_x) @ state + jnp.abs(by_u) @ control, axis=0)
    return jnp.where(largest > 0.0, largest, 1.0)


def boundary_sizes(
    problem: Problem,
    ends: Float[ArrayLike, "2 n"],
    state: Float[ArrayLike, " n"],
    time: Float[ArrayLike, ""],
) -> Float[Array, " b"]:
    """Change of each boundary condition by typical changes of states `(n,)` and final time [s].

    **Arguments:** `ends`, initial and final state; the typical changes of both; the final time,
    which is also its typical change.

    **Returns:** `(b,)`, one for a condition that nothing changes.
    """
    if not problem.n_boundary:
        return jnp.zeros(0)
    by_start, by_time, by_end = jax.jacfwd(problem.boundary, argnums=(0, 1, 2))(
        jnp.asarray(ends[0]), jnp.asarray(time), jnp.asarray(ends[1])
    )
    size = (jnp.abs(by_start) + jnp.abs(by_end)) @ state + jnp.abs(by_time) * time
    return jnp.where(size > 0.0, size, 1.0)


@jit_plainly
def _influence(problem: Problem, index: Int[Array, ""], order: int, x, u):
    """A constraint's derivative and its gradient in the controls, at every point of a motion."""
    function = total_derivative(problem, index, order)
    return jax.vmap(lambda x, u: (function(x, u), jax.grad(function, argnums=1)(x, u)))(x, u)


def find_order(
    problem: Problem, index: int, x: Float[Array, "K n"], u: Float[Array, "K m"]
) -> tuple[int, Float[np.ndarray, "K m"]]:
    """Order of one of the problem's constraints along a motion.

    **Arguments:** `index` of the constraint; states `(K, n)` and controls `(K, m)`.

    **Returns:** the order, and the gradient `(K, m)` of that derivative in the controls.

    **Raises:** `ValueError` where no derivative up to the third contains a control.
    """
    # As an array, so that one program serves all constraints.
    at = jnp.asarray(index)
    for order in range(MAX_ORDER + 1):
        value, gradient = (np.asarray(v) for v in _influence(problem, at, order, x, u))
        # Relative to the value, since a control that cancels may leave rounding error.
        if np.max(np.abs(gradient * np.asarray(u))) > 1e-10 * np.max(np.abs(value)):
            return order, gradient
    raise ValueError(
        f"The {problem.constraint_names[index]} has no defined order: none of its first "
        f"{MAX_ORDER} time derivatives contains a control."
    )
