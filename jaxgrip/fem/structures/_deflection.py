"""Estimate of the second-order error of linear statics, from its solution alone.

In NumPy, so that nothing is compiled. The residual has the forces of members and joints, rotated
with these to first order, and the second-order strains.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.spatial.transform import Rotation

from jaxgrip.fem import direct
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures._condense import Condensed
from jaxgrip.fem.structures._coupling import Numbering, entries
from jaxgrip.fem.structures._elements import Bars, Beams, PointMasses
from jaxgrip.fem.structures._results import Solution
from jaxgrip.fem.structures._structure import Structure
from jaxgrip.fem.structures.loads import Inertia, Load, inertia_field
from jaxgrip.mechanism import Poses

if TYPE_CHECKING:
    from jaxgrip.fem.structures._analysis import Equilibrium

# Displacements, relative to the size of the structure, that count as zero.
STILL = 1e-9


class _Members(NamedTuple):
    """`ends` (m, 2) stations; `pull` (m, 2, 6) forces on these; `stiff`, `tension`, `mass` (m,).

    `bends`: whether its ends rotate with the stations.
    """

    ends: np.ndarray
    pull: np.ndarray
    stiff: np.ndarray
    tension: np.ndarray
    mass: np.ndarray
    bends: bool


def estimate(
    structure: Structure | Condensed,
    poses: Poses,
    loads: tuple[Load, ...],
    solution: Solution,
    found: "Equilibrium",
) -> tuple[float, int]:
    """Second-order change of the displacements relative to the largest, and its node.

    **Arguments:** as `solve`, its solution, and the equations that it has solved.
    """
    whole = solution.structure
    layout = whole.layout
    places, count = np.asarray(solution.places), len(layout.root)
    moved = np.zeros((len(places), 6))
    moved[:count] = solution.displacements
    root = np.concatenate([layout.root, np.arange(count, len(places))])
    rotations = moved[root, 3:]
    constant, gradient = map(np.asarray, inertia_field(loads))
    mass = np.zeros(len(places))
    arms = places - places[root]
    swing = np.cross(rotations, arms)
    gap = np.cross(rotations, swing) / 2
    acting, out = np.zeros_like(moved), np.zeros_like(moved)

    for own in _members(whole, poses, solution):
        if not len(own.ends):
            continue
        span = places[own.ends[:, 1]] - places[own.ends[:, 0]]
        length = np.linalg.norm(span, axis=1, keepdims=True)
        x = span / length
        relative = moved[own.ends[:, 1], :3] - moved[own.ends[:, 0], :3]
        across = relative - _dot(relative, x) * x
        rotation = np.cross(x, across) / length
        apart = gap[own.ends[:, 1]] - gap[own.ends[:, 0]]
        longer = _dot(across, across) / 2 / length + _dot(apart, x)
        bent = np.zeros((len(span), 2, 6))
        if own.bends:
            both = rotations[own.ends]
            rotation += _dot(both.mean(axis=1), x) * x
            first, second = (
                rest - _dot(rest, x) * x for rest in np.moveaxis(both - rotation[:, None], 1, 0)
            )
            part = own.tension[:, None] * length / 30
            bent[:, 0, 3:] = part * (4 * first - second)
            bent[:, 1, 3:] = part * (4 * second - first)
            bent[:, 1, :3] = np.cross(x, bent[:, :, 3:].sum(axis=1)) / length
            bent[:, 0, :3] = -bent[:, 1, :3]
            square = 2 * _dot(first, first) - _dot(first, second) + 2 * _dot(second, second)
            longer += length * square / 30
        pulls = own.stiff[:, None] * longer * x
        bent[:, :, :3] += np.stack([-pulls, pulls], axis=1)
        turned = np.cross(rotation[:, None, None], own.pull.reshape(-1, 2, 2, 3))
        np.add.at(out, own.ends, turned.reshape(-1, 2, 6) + bent)
        np.add.at(acting, own.ends, own.pull)
        np.add.at(mass, own.ends, own.mass[:, None] / 2)

    springs = solution._first_tie + len(layout.spans)
    for block in layout.blocks:
        stations, rows = entries(block)
        first = solution._first(block)
        if block.spring:
            coefficients, amounts = solution.spring_coefficients, solution.spring_forces[springs:]
            first += 2 * springs
        else:
            coefficients, amounts = solution.coefficients, solution.multipliers
        coefficients = np.asarray(coefficients)[first : first + len(stations)]
        pull = coefficients * np.asarray(amounts)[rows][:, None]
        np.add.at(acting, stations, pull)
        if block.kind not in ("support", "merge") and block.stations[0]:
            # The forces of a joint rotate with its first part.
            side = list(block.stations[0])
            rotation = rotations[side[0]]
            if block.kind == "equations":
                rotation = _mean_rotation(places[side], moved[side, :3])
            turned = np.cross(rotation, pull.reshape(-1, 2, 3))
            np.add.at(out, stations, turned.reshape(-1, 6))

    for load in loads:
        if not isinstance(load, Inertia):
            acting[whole.node(load.place), :3] -= np.asarray(load.force)
    for offset, frame in zip(layout.offsets, whole.models, strict=True):
        for group in frame.elements:
            if isinstance(group, PointMasses):
                nodes = offset + group.nodes.array
                mass[nodes] += np.asarray(group.mass)
                at = constant + places[nodes] @ gradient.T
                acting[nodes, :3] += np.asarray(group.mass) * at
    for span, on_ends in zip(layout.spans, np.asarray(solution.tie_loads), strict=True):
        acting[list(span.ends), :3] -= on_ends
    out[:, :3] += mass[:, None] * (moved[:, :3] @ gradient.T)
    out[:, 3:] += np.cross(swing, acting[:, :3]) + np.cross(arms, out[:, :3])

    total = np.zeros_like(out)
    np.add.at(total, root, out)
    body = np.concatenate([_rotations(poses), np.eye(3)[None]])[layout.body]
    total = np.einsum("kba,kib->kia", body, total.reshape(-1, 2, 3)).reshape(-1, 6)
    force = np.zeros(layout.dofs + 1)
    np.add.at(force, layout.dof, total)
    force, own = force[:-1], Numbering(layout.dof, layout.dofs)
    if isinstance(structure, Condensed):
        force, own = np.asarray(structure.on_kept(jnp.asarray(force))), structure.numbering
    step = np.append(_solved(found.factor, -force), 0.0)[own.dof].reshape(-1, 2, 3)
    step = np.einsum("kab,kib->kia", body, step)
    far = np.linalg.norm(step[:, 0] + np.cross(step[:, 1], arms) + gap, axis=1)
    # Displacements that count as zero may change by any factor.
    largest = np.linalg.norm(moved[:, :3], axis=1).max(initial=0.0)
    least = STILL * np.ptp(places, axis=0).max(initial=1e-300)
    return float(far.max() / max(largest, least)), int(far.argmax())


def _members(structure: Structure, poses: Poses, solution: Solution) -> Iterator[_Members]:
    places, turn = np.asarray(solution.places), _rotations(poses)[:, None]
    forces, tensions = np.asarray(solution.beam_forces), np.asarray(solution.bar_forces)
    layout = structure.layout
    for offset, name, frame in zip(layout.offsets, structure.frames, structure.models, strict=True):
        body = turn[structure.system.part(name)]
        for group in frame.elements:
            if isinstance(group, Beams):
                ends = offset + group.ends.array
                own, forces = forces[: len(ends)], forces[len(ends) :]
                section = group.section
                x = _along(places, ends)
                z = np.cross(x, body[0] @ np.asarray(section.orientation))
                z /= np.linalg.norm(z, axis=1, keepdims=True)
                axes = np.stack([x, np.cross(z, x), z], axis=2)
                pull = np.einsum("mab,mkib->mkia", axes, own.reshape(-1, 2, 2, 3))
                pull = pull.reshape(-1, 2, 6) * np.array([[-1.0], [1.0]])
                length, area = np.linalg.norm(_span(places, ends), axis=1), np.asarray(section.A)
                stiff = np.asarray(section.material.E) * area / length
                mass = np.asarray(section.material.rho) * area * length
                bends = not any(group.released)
                yield _Members(ends, pull, stiff, own[:, :, 0].mean(axis=1), mass, bends)
            elif isinstance(group, Bars):
                ends = offset + group.ends.array
                own, tensions = tensions[: len(ends)], tensions[len(ends) :]
                yield _lines(places, ends, own, group.kind)
    tensions = np.asarray(solution.spring_forces)[solution._first_tie :]
    for span, tension in zip(layout.spans, tensions, strict=False):
        yield _lines(places, np.array([span.ends]), tension[None], structure.kind(span))


def _lines(places: np.ndarray, ends: np.ndarray, tension: np.ndarray, kind) -> _Members:
    length = jnp.asarray(np.linalg.norm(_span(places, ends), axis=1))
    stiff, mass = np.asarray(kind.stiffness(length)), np.asarray(kind.mass(length))
    stiff = np.where((tension <= 0) & kind.tension_only, 0.0, stiff)
    pull = np.zeros((len(ends), 2, 6))
    pull[:, 1, :3] = tension[:, None] * _along(places, ends)
    pull[:, 0, :3] = -pull[:, 1, :3]
    return _Members(ends, pull, stiff, tension, mass, bends=False)


def _span(places: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return places[ends[:, 1]] - places[ends[:, 0]]


def _along(places: np.ndarray, ends: np.ndarray) -> np.ndarray:
    span = _span(places, ends)
    return span / np.linalg.norm(span, axis=1, keepdims=True)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sum(a * b, axis=-1, keepdims=True)


def _rotations(poses: Poses) -> np.ndarray:
    return Rotation.from_quat(np.asarray(poses.quaternion)[:, [1, 2, 3, 0]]).as_matrix()


def _mean_rotation(points: np.ndarray, displacements: np.ndarray) -> np.ndarray:
    """Least-squares rotation of points, zero where it is undetermined."""
    arms, relative = points - points.mean(axis=0), displacements - displacements.mean(axis=0)
    whole = np.sum(arms**2) * np.eye(3) - arms.T @ arms
    return np.linalg.pinv(whole, rcond=1e-9) @ np.cross(arms, relative).sum(axis=0)


def _solved(factor: linear.Factor | linear.SparseFactor, force: np.ndarray) -> np.ndarray:
    """u of K u + Bᵀ λ = f, B u = 0."""
    if isinstance(factor, linear.SparseFactor):
        scale = np.asarray(factor.scale)
        right = np.concatenate([force * scale, np.zeros(len(factor.weight))])
        both = direct.host_solve(factor.pattern, np.asarray(factor.values), right)
        return scale * both[: len(scale)]
    lower, across, schur, scale, _ = map(np.asarray, factor)
    y = solve_triangular(lower, force * scale, lower=True)
    y -= across @ cho_solve((schur, True), across.T @ y)
    return scale * solve_triangular(lower, y, lower=True, trans=1)
