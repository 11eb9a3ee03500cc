"""Linear statics of structures."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.checks import concrete
from jaxgrip.fem.structures import _deflection as deflection
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures._condense import Condensed
from jaxgrip.fem.structures._coupling import Numbering, coupling, in_parts, matrix, rows_of
from jaxgrip.fem.structures._results import RESULTS, SINGULAR, Solution, StructureError, recover
from jaxgrip.fem.structures._structure import Structure, check_whole
from jaxgrip.fem.structures._zero_modes import zero_modes
from jaxgrip.fem.structures.loads import Inertia, Load, NodalForce, as_loads, inertia_field
from jaxgrip.mechanism import Poses

ROUNDS = 30
_ROUNDING = 1e-9
# Second-order change of the displacements, relative to the largest, above which to warn.
OFF = 0.05


def solve(
    structure: Structure | Condensed,
    poses: Poses,
    loads: Load | Iterable[Load],
    *,
    throw: bool = True,
) -> Solution:
    """Linear statics: displacements, section forces and reactions under the sum of the loads.

    Ropes carry tension only; which are slack is found by iteration. Outside `jit` a warning is
    given where second-order effects change the displacements by more than 5 % of the largest.

    **Arguments:** `structure`, whole or condensed; `poses` of all parts of its system, assembled;
    `loads`: `NodalForce`s and `Inertia`s that act together; `throw`: raise where there is no
    equilibrium.

    **Returns:** `Solution`, differentiable.

    **Raises:** `StructureError` naming the motion when the structure is a mechanism, or when no
    set of taut ropes is consistent with the loads; `ValueError` naming the connection when nodes
    to be joined do not coincide, or a load that no degree of freedom carries.

    Source: Webhofer 2005, section 4.1, pp. 27-29; own derivation.
    """
    loads = as_loads(loads)
    whole = structure.structure if isinstance(structure, Condensed) else structure
    check_whole(whole, "whole or condensed")
    whole.check(poses)
    check_loads(structure, loads)
    solution, found = solve_linear(structure, poses, loads)
    if throw:
        raised(solution)
    known = all(map(concrete, jax.tree.leaves((structure, poses, loads))))
    # The estimate follows the forces of beams and bars, not those of solids.
    if known and solution.succeeded and not whole.solids:
        off, node = deflection.estimate(structure, poses, loads, solution, found)
        if off > OFF:
            much = f"about {100 * off:.2g} % of" if off < 1 else "more than"
            warnings.warn(
                f"The linear displacements are off by {much} the largest, most at "
                f"{whole.label(node)}, because of second-order effects; use "
                "second_order.",
                stacklevel=2,
            )
    return solution


def check_loads(structure: Structure | Condensed, loads: tuple[Load, ...]) -> None:
    """Raise `ValueError` for gravity given twice, or a load that no degree of freedom carries."""
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
                f"A moment acts on {load.place!r}, a node of bars only, which has no rotations."
            )
        if isinstance(structure, Condensed):
            own = whole.layout.dof[node, : 3 if load.moment is None else 6]
            if not structure.kept[own].all():
                raise ValueError(
                    f"A force acts on {load.place!r}, a condensed node; include it in the loads "
                    "given to condense."
                )


def raised(solution: Solution) -> Solution:
    """The solution; `StructureError` unless it has succeeded or is traced."""
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
    """A sentence naming the slack ropes, if any."""
    names = [span.name for span in solution.structure.layout.spans]
    first = len(solution.taut) - solution.structure.layout.row_springs - len(names)
    slack = [name for k, name in enumerate(names) if not solution.taut[first + k]]
    return [f"Slack: {', '.join(map(repr, slack))}."] if slack else []


def solve_linear(
    structure: Structure | Condensed, poses: Poses, loads: tuple[Load, ...]
) -> tuple[Solution, "Equilibrium"]:
    """The traceable part of `solve`: its solution and the equations solved."""
    large = isinstance(structure, Structure) and linear.is_large(structure.degrees_of_freedom)
    return _solve_linear(structure, poses, loads, large)


@eqx.filter_jit
def _solve_linear(
    structure: Structure | Condensed, poses: Poses, loads: tuple[Load, ...], sparse: bool
) -> tuple[Solution, "Equilibrium"]:
    if isinstance(structure, Condensed):
        whole, stiffness, inertia = structure.structure, structure.stiffness, structure.inertia
        elements = model.elements(whole)
        own = structure.numbering
        part = whole.layout.part_of_dof[structure.kept]
    else:
        whole, elements = structure, model.elements(structure)
        stiffness = model.stiffness(whole, elements)
        stiffness = stiffness if sparse else stiffness.dense()
        inertia = model.inertia_loads(whole, elements)
        own = Numbering(whole.layout.dof, whole.degrees_of_freedom)
        part = whole.layout.part_of_dof
    rotations = whole.rotations(poses)
    tied = coupling(whole, poses, elements.bars)
    force, amounts, on_ties = applied_loads(whole, poses, loads, own, inertia, part)
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
    """Displacements `q`, multipliers of the constraints, and forces and state of the springs.

    `matrix` is the stiffness including the taut springs, `equations` are the constraints,
    `factor` factorises both.
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
    """Equilibrium with tension-only springs, by active-set iteration from all taut."""

    def total(taut: Array) -> linear.Matrix:
        return linear.with_springs(stiffness, stretch, jnp.where(taut, spring, 0.0))

    def one(taut: Array) -> tuple:
        matrix = total(taut)
        factor = linear.factorise(matrix, equations)
        u, _ = linear.solve(matrix, equations, factor, force, jnp.zeros(len(equations)))
        longer = stretch @ u
        # A rope without force counts as taut in spite of rounding.
        return factor, taut, (longer >= -_ROUNDING * jnp.max(jnp.abs(longer))) | ~tension_only

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


class AppliedLoads(NamedTuple):
    """Loads as forces on the degrees of freedom, accelerations of the parts, forces on ties."""

    force: Float[Array, " n"]
    amounts: Float[Array, "p 12"]
    on_ties: Float[Array, "t 2 3"]


def applied_loads(
    structure: Structure,
    poses: Poses,
    loads: tuple[Load, ...],
    numbering: Numbering,
    inertia: Float[Array, "n 12"],
    part: np.ndarray,
) -> AppliedLoads:
    """Loads of all kinds; `inertia` of the degrees of freedom as in `_model`, `part` of each."""
    amounts = inertia_amounts(structure, poses, loads)
    on_ties = tie_loads(structure, poses, loads)
    force = nodal_forces(structure, poses, loads, on_ties, numbering)
    return AppliedLoads(force - jnp.sum(inertia * amounts[part], axis=1), amounts, on_ties)


def inertia_amounts(
    structure: Structure, poses: Poses, loads: tuple[Load, ...]
) -> Float[Array, "p 12"]:
    """a0 and W of the acceleration a0 + W x at position x, in the frame of every part."""
    a0, gradient = inertia_field(loads)
    index = np.array([structure.system.part(name) for name in structure.names], dtype=int)
    rotation = poses.rotation[index]
    at = a0[None] + poses.position[index] @ gradient.T
    return jnp.concatenate(
        [
            jnp.einsum("pba,pb->pa", rotation, at),
            jnp.einsum("pba,bc,pcd->pad", rotation, gradient, rotation).reshape(-1, 9),
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
    """Generalised forces of nodal loads and of loads on the ends of ties."""
    nodes, forces = nodal(structure, loads, on_ties)
    total = jnp.zeros(numbering.count)
    if not len(nodes):
        return total
    values = in_parts(structure, structure.rotations(poses), nodes, forces)
    return total.at[numbering.dof[nodes]].add(values, mode="drop")


def nodal(
    structure: Structure, loads: tuple[Load, ...], on_ties: Float[Array, "t 2 3"]
) -> tuple[np.ndarray, Float[Array, "f 6"]]:
    """Nodes and the forces on them, in ground axes."""
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
    """Weight and inertia of ties at their two ends [N], in ground axes."""
    a0, gradient = inertia_field(loads)
    mass, x = model.tie_masses(structure, poses)
    at = (2 * x + x[:, ::-1]) / 3
    return -mass[:, None, None] / 2 * (a0[None, None] + at @ gradient.T)
