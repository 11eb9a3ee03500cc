"""Statics of structures."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.checks import concrete
from jaxgrip.mechanism import Poses
from jaxgrip.structures import deflection, linear, model
from jaxgrip.structures.condense import Condensed
from jaxgrip.structures.coupling import Numbering, coupling, in_parts, matrix, rows_of
from jaxgrip.structures.loads import Inertia, Load, NodalForce, as_loads, inertia_field
from jaxgrip.structures.results import RESULTS, SINGULAR, Solution, StructureError, recover
from jaxgrip.structures.structure import Structure, check_whole
from jaxgrip.structures.zero_modes import zero_modes

ROUNDS = 30
_ROUNDING = 1e-9
# Change of the displacements by the deflection, by the largest of them, above which to warn.
OFF = 0.05


def solve(
    structure: Structure | Condensed,
    poses: Poses,
    loads: Load | Iterable[Load],
    *,
    throw: bool = True,
) -> Solution:
    """Linear statics: displacements, section forces and reactions under the sum of the loads.

    Ropes carry tension only; which are slack is found in rounds. Unless within `jit`, a warning
    says where the forces of the deflected structure would change the displacements by more than
    5 % of the largest.

    **Arguments:** `structure`, or what `condense` made of it; `poses` of all parts of its system,
    assembled; `loads`: `NodalForce`s and `Inertia`s that act together; `throw`: raise where there
    is no equilibrium.

    **Returns:** `Solution`, differentiable in everything.

    **Raises:** `StructureError` naming the motion when the structure can still move, or when no
    set of taut ropes is consistent; `ValueError` naming the connection when nodes to be joined
    are apart, or a load acts where there is nothing.

    Source: Webhofer 2005, section 4.1, pp. 27-29; own derivation.
    """
    loads = as_loads(loads)
    whole = structure.structure if isinstance(structure, Condensed) else structure
    check_whole(whole, "or what condense has made of one")
    whole.check(poses)
    check_loads(structure, loads)
    solution, found = solve_linear(structure, poses, loads)
    if throw:
        raised(solution)
    known = all(map(concrete, jax.tree.leaves((structure, poses, loads))))
    if known and solution.succeeded:
        off, node = deflection.estimate(structure, poses, loads, solution, found)
        if off > OFF:
            much = f"about {100 * off:.2g} % of" if off < 1 else "more than"
            warnings.warn(
                f"The linear displacements are off by {much} the largest, most at "
                f"{whole.label(node)}, since the structure deflects too far; use "
                "second_order.",
                stacklevel=2,
            )
    return solution


def check_loads(structure: Structure | Condensed, loads: tuple[Load, ...]) -> None:
    """Raise `ValueError` when a load is none, or acts where there is nothing."""
    whole = structure.structure if isinstance(structure, Condensed) else structure
    weights = [load.gravity for load in loads if isinstance(load, Inertia)]
    if sum(not concrete(g) or bool(np.any(np.asarray(g))) for g in weights) > 1:
        raise ValueError(
            "Two Inertia loads have gravity, which would count twice; give one of them "
            "gravity=(0, 0, 0)."
        )
    for load in loads:
        if not isinstance(load, NodalForce):
            continue
        node = whole.node(load.place)
        if load.moment is not None and not whole.layout.turning[node]:
            raise ValueError(
                f"A moment acts on {load.place!r}, where only bars end; nothing carries it."
            )
        if isinstance(structure, Condensed):
            own = whole.layout.dof[node, : 3 if load.moment is None else 6]
            if not structure.kept[own].all():
                raise ValueError(
                    f"A force acts on {load.place!r}, which is condensed; name it in the loads "
                    "given to condense."
                )


def raised(solution: Solution) -> Solution:
    """The solution, unless its numbers can be looked at and show that there is none."""
    if not concrete(solution.margin):
        return solution
    if not solution.succeeded:
        message = RESULTS[solution.result]
        if solution.result == RESULTS.singular:
            found = zero_modes(solution.structure, solution.poses, solution.taut)
            message = " ".join([message, *_slack(solution), *found.sentences])
        raise StructureError(message, solution)
    return solution


def _slack(solution: Solution) -> list[str]:
    """Which ropes are slack, in words."""
    names = [span.name for span in solution.structure.layout.spans]
    first = len(solution.taut) - solution.structure.layout.row_springs - len(names)
    slack = [name for k, name in enumerate(names) if not solution.taut[first + k]]
    return [f"Slack: {', '.join(map(repr, slack))}."] if slack else []


def solve_linear(
    structure: Structure | Condensed, poses: Poses, loads: tuple[Load, ...]
) -> tuple[Solution, "Equilibrium"]:
    """What `solve` does, without looking at the numbers, and the equations that it has solved."""
    large = isinstance(structure, Structure) and linear.is_large(structure.freedoms)
    return _solve_linear(structure, poses, loads, large)


@eqx.filter_jit
def _solve_linear(
    structure: Structure | Condensed, poses: Poses, loads: tuple[Load, ...], sparse: bool
) -> tuple[Solution, "Equilibrium"]:
    if isinstance(structure, Condensed):
        whole, stiffness, inertia = structure.structure, structure.stiffness, structure.inertia
        elements = model.elements(whole)
        own = structure.numbering
        part = whole.layout.part_of_freedom[structure.kept]
    else:
        whole, elements = structure, model.elements(structure)
        stiffness = model.stiffness(whole, elements)
        stiffness = stiffness if sparse else stiffness.dense()
        inertia = model.inertia_loads(whole, elements)
        own = Numbering(whole.layout.dof, whole.freedoms)
        part = whole.layout.part_of_freedom
    rotations = whole.rotations(poses)
    tied = coupling(whole, poses, elements.bars)
    amounts = inertia_amounts(whole, poses, loads)
    on_ties = tie_loads(whole, poses, loads)
    force = nodal_forces(whole, poses, loads, on_ties, own)
    force -= jnp.sum(inertia * amounts[part], axis=1)
    rows = rows_of if sparse else matrix
    found = equilibrium(
        stiffness,
        rows(whole, rotations, tied.equations, own),
        rows(whole, rotations, tied.springs.rows, own),
        tied.springs.stiffness,
        tied.springs.tension_only,
        force,
    )
    solved = found
    if isinstance(structure, Condensed):
        found = found._replace(q=structure.all(found.q, amounts))
    return recover(whole, elements, poses, tied, found, amounts, on_ties), solved


class Equilibrium(NamedTuple):
    """Displacements of all freedoms, what holds the parts together, and which springs act.

    `matrix` is the stiffness with the springs that act, `equations` are those between freedoms,
    `factor` has the factors of both.
    """

    q: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    spring_forces: Float[Array, " s"]
    taut: Bool[Array, " s"]
    margin: Float[Array, ""]
    settled: Bool[Array, ""]
    matrix: linear.Matrix
    equations: linear.Equations
    factor: linear.Factor | linear.SparseFactor


def equilibrium(
    stiffness: linear.Matrix,
    equations: linear.Equations,
    stretch: linear.Equations,
    spring: Float[Array, " s"],
    tension_only: np.ndarray,
    force: Float[Array, " n"],
) -> Equilibrium:
    """Equilibrium with springs of which some carry tension only, starting with all of them."""

    def total(taut: Array) -> linear.Matrix:
        return linear.with_springs(stiffness, stretch, jnp.where(taut, spring, 0.0))

    def one(taut: Array) -> tuple:
        matrix = total(taut)
        factor = linear.factorise(matrix, equations)
        u, _ = linear.solve(matrix, equations, factor, force, jnp.zeros(len(equations)))
        way = stretch @ u
        # A rope without force counts as taut, whatever the rounding.
        return factor, taut, (way >= -_ROUNDING * jnp.max(jnp.abs(way))) | ~tension_only

    def body(state: tuple) -> tuple:
        (_, _, taut), count = state
        return one(taut), count + 1

    def going(state: tuple) -> Array:
        (factor, old, new), count = state
        return jnp.any(old != new) & (linear.margin(factor) > SINGULAR) & (count < ROUNDS)

    frozen = jnp.ones(len(spring), dtype=bool)
    if tension_only.any():
        (factor, frozen, new), _ = jax.lax.while_loop(going, body, (one(frozen), 1))
        settled = jnp.all(frozen == new)
    else:
        factor, settled = linear.factorise(total(frozen), equations), jnp.array(True)
    gap, whole = jnp.zeros(len(equations)), total(frozen)
    q, multipliers = linear.solve(whole, equations, factor, force, gap)
    return Equilibrium(
        q,
        multipliers,
        jnp.where(frozen, spring, 0.0) * (stretch @ q),
        frozen,
        linear.margin(factor, whole, equations),
        settled,
        whole,
        equations,
        factor,
    )


def inertia_amounts(
    structure: Structure, poses: Poses, loads: tuple[Load, ...]
) -> Float[Array, "p 12"]:
    """a0 and W of the acceleration a0 + W x at the place x, in the frame of every part."""
    a0, gradient = inertia_field(loads)
    index = np.array([structure.system.part(name) for name in structure.names], dtype=int)
    turn = poses.rotation[index]
    at = a0[None] + poses.position[index] @ gradient.T
    return jnp.concatenate(
        [
            jnp.einsum("pba,pb->pa", turn, at),
            jnp.einsum("pba,bc,pcd->pad", turn, gradient, turn).reshape(-1, 9),
        ],
        axis=1,
    )


def nodal_forces(
    structure: Structure,
    poses: Poses,
    loads: tuple[Load, ...],
    on_ties: Float[Array, "t 2 3"],
    numbering: Numbering,
) -> Float[Array, " n"]:
    """Forces on single nodes and those on the ends of ties, on all freedoms."""
    nodes, forces = nodal(structure, loads, on_ties)
    total = jnp.zeros(numbering.count)
    if not len(nodes):
        return total
    values = in_parts(structure, structure.rotations(poses), nodes, forces)
    return total.at[numbering.dof[nodes]].add(values, mode="drop")


def nodal(
    structure: Structure, loads: tuple[Load, ...], on_ties: Float[Array, "t 2 3"]
) -> tuple[np.ndarray, Float[Array, "f 6"]]:
    """Nodes and forces on them, in axes of the ground."""
    nodes, forces = [], []
    for load in loads:
        if isinstance(load, NodalForce):
            nodes.append(structure.node(load.place))
            moment = jnp.zeros(3) if load.moment is None else load.moment
            forces.append(jnp.concatenate([load.force, moment])[None])
    if structure.layout.spans and any(isinstance(load, Inertia) for load in loads):
        nodes += [end for span in structure.layout.spans for end in span.ends]
        force = on_ties.reshape(-1, 3)
        forces.append(jnp.concatenate([force, jnp.zeros_like(force)], axis=1))
    if not nodes:
        return np.zeros(0, dtype=int), jnp.zeros((0, 6))
    return np.array(nodes, dtype=int), jnp.concatenate(forces)


def tie_loads(structure: Structure, poses: Poses, loads: tuple[Load, ...]) -> Float[Array, "t 2 3"]:
    """Weight and inertia of ties on their two ends [N], in axes of the ground."""
    a0, gradient = inertia_field(loads)
    mass, x = model.tie_masses(structure, poses)
    at = (2 * x + x[:, ::-1]) / 3
    return -mass[:, None, None] / 2 * (a0[None, None] + at @ gradient.T)
