"""Vibration of structures in time."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import brief, numbers
from jaxgrip.fem._body import Rayleigh
from jaxgrip.fem._integrators import GeneralizedAlpha, Newmark
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures._analysis import applied_loads, check_loads
from jaxgrip.fem.structures._coupling import Numbering
from jaxgrip.fem.structures._structure import Structure, check_whole
from jaxgrip.fem.structures._vibration import matrices
from jaxgrip.fem.structures.loads import Load, as_loads
from jaxgrip.mechanism import Poses


class Response(NamedTuple):
    """Vibration of all nodes in ground axes, at the times `t` (s,) [s].

    `displacements` (s, k, 6) [m] and rotations, `velocities` (s, k, 6) [m/s] and rotation rates.
    """

    t: Float[Array, " s"]
    displacements: Float[Array, "s k 6"]
    velocities: Float[Array, "s k 6"]


def simulate(
    structure: Structure,
    poses: Poses,
    loads: Load | Iterable[Load],
    dt: float,
    *,
    t1: float,
    t0: float = 0.0,
    amount: Callable[[Any], ArrayLike] | None = None,
    u0: Float[Array, "k 6"] | None = None,
    v0: Float[Array, "k 6"] | None = None,
    damping: Rayleigh | None = None,
    method: Newmark | GeneralizedAlpha | None = None,
) -> Response:
    """Small vibrations of a structure under loads that change with time.

    **Arguments:**

    - `structure`; `poses` of all parts of its system; `loads`, as for `solve`. Ropes act as bars.
    - `dt`: step [s], made a little shorter so that a whole number fits; `t0`, `t1`: begin and end.
    - `amount`: function of time, the factor of all loads, or of each of them (l,); 1 when not
      given. An `equinox.Module` compiles once for all numbers in it, a new function anew.
    - `u0`, `v0` (k, 6): displacements [m] and rotations of all nodes, such as those of a
      `Solution`, and their rates at the start, which the connections allow; zero when not given.
    - `damping`: `Rayleigh(mass, stiffness)`, none when not given.
    - `method`: `Newmark()` when not given, or `GeneralizedAlpha(...)`.

    **Returns:** `Response` at the start and after every step, differentiable in all numbers but the
    times.

    **Raises:** `ValueError` for times out of order, or loads or a state of another shape or kind.

    Source: Schanzer 2007, eq. 4.50-4.52, pp. 57-58; Chung 1993.
    """
    check_whole(structure)
    structure.check(poses)
    loads = as_loads(loads)
    check_loads(structure, loads)
    for name, x in (("The start t0", t0), ("The end t1", t1), ("The step dt", dt)):
        numbers(name, x, ())
    if not t1 > t0:
        raise ValueError(f"The end t1 = {t1:g} s must be later than the start t0 = {t0:g} s.")
    if not dt > 0:
        raise ValueError(f"The step dt is {dt:g} s; it must be positive.")
    method = Newmark() if method is None else method
    if not isinstance(method, Newmark | GeneralizedAlpha):
        raise ValueError(f"The method is {brief(method)}; give Newmark() or GeneralizedAlpha().")
    shape = len(structure.layout.root), 6
    u0 = jnp.zeros(shape) if u0 is None else numbers("u0", u0, shape)
    v0 = jnp.zeros(shape) if v0 is None else numbers("v0", v0, shape)
    steps = max(1, int(np.ceil((t1 - t0) / dt - 1e-9)))
    span = jnp.asarray(t0, dtype=float), jnp.asarray(t1, dtype=float)
    damping = Rayleigh() if damping is None else damping
    large = linear.is_large(structure.degrees_of_freedom)
    return _simulate(structure, poses, loads, amount, u0, v0, damping, method, span, steps, large)


@eqx.filter_jit
def _simulate(
    structure: Structure,
    poses: Poses,
    loads: tuple[Load, ...],
    amount: Callable | None,
    u0: Array,
    v0: Array,
    damping: Rayleigh,
    method: Newmark | GeneralizedAlpha,
    span: tuple[Array, Array],
    steps: int,
    large: bool,
) -> Response:
    elements = model.elements(structure)
    stiffness, mass, equations = matrices(structure, poses, elements, (), None, large)
    forces = _forces(structure, poses, elements, loads)
    none = jnp.zeros(len(equations))
    h, c = (span[1] - span[0]) / steps, method.coefficients
    late = 1 - c.force

    def force(t: Array) -> Array:
        amounts = jnp.ones(()) if amount is None else jnp.asarray(amount(t))
        return jnp.broadcast_to(amounts, (len(loads),)) @ forces

    def system(of_mass: Array, late: Array) -> tuple:
        """Matrix and factors of the acceleration: its own mass, and the state it leads to."""
        of_mass = of_mass + late * c.gamma * h * damping.mass
        of_stiffness = late * (c.gamma * h * damping.stiffness + c.beta * h**2)
        matrix = of_mass * mass + of_stiffness * stiffness
        return matrix, linear.factorise(matrix, equations)

    def acceleration(system: tuple, right: Array) -> Array:
        return linear.solve(system[0], equations, system[1], right, none)[0]

    def rest(t: Array, u: Array, v: Array) -> Array:
        """Load less elastic and damping forces."""
        return force(t) - damping.mass * (mass @ v) - stiffness @ (u + damping.stiffness * v)

    def step(state: tuple, t: Array) -> tuple:
        u, v, a = state
        # All but the share of the new acceleration.
        new_u, new_v = u + h * v + h**2 * (0.5 - c.beta) * a, v + h * (1 - c.gamma) * a
        middle = c.force * u + late * new_u, c.force * v + late * new_v
        right = rest(t + late * h, *middle) - c.mass * (mass @ a)
        new_a = acceleration(whole, right)
        state = new_u + h**2 * c.beta * new_a, new_v + h * c.gamma * new_a, new_a
        return state, state[:2]

    u, v = (_by_dof(structure, poses, x) for x in (u0, v0))
    # Degrees of freedom without mass take the acceleration by which the first step ends in
    # equilibrium.
    a = acceleration(system(jnp.ones(()), jnp.ones(())), rest(span[0], u, v))
    whole = system(1 - c.mass, late)
    t = span[0] + h * jnp.arange(steps + 1.0)
    _, moved = jax.lax.scan(step, (u, v, a), t[:-1])

    def nodes(q: Array) -> Array:
        return model.in_ground(structure, poses, model.displacements(structure, q))

    every = (jnp.concatenate([x[None], y]) for x, y in zip((u, v), moved, strict=True))
    return Response(t, *map(jax.vmap(nodes), every))


def _forces(
    structure: Structure, poses: Poses, elements: model.Elements, loads: tuple[Load, ...]
) -> Float[Array, "l n"]:
    """Forces of every load on all degrees of freedom."""
    inertia = model.inertia_loads(structure, elements)
    own = Numbering(structure.layout.dof, structure.degrees_of_freedom)
    part = structure.layout.part_of_dof
    found = [applied_loads(structure, poses, (load,), own, inertia, part).force for load in loads]
    return jnp.stack([jnp.zeros(structure.degrees_of_freedom), *found])[1:]


def _by_dof(structure: Structure, poses: Poses, u: Float[Array, "k 6"]) -> Float[Array, " n"]:
    """All degrees of freedom by the displacements of the nodes."""
    root = structure.layout.root
    own = np.flatnonzero(root == np.arange(len(root)))
    turned = jnp.einsum("kba,kib->kia", structure.rotations(poses)[own], u[own].reshape(-1, 2, 3))
    dof = structure.layout.dof[own]
    return jnp.zeros(structure.degrees_of_freedom).at[dof].set(turned.reshape(-1, 6), mode="drop")
