"""Results of structural analyses, by the names of parts and connections."""

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures._coupling import Coupling, entries
from jaxgrip.fem.structures._elements import Bars, Beams
from jaxgrip.fem.structures._structure import Block, Structure, check_whole
from jaxgrip.mechanism import Poses

if TYPE_CHECKING:
    from jaxgrip.fem.structures._analysis import Equilibrium


# Smallest eigenvalues below this, of a matrix with unit diagonal, are rounding.
SINGULAR = 1e-12


class RESULTS(eqx.Enumeration):
    """Outcomes of an analysis, with messages that say what to try."""

    successful = ""
    singular = "The structure can still move without any force."
    ropes = "No set of taut ropes is consistent with the loads; add a rope or a support."
    limit = "The loads are beyond the limit load."
    buckled = "The loads are beyond buckling."
    diverged = "No equilibrium was found."
    unfinished = "The path has not reached the loads within the number of points; raise points."


class StructureError(RuntimeError):
    """Raised with `throw=True`; `solution` is the incomplete solution, if any."""

    def __init__(self, message: str, solution: "Solution | None" = None):
        super().__init__(message)
        self.solution = solution


class Wrench(NamedTuple):
    """`force` (3,) [N] and `moment` (3,) [N m] about the point `place` (3,) [m], in ground axes."""

    force: Float[Array, "3"]
    moment: Float[Array, "3"]
    place: Float[Array, "3"]


class PartResult(NamedTuple):
    """Results of one part, in the order of its nodes and elements.

    - `nodes` (k, 3): undeformed positions [m]; `displacements` (k, 3) [m] and `rotations` (k, 3)
      [rad] of the nodes, in ground axes. Nodes of bars only have rotation 0.
    - `beam_forces` (m, 2, 6): N, Vy, Vz [N], Mx, My, Mz [N m] at both ends of every beam on the
      face with outward normal +x, in section axes, in second order those of the deflected section;
      `beam_stresses` (m, 2, 2): least and greatest N/A ± M/W [Pa], NaN without `reach`.
    - `bar_forces` (b,): tension of every bar, rope and spring [N].
    - `solids`: displacements (n, 3) [m] of the mesh of every `Solid`, in the frame of the part;
      `jaxgrip.fem.stress` makes stresses of them.
    """

    nodes: Float[Array, "k 3"]
    displacements: Float[Array, "k 3"]
    rotations: Float[Array, "k 3"]
    beam_forces: Float[Array, "m 2 6"]
    beam_stresses: Float[Array, "m 2 2"]
    bar_forces: Float[Array, " b"]
    solids: tuple[Float[Array, "_ 3"], ...]


class Solution(eqx.Module):
    """Equilibrium of a structure.

    - `displacements` (k, 6): displacements [m] and rotations [rad] of all nodes, in ground axes;
      in second order rotation vectors, which jump to the opposite vector at length π.
    - `beam_forces` (m, 2, 6), `bar_forces` (b,): of all parts, see `PartResult`.
    - `multipliers` (e,) of the constraints between parts; `spring_forces` (s,) and `taut` (s,) of
      ropes, ties and springs between parts.
    - `coefficients` (c, 6) of the constraints, `spring_coefficients` (d, 6) of the springs;
      `tie_loads` (t, 2, 3): weight and inertia forces of ties at either end [N].
    - `places` (n, 3): positions of nodes and ground points [m], deflected in second order,
      undeformed in linear statics.
    - `margin`: estimate of the smallest eigenvalue of the stiffness, scaled to unit diagonal;
      below 1e-12 for a mechanism.
    - `solids`: displacements within all solids, see `PartResult`.
    - `load_factor`: share of the loads reached: 1, or less where stability is lost or the path
      could not be followed.
    - `result`: member of `RESULTS`.

    Unless it has `succeeded`, displacements, forces, `places` and all derivatives are NaN.
    """

    structure: Structure
    poses: Poses
    displacements: Float[Array, "k 6"]
    beam_forces: Float[Array, "m 2 6"]
    bar_forces: Float[Array, " b"]
    multipliers: Float[Array, " e"]
    spring_forces: Float[Array, " s"]
    taut: Bool[Array, " s"]
    margin: Float[Array, ""]
    result: RESULTS
    coefficients: Float[Array, "c 6"]
    spring_coefficients: Float[Array, "d 6"]
    tie_loads: Float[Array, "t 2 3"]
    places: Float[Array, "n 3"]
    load_factor: Float[Array, ""]
    solids: tuple[Float[Array, "_ 3"], ...] = ()

    def or_nan(self) -> "Solution":
        """The solution, with NaN for results and their derivatives unless it has succeeded."""
        there = jnp.where(self.succeeded, 1.0, jnp.nan)
        names = ["displacements", "beam_forces", "bar_forces", "multipliers", "spring_forces"]
        names += ["coefficients", "spring_coefficients", "tie_loads", "places"]
        changed = {name: there * getattr(self, name) for name in names}
        return dataclasses.replace(self, **changed, solids=tuple(there * u for u in self.solids))

    @property
    def succeeded(self) -> Bool[Array, ""]:
        """Whether there is an equilibrium."""
        return self.result == RESULTS.successful

    def part(self, name: str) -> PartResult:
        """Results of one part; `ValueError` when it has no model."""
        first = self.structure.node((name, 0))
        frame = self.structure.frames[name]
        own = slice(first, first + len(frame.nodes))
        beams, bars = _counts(self.structure, name)
        solids = zip(self.structure.solids, self.solids, strict=True)
        forces = self.beam_forces[beams]
        return PartResult(
            self.structure.places(self.poses)[own],
            self.displacements[own, :3],
            self.displacements[own, 3:],
            forces,
            _stresses(frame.elements, forces),
            self.bar_forces[bars],
            tuple(u for (nodes, _), u in solids if own.start <= nodes[0] < own.stop),
        )

    def connection(self, name: str) -> Wrench:
        """Wrench of a connection on its second part, about its first point there.

        A support, named by its attachment, acts on its part.
        """
        for block in self.structure.layout.blocks:
            if block.name == name:
                return self._wrench(block, block.stations[1])
        known = [block.name for block in self.structure.layout.blocks]
        raise ValueError(f"No connection {name!r} carries force; there are {', '.join(known)}.")

    def tie(self, name: str) -> Float[Array, ""]:
        """Tension [N] of a tie, or of a drive that acts as a bar, rope or spring."""
        names = [span.name for span in self.structure.layout.spans]
        if name not in names:
            raise ValueError(f"There is no tie {name!r}; there are {', '.join(names) or 'none'}.")
        return self.spring_forces[self._first_tie + names.index(name)]

    def reactions(self) -> dict[str, Wrench]:
        """Wrenches of the ground, through supports and through joints and ties with rigid parts.

        Their sum balances all loads, including the weight of the ties.
        """
        layout = self.structure.layout
        count = len(layout.root)
        found = {}
        for block in layout.blocks:
            if block.kind == "support":
                found[block.name] = self._wrench(block, block.stations[1])
            for here, there in (block.stations, block.stations[::-1]):
                if here and all(s >= count for s in here):
                    found[block.name] = self._wrench(block, there)
        for k, span in enumerate(layout.spans):
            for end in (0, 1):
                if span.ends[end] < count:
                    continue
                entry = 2 * (self._first_tie + k)
                tension = self.spring_forces[self._first_tie + k]
                pull = self.spring_coefficients[entry + end, :3] * tension
                force = pull - self.tie_loads[k, end]
                found[span.name] = Wrench(force, jnp.zeros(3), self.places[span.ends[end]])
        return found

    @property
    def _first_tie(self) -> int:
        layout = self.structure.layout
        return len(self.spring_forces) - layout.row_springs - len(layout.spans)

    def _wrench(self, block: Block, side: tuple[int, ...]) -> Wrench:
        """Wrench of a block on the stations of one side, about the first of them."""
        stations, rows = entries(block)
        of = np.flatnonzero(np.isin(stations, side))
        if block.spring:
            springs = self._first_tie + len(self.structure.layout.spans)
            coefficients = self.spring_coefficients[2 * springs :][self._first(block) + of]
            amounts = self.spring_forces[springs:]
        else:
            coefficients = self.coefficients[self._first(block) + of]
            amounts = self.multipliers
        force = -coefficients * amounts[rows[of]][:, None]
        arm = self.places[stations[of]] - self.places[side[0]][None]
        moment = force[:, 3:] + jnp.cross(arm, force[:, :3])
        return Wrench(force[:, :3].sum(0), moment.sum(0), self.places[side[0]])

    def _first(self, block: Block) -> int:
        """Index of the first entry of a block among those of the equations, or of the springs."""
        before = 0
        for other in self.structure.layout.blocks:
            if other is block:
                return before
            before += len(entries(other)[0]) if other.spring == block.spring else 0
        raise AssertionError


def centre_of_gravity(
    structure: Structure, poses: Poses
) -> tuple[Float[Array, ""], Float[Array, "3"]]:
    """Mass [kg] of parts and ties, and their centre of gravity (3,) [m] in the ground frame."""
    check_whole(structure)
    structure.check(poses)
    own = model.masses(structure)
    index = np.array([structure.system.part(name) for name in structure.names], dtype=int)
    moments = own.mass[:, None] * poses.position[index]
    moments += jnp.einsum("pab,pb->pa", poses.rotation[index], own.moment)
    mass, moment = own.mass.sum(), moments.sum(0)
    ties, ends = model.tie_masses(structure, poses)
    mass += ties.sum()
    return mass, (moment + ties @ ends.mean(axis=1)) / mass


def recover(
    structure: Structure,
    elements: model.Elements,
    poses: Poses,
    tied: Coupling,
    found: "Equilibrium",
    amounts: Float[Array, "p 12"],
    on_ties: Float[Array, "t 2 3"],
) -> Solution:
    """Nodal displacements and section forces from a solution in degrees of freedom."""
    u = model.displacements(structure, found.q)
    layout = structure.layout
    beams = jnp.zeros((0, 2, 6))
    orders = [np.zeros(0, dtype=int)]
    part = layout.part_of_node
    for group, matrices in zip(elements.groups, elements.matrices, strict=True):
        load = -jnp.einsum("mkj,mk->mj", matrices.inertia, amounts[part[group.ends[:, 0]]])
        at_ends = matrices.ends(u[group.ends].reshape(-1, 12), load)
        forces = jnp.einsum("mij,mj->mi", matrices.stiffness, at_ends) - load
        forces = jnp.einsum("mba,mkb->mka", matrices.axes, forces.reshape(-1, 4, 3))
        signs = jnp.array([[-1.0], [1.0]])
        beams = jnp.concatenate([beams, forces.reshape(-1, 2, 6) * signs[None]])
        orders.append(group.order)
    beams = beams[np.argsort(np.concatenate(orders))]
    bar = elements.bars
    stretch = jnp.einsum("ma,mka->mk", bar.direction, u[bar.ends, :3])
    bar_forces = bar.stiffness * (stretch[:, 1] - stretch[:, 0])
    ropes = np.flatnonzero(bar.tension_only)
    bar_forces = bar_forces.at[ropes].set(found.spring_forces[: len(ropes)])
    solids = [
        jnp.tensordot(u[nodes].reshape(-1), solid.shapes, 1)
        + jnp.tensordot(amounts[part[nodes[0]]], solid.sag, 1)
        for nodes, solid in elements.solids
    ]
    u = model.in_ground(structure, poses, u)
    result = RESULTS.where(found.settled, RESULTS.successful, RESULTS.ropes)
    result = RESULTS.where(jnp.all(jnp.isfinite(found.q)), result, RESULTS.diverged)
    result = RESULTS.where(found.margin > SINGULAR, result, RESULTS.singular)
    solution = Solution(
        structure,
        poses,
        u,
        beams,
        bar_forces,
        found.multipliers,
        found.spring_forces,
        found.taut,
        found.margin,
        result,
        tied.equations.coefficients,
        tied.springs.rows.coefficients,
        on_ties,
        structure.places(poses),
        jnp.ones(()),
        tuple(solids),
    )
    return solution.or_nan()


def _counts(structure: Structure, name: str) -> tuple[slice, slice]:
    """Slices of a part's beams and bars among those of all parts."""
    beams = bars = 0
    for other, frame in structure.frames.items():
        own_beams = sum(len(g.ends.array) for g in frame.elements if isinstance(g, Beams))
        own_bars = sum(len(g.ends.array) for g in frame.elements if isinstance(g, Bars))
        if other == name:
            return slice(beams, beams + own_beams), slice(bars, bars + own_bars)
        beams, bars = beams + own_beams, bars + own_bars
    raise AssertionError


def _stresses(elements: tuple, forces: Float[Array, "m 2 6"]) -> Float[Array, "m 2 2"]:
    result, first = [jnp.zeros((0, 2, 2))], 0
    for group in elements:
        if not isinstance(group, Beams):
            continue
        own = forces[first : first + len(group.ends.array)]
        first += len(own)
        if group.reach is None:
            result.append(jnp.full((len(own), 2, 2), jnp.nan))
            continue
        section = group.section
        middle = own[..., 0] / section.A
        if group.reach.ndim:
            bent = jnp.abs(own[..., 4]) * group.reach[1] / section.Iy
            bent += jnp.abs(own[..., 5]) * group.reach[0] / section.Iz
        else:
            bent = group.reach * jnp.hypot(own[..., 4] / section.Iy, own[..., 5] / section.Iz)
        result.append(jnp.stack([middle - bent, middle + bent], axis=-1))
    return jnp.concatenate(result)
