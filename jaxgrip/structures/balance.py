"""A structure at displacements of any size: what is out of balance there, and the tangent.

Everything that carries force is a group of like members, each with forces on its stations; stations
are the nodes and the points of the ground. Equations between parts are members whose forces are
multipliers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from jaxgrip.fem.element_sum import ElementSum, Rows, of
from jaxgrip.spatial import quaternions
from jaxgrip.spatial.rotations import skew
from jaxgrip.structures import corotational


class Place(NamedTuple):
    """Where a structure is, from the undeformed one, in axes of the ground.

    - `way` (s, 3) [m] and unit quaternions `turn` (s, 4) of what leads each station.
    - `loose` (r,): what released ends of beams move and turn, in the axes of their sections.
    - `multipliers` (e,) of the equations; `share` of the loads.
    """

    way: Float[Array, "s 3"]
    turn: Float[Array, "s 4"]
    loose: Float[Array, " r"]
    multipliers: Float[Array, " e"]
    share: Float[Array, ""]


class Motion(NamedTuple):
    """Displacements `way` (s, 3) [m] of stations; `quaternion` (s, 4), `turn` (s, 3, 3)."""

    way: Float[Array, "s 3"]
    quaternion: Float[Array, "s 4"]
    turn: Float[Array, "s 3 3"]


class Held(NamedTuple):
    """What members exert.

    `forces` (s, 6) on the stations, moments about these; `loose` (12,) on released ends; `missed`
    (k,) by equations; `stress` (k,) of elements, forces conjugate to their deformation.
    """

    forces: Float[Array, "s 6"]
    loose: Float[Array, "12"] | None = None
    missed: Float[Array, " k"] | None = None
    stress: Float[Array, " k"] | None = None


class Group(NamedTuple):
    """Members of one kind.

    - `member(motion, loose, own, more, share, data)`: `Held`; `own` are the multipliers of
      equations, and whether a line acts; `more` stress than there is by the deformation.
    - `stations` (m, s); `data` of every member.
    - `index` (m, 6 s or more): numbers of the freedoms of the stations, then of released ends, and
      `loose` (m, 12) of the latter among their like.
    - `rows` (m, k) among the equations, or among springs that turn.
    - `soft` (m, k): strains by stresses, of elements.
    """

    member: Callable
    stations: np.ndarray
    data: PyTree
    index: np.ndarray | None = None
    loose: np.ndarray | None = None
    rows: np.ndarray | None = None
    soft: Float[Array, "m k"] | None = None


class Problem(NamedTuple):
    """All members of a structure under its loads.

    - `beams`, whose numbers among all of the structure are `order`; `lines`: bars and springs
      within parts, ropes within parts, then ties; `springs` that turn; `loads`; `equations`.
    - `places` (s, 3) of stations, undeformed; `arms` (s, 3) to them from what leads them; `dof`
      (s, 6) of what leads them. The last station stands still.
    - `tension_only` (l,) of the lines; `freedoms` of nodes, then `loose` of released ends; `rows`
      of equations.
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
    freedoms: int
    loose: int
    rows: int

    @property
    def groups(self) -> list[Group]:
        """All that have members."""
        every = [*self.beams, self.lines, *self.springs, self.loads, *self.equations]
        return [group for group in every if len(group.stations)]

    @property
    def elements(self) -> list[Group]:
        """Those of the groups that have stresses."""
        return [group for group in self.groups if group.soft is not None]

    def holds(self, group: Group) -> bool:
        """Whether a group is one of equations."""
        return any(group is other for other in self.equations)

    def start(self) -> Place:
        """Undeformed, without loads."""
        count = len(self.dof)
        still = jnp.zeros((count, 4)).at[:, 0].set(1.0)
        loose, multipliers = jnp.zeros(self.loose), jnp.zeros(self.rows)
        return Place(jnp.zeros((count, 3)), still, loose, multipliers, jnp.zeros(()))

    def moved(self, at: Place, step: Float[Array, " n"]) -> Place:
        """After a step of the freedoms: displacements, and rotation vectors."""
        steps = of(step, self.dof)
        turn = jax.vmap(quaternions.exponential)(steps[:, 3:])
        turn = jax.vmap(quaternions.product)(turn, at.turn)
        turn = turn / jnp.linalg.norm(turn, axis=1, keepdims=True)
        loose = at.loose + step[self.freedoms :]
        return at._replace(way=at.way + steps[:, :3], turn=turn, loose=loose)

    def motion(self, at: Place) -> tuple[Motion, Float[Array, "s 3"]]:
        """Motion of the stations themselves, and the arms to them, turned."""
        # Without loss of digits for small turns.
        across = jnp.cross(at.turn[:, 1:], self.arms)
        swing = 2 * (at.turn[:, :1] * across + jnp.cross(at.turn[:, 1:], across))
        turn = jax.vmap(quaternions.to_matrix)(at.turn)
        return Motion(at.way + swing, at.turn, turn), self.arms + swing

    def acting(self, at: Place) -> Bool[Array, " l"]:
        """Which lines are not slack."""
        way = self.motion(at)[0].way[self.lines.stations]
        longer = jax.vmap(corotational.stretch)(way[:, 1] - way[:, 0], self.lines.data.span)
        return (longer >= 0) | ~jnp.asarray(self.tension_only)


class Balance(NamedTuple):
    """What is out of balance, and the tangent.

    `residual` (n,) of the freedoms; `missed` (e,) by the equations; their derivatives by the
    freedoms `stiffness` (n, n) and `slope` (e, n); `push` (n,): derivative of the residual by the
    share of the loads; `stresses` of the elements.
    """

    residual: Float[Array, " n"]
    missed: Float[Array, " e"]
    stiffness: Float[Array, "n n"] | ElementSum
    slope: Float[Array, "e n"] | Rows
    push: Float[Array, " n"]
    stresses: tuple["Stresses", ...]


class Stresses(NamedTuple):
    """Stresses (m, k) of a group of elements, and their derivative by its freedoms."""

    value: Float[Array, "m k"]
    slope: Float[Array, "m k v"]
    index: np.ndarray

    def rate(self, way: Float[Array, " n"]) -> Float[Array, "m k"]:
        """Change of the stresses along a way of the freedoms."""
        return jnp.einsum("mkv,mv->mk", self.slope, of(way, self.index))


def balance(
    problem: Problem,
    at: Place,
    acting: Bool[Array, " l"],
    stresses: tuple[Array, ...] | None = None,
) -> Balance:
    """Residual and tangent.

    **Arguments:** `problem`; `at`; `acting`: which lines carry force, whatever their stretch;
    `stresses` of the elements, from which the tangent has its geometric stiffness where they are
    not yet those of the deformation.

    Source: Magisano 2017.
    """
    found = element_wise(problem, at, acting, stresses)
    return found._replace(stiffness=found.stiffness.dense(), slope=found.slope.dense())


def element_wise(
    problem: Problem,
    at: Place,
    acting: Bool[Array, " l"],
    stresses: tuple[Array, ...] | None = None,
) -> Balance:
    """The same as `balance`, with matrices that are not summed up."""
    n, rows = problem.freedoms + problem.loose, problem.rows
    total, missed, push = jnp.zeros(n), jnp.zeros(rows), jnp.zeros(n)
    stiffness, slope, found_stresses = [], [], []
    for group in problem.groups:
        index, zero = group.index, jnp.zeros(group.index.shape[1] + 1)
        given = None
        if group.soft is not None and stresses is not None:
            given = stresses[len(found_stresses)]

        def one(given, *inputs, group=group, zero=zero) -> tuple:
            found = _on_freedoms(group, zero, 0.0, at.share, *inputs)
            more = 0.0 if given is None else given - found.stress
            by = jax.jacfwd(lambda x: _on_freedoms(group, x, more, at.share, *inputs))(zero)
            return by, found

        by, found = jax.vmap(one)(given, *_inputs(problem, at, group, acting))
        total = total.at[index].add(found.pull, mode="drop")
        push = push.at[index].add(by.pull[..., -1], mode="drop")
        stiffness.append((index, by.pull[..., :-1]))
        if problem.holds(group):
            missed = missed.at[group.rows].add(found.missed, mode="drop")
            own = group.rows.reshape(-1)
            some = np.flatnonzero(own < rows)
            every = np.repeat(index, group.rows.shape[1], axis=0)[some]
            values = by.missed[..., :-1].reshape(len(own), -1)[some]
            slope.append((own[some], every, values))
        if group.soft is not None:
            found_stresses.append(Stresses(found.stress, by.stress[..., :-1], index))
    tangent = ElementSum(n, stiffness), Rows(rows, n, slope)
    return Balance(total, missed, *tangent, push, tuple(found_stresses))


def residual(
    problem: Problem, at: Place, acting: Bool[Array, " l"]
) -> tuple[Float[Array, " n"], Float[Array, " e"]]:
    """What is out of balance, and what equations miss."""
    total = jnp.zeros(problem.freedoms + problem.loose)
    missed = jnp.zeros(problem.rows)
    for group in problem.groups:
        zero = jnp.zeros(group.index.shape[1] + 1)

        def one(*inputs, group=group, zero=zero) -> "_OnFreedoms":
            return _on_freedoms(group, zero, 0.0, at.share, *inputs)

        found = jax.vmap(one)(*_inputs(problem, at, group, acting))
        total = total.at[group.index].add(found.pull, mode="drop")
        if problem.holds(group):
            missed = missed.at[group.rows].add(found.missed, mode="drop")
    return total, missed


def shapes(problem: Problem, at: Place, ways: Float[Array, "n z"]) -> Float[Array, "z s 6"]:
    """Displacements and rotations of all stations by small motions of the freedoms, as columns."""
    arms = problem.motion(at)[1]
    steps = jax.vmap(lambda way: of(way, problem.dof), in_axes=1)(ways)
    swing = jnp.cross(steps[:, :, 3:], arms[None])
    return jnp.concatenate([steps[:, :, :3] + swing, steps[:, :, 3:]], axis=2)


def exerted(problem: Problem, at: Place, group: Group, acting: Bool[Array, " l"]) -> Held:
    """What every member of a group exerts on its own stations."""

    def one(motion, arms, loose, own, data) -> Held:
        return group.member(motion, loose, own, 0.0, at.share, data)

    return jax.vmap(one)(*_inputs(problem, at, group, acting))


def coefficients(problem: Problem, at: Place, group: Group) -> Float[Array, "m k s 6"]:
    """Forces on the stations by a unit of each multiplier of equations, or of each stress."""

    def one(motion, arms, loose, own, data) -> Array:
        def by(unit: Array) -> Array:
            if problem.holds(group):
                return group.member(motion, loose, unit, 0.0, at.share, data).forces
            return group.member(motion, loose, own, unit, at.share, data).forces

        count = group.rows.shape[1] if group.soft is None else group.soft.shape[1]
        return jnp.moveaxis(jax.jacfwd(by)(jnp.zeros(count)), -1, 0)

    acting = jnp.ones(len(problem.tension_only), dtype=bool)
    return jax.vmap(one)(*_inputs(problem, at, group, acting))


def _inputs(problem: Problem, at: Place, group: Group, acting: Array) -> tuple:
    """Motion and arms of the stations, released ends, what is the member's own, its data."""
    motion, arms = jax.tree.map(lambda x: x[group.stations], problem.motion(at))
    loose = None if group.loose is None else of(at.loose, group.loose)
    own = acting if group is problem.lines else None
    if problem.holds(group):
        own = of(at.multipliers, group.rows)
    return motion, arms, loose, own, group.data


class _OnFreedoms(NamedTuple):
    """Forces of a member on its freedoms, what it misses, its stress."""

    pull: Float[Array, " v"]
    missed: Float[Array, " k"] | None
    stress: Float[Array, " k"] | None


def _on_freedoms(
    group: Group,
    x: Float[Array, " v"],
    more: Float[Array, " k"] | float,
    share: Float[Array, ""],
    motion: Motion,
    arms: Float[Array, "s 3"],
    loose: Array | None,
    own: Array | None,
    data: PyTree,
) -> _OnFreedoms:
    """To first order in a step x of the freedoms, whose last number is of the share of the loads.

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
    moved = Motion(
        motion.way + steps[:, :3] + swing,
        motion.quaternion + jnp.concatenate(turned, axis=1) / 2,
        motion.turn + turn @ motion.turn,
    )
    loose = None if loose is None else loose + x[6 * len(arms) : -1]
    found = group.member(moved, loose, own, more, share + x[-1], data)
    force, moment = found.forces[:, :3], found.forces[:, 3:]
    moment = moment + jnp.cross(arms + swing, force)
    pull = jnp.concatenate([force, moment], axis=1).reshape(-1)
    pull = pull if found.loose is None else jnp.concatenate([pull, found.loose])
    return _OnFreedoms(pull, found.missed, found.stress)
