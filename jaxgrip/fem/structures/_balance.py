"""Residual and tangent of a structure at displacements of any size.

Whatever carries force is a group of like members, each with forces on its stations, which are the
nodes and the points of the ground. Equations between parts are members whose forces are
multipliers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from jaxgrip.fem.element_sum import ElementSum, Rows, of
from jaxgrip.fem.structures import _corotational as corotational
from jaxgrip.spatial import quaternions, skew


class Configuration(NamedTuple):
    """Configuration of a structure, relative to the undeformed one, in ground axes.

    - `displacement` (s, 3) [m] and unit quaternion `rotation` (s, 4) of the node each station
      follows.
    - `releases` (r,): displacements and rotations of released beam ends, in section axes.
    - `multipliers` (e,) of the equations; `load_factor`: the loads act times this.
    """

    displacement: Float[Array, "s 3"]
    rotation: Float[Array, "s 4"]
    releases: Float[Array, " r"]
    multipliers: Float[Array, " e"]
    load_factor: Float[Array, ""]


class Kinematics(NamedTuple):
    """Of stations: `displacement` (s, 3) [m]; `quaternion` (s, 4), matrix `rotation` (s, 3, 3)."""

    displacement: Float[Array, "s 3"]
    quaternion: Float[Array, "s 4"]
    rotation: Float[Array, "s 3 3"]


class MemberForces(NamedTuple):
    """Forces that members exert.

    `forces` (s, 6) on the stations, moments about these; `releases` (12,) on released ends;
    `violation` (k,) of equations; `stress` (k,) of elements, conjugate to their deformation.
    """

    forces: Float[Array, "s 6"]
    releases: Float[Array, "12"] | None = None
    violation: Float[Array, " k"] | None = None
    stress: Float[Array, " k"] | None = None


class Group(NamedTuple):
    """Members of one kind.

    - `member(motion, releases, own, more, factor, data)`: `MemberForces`; `own` are the
      multipliers of equations, or whether a line carries force; `more`: stress added to that of
      the deformation.
    - `stations` (m, s); `data` of every member.
    - `index` (m, 6 s or more): degrees of freedom of the stations, then of released ends, and
      `releases` (m, 12) of the latter among their like.
    - `rows` (m, k) among the equations, or among springs that turn.
    - `soft` (m, k): strains by stresses, of elements.
    """

    member: Callable
    stations: np.ndarray
    data: PyTree
    index: np.ndarray | None = None
    releases: np.ndarray | None = None
    rows: np.ndarray | None = None
    soft: Float[Array, "m k"] | None = None


class Problem(NamedTuple):
    """All members of a structure under its loads.

    - `beams`, whose numbers among all of the structure are `order`; `lines`: bars and springs
      within parts, ropes within parts, then ties; `springs` that turn; `loads`; `equations`.
    - `places` (s, 3): undeformed positions of stations; `arms` (s, 3) to them from the nodes they
      follow, whose degrees of freedom are `dof` (s, 6). The last station is fixed.
    - `tension_only` (l,) of the lines; numbers of `dofs` of nodes, of `releases` after them and
      of `rows` of equations.
    """

    beams: list[Group]
    lines: Group
    springs: list[Group]
    loads: Group
    equations: list[Group]
    places: Float[Array, "s 3"]
    arms: Float[Array, "s 3"]
    dof: np.ndarray
    order: np.ndarray
    tension_only: np.ndarray
    dofs: int
    releases: int
    rows: int

    @property
    def groups(self) -> list[Group]:
        """Groups that have members."""
        every = [*self.beams, self.lines, *self.springs, self.loads, *self.equations]
        return [group for group in every if len(group.stations)]

    @property
    def elements(self) -> list[Group]:
        """Groups that have stresses."""
        return [group for group in self.groups if group.soft is not None]

    def is_constraint(self, group: Group) -> bool:
        """Whether the members of a group are equations."""
        return any(group is other for other in self.equations)

    def start(self) -> Configuration:
        """Undeformed, without loads."""
        count = len(self.dof)
        still = jnp.zeros((count, 4)).at[:, 0].set(1.0)
        releases, multipliers = jnp.zeros(self.releases), jnp.zeros(self.rows)
        return Configuration(jnp.zeros((count, 3)), still, releases, multipliers, jnp.zeros(()))

    def moved(self, at: Configuration, step: Float[Array, " n"]) -> Configuration:
        """After a step in the degrees of freedom: displacements and rotation vectors."""
        steps = of(step, self.dof)
        rotation = jax.vmap(quaternions.exponential)(steps[:, 3:])
        rotation = jax.vmap(quaternions.product)(rotation, at.rotation)
        rotation = rotation / jnp.linalg.norm(rotation, axis=1, keepdims=True)
        releases = at.releases + step[self.dofs :]
        return at._replace(
            displacement=at.displacement + steps[:, :3], rotation=rotation, releases=releases
        )

    def motion(self, at: Configuration) -> tuple[Kinematics, Float[Array, "s 3"]]:
        """Displacement and rotation of the stations, and the rotated arms to them."""
        # Without loss of digits for small rotations.
        across = jnp.cross(at.rotation[:, 1:], self.arms)
        swing = 2 * (at.rotation[:, :1] * across + jnp.cross(at.rotation[:, 1:], across))
        rotation = jax.vmap(quaternions.to_matrix)(at.rotation)
        return Kinematics(at.displacement + swing, at.rotation, rotation), self.arms + swing

    def taut(self, at: Configuration) -> Bool[Array, " l"]:
        """Which lines are not slack."""
        ends = self.motion(at)[0].displacement[self.lines.stations]
        longer = jax.vmap(corotational.stretch)(ends[:, 1] - ends[:, 0], self.lines.data.span)
        return (longer >= 0) | ~jnp.asarray(self.tension_only)


class Balance(NamedTuple):
    """Residual and tangent.

    `residual` (n,): forces out of balance; `violation` (e,) of the equations; their derivatives by
    the degrees of freedom `stiffness` (n, n) and `slope` (e, n); `load_derivative` (n,) of the
    residual by the load factor; `stresses` of the elements.
    """

    residual: Float[Array, " n"]
    violation: Float[Array, " e"]
    stiffness: Float[Array, "n n"] | ElementSum
    slope: Float[Array, "e n"] | Rows
    load_derivative: Float[Array, " n"]
    stresses: tuple["Stresses", ...]


class Stresses(NamedTuple):
    """Stresses (m, k) of a group of elements; derivative by its degrees of freedom."""

    value: Float[Array, "m k"]
    slope: Float[Array, "m k v"]
    index: np.ndarray

    def rate(self, direction: Float[Array, " n"]) -> Float[Array, "m k"]:
        """Change of the stresses along a direction in the degrees of freedom."""
        return jnp.einsum("mkv,mv->mk", self.slope, of(direction, self.index))


def balance(
    problem: Problem,
    at: Configuration,
    taut: Bool[Array, " l"],
    stresses: tuple[Array, ...] | None = None,
) -> Balance:
    """Residual and tangent.

    **Arguments:** `problem`; `at`; `taut`: which lines carry force, whatever their stretch;
    `stresses` of the elements, from which the tangent has its geometric stiffness where they are
    not yet those of the deformation.

    Source: Magisano 2017.
    """
    found = element_wise(problem, at, taut, stresses)
    return found._replace(stiffness=found.stiffness.dense(), slope=found.slope.dense())


def element_wise(
    problem: Problem,
    at: Configuration,
    taut: Bool[Array, " l"],
    stresses: tuple[Array, ...] | None = None,
) -> Balance:
    """The same as `balance`, with matrices that are not summed up."""
    n, rows = problem.dofs + problem.releases, problem.rows
    total, violation, load_derivative = jnp.zeros(n), jnp.zeros(rows), jnp.zeros(n)
    stiffness, slope, found_stresses = [], [], []
    for group in problem.groups:
        index, zero = group.index, jnp.zeros(group.index.shape[1] + 1)
        given = None
        if group.soft is not None and stresses is not None:
            given = stresses[len(found_stresses)]

        def one(given, *inputs, group=group, zero=zero) -> tuple:
            found = _on_dofs(group, zero, 0.0, at.load_factor, *inputs)
            more = 0.0 if given is None else given - found.stress
            by = jax.jacfwd(lambda x: _on_dofs(group, x, more, at.load_factor, *inputs))(zero)
            return by, found

        by, found = jax.vmap(one)(given, *_inputs(problem, at, group, taut))
        total = total.at[index].add(found.pull, mode="drop")
        load_derivative = load_derivative.at[index].add(by.pull[..., -1], mode="drop")
        stiffness.append((index, by.pull[..., :-1]))
        if problem.is_constraint(group):
            violation = violation.at[group.rows].add(found.violation, mode="drop")
            own = group.rows.reshape(-1)
            some = np.flatnonzero(own < rows)
            every = np.repeat(index, group.rows.shape[1], axis=0)[some]
            values = by.violation[..., :-1].reshape(len(own), -1)[some]
            slope.append((own[some], every, values))
        if group.soft is not None:
            found_stresses.append(Stresses(found.stress, by.stress[..., :-1], index))
    tangent = ElementSum(n, stiffness), Rows(rows, n, slope)
    return Balance(total, violation, *tangent, load_derivative, tuple(found_stresses))


def residual(
    problem: Problem, at: Configuration, taut: Bool[Array, " l"]
) -> tuple[Float[Array, " n"], Float[Array, " e"]]:
    """Forces out of balance, and violation of the equations."""
    total = jnp.zeros(problem.dofs + problem.releases)
    violation = jnp.zeros(problem.rows)
    for group in problem.groups:
        zero = jnp.zeros(group.index.shape[1] + 1)

        def one(*inputs, group=group, zero=zero) -> "_OnDofs":
            return _on_dofs(group, zero, 0.0, at.load_factor, *inputs)

        found = jax.vmap(one)(*_inputs(problem, at, group, taut))
        total = total.at[group.index].add(found.pull, mode="drop")
        if problem.is_constraint(group):
            violation = violation.at[group.rows].add(found.violation, mode="drop")
    return total, violation


def shapes(
    problem: Problem, at: Configuration, directions: Float[Array, "n z"]
) -> Float[Array, "z s 6"]:
    """Displacements and rotations of all stations by small motions, the columns of `directions`."""
    arms = problem.motion(at)[1]
    steps = jax.vmap(lambda direction: of(direction, problem.dof), in_axes=1)(directions)
    swing = jnp.cross(steps[:, :, 3:], arms[None])
    return jnp.concatenate([steps[:, :, :3] + swing, steps[:, :, 3:]], axis=2)


def exerted(
    problem: Problem, at: Configuration, group: Group, taut: Bool[Array, " l"]
) -> MemberForces:
    """Forces of every member of a group on its own stations."""

    def one(motion, arms, releases, own, data) -> MemberForces:
        return group.member(motion, releases, own, 0.0, at.load_factor, data)

    return jax.vmap(one)(*_inputs(problem, at, group, taut))


def coefficients(problem: Problem, at: Configuration, group: Group) -> Float[Array, "m k s 6"]:
    """Forces on the stations by a unit of each multiplier of equations, or of each stress."""

    def one(motion, arms, releases, own, data) -> Array:
        def by(unit: Array) -> Array:
            if problem.is_constraint(group):
                return group.member(motion, releases, unit, 0.0, at.load_factor, data).forces
            return group.member(motion, releases, own, unit, at.load_factor, data).forces

        count = group.rows.shape[1] if group.soft is None else group.soft.shape[1]
        return jnp.moveaxis(jax.jacfwd(by)(jnp.zeros(count)), -1, 0)

    taut = jnp.ones(len(problem.tension_only), dtype=bool)
    return jax.vmap(one)(*_inputs(problem, at, group, taut))


def _inputs(problem: Problem, at: Configuration, group: Group, taut: Array) -> tuple:
    """Arguments of `_on_dofs` by member: stations, released ends, own numbers, data."""
    motion, arms = jax.tree.map(lambda x: x[group.stations], problem.motion(at))
    releases = None if group.releases is None else of(at.releases, group.releases)
    own = taut if group is problem.lines else None
    if problem.is_constraint(group):
        own = of(at.multipliers, group.rows)
    return motion, arms, releases, own, group.data


class _OnDofs(NamedTuple):
    """Forces of a member on its degrees of freedom; violation of its equations; stress."""

    pull: Float[Array, " v"]
    violation: Float[Array, " k"] | None
    stress: Float[Array, " k"] | None


def _on_dofs(
    group: Group,
    x: Float[Array, " v"],
    more: Float[Array, " k"] | float,
    load_factor: Float[Array, ""],
    motion: Kinematics,
    arms: Float[Array, "s 3"],
    releases: Array | None,
    own: Array | None,
    data: PyTree,
) -> _OnDofs:
    """To first order in a step x of the degrees of freedom, whose last entry is the load factor's.

    Moments are about the axes of the ground, whatever the step.
    """
    steps = x[: 6 * len(arms)].reshape(-1, 6)
    spin = steps[:, 3:]
    turn = jax.vmap(skew)(spin)
    swing = jnp.cross(spin, arms)
    scalar, vector = motion.quaternion[:, :1], motion.quaternion[:, 1:]
    turned = [
        -jnp.sum(spin * vector, axis=1, keepdims=True),
        scalar * spin + jnp.cross(spin, vector),
    ]
    moved = Kinematics(
        motion.displacement + steps[:, :3] + swing,
        motion.quaternion + jnp.concatenate(turned, axis=1) / 2,
        motion.rotation + turn @ motion.rotation,
    )
    releases = None if releases is None else releases + x[6 * len(arms) : -1]
    found = group.member(moved, releases, own, more, load_factor + x[-1], data)
    force, moment = found.forces[:, :3], found.forces[:, 3:]
    moment = moment + jnp.cross(arms + swing, force)
    pull = jnp.concatenate([force, moment], axis=1).reshape(-1)
    pull = pull if found.releases is None else jnp.concatenate([pull, found.releases])
    return _OnDofs(pull, found.violation, found.stress)
