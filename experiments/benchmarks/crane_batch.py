"""Variants of a crane times positions, assembled and solved at once, against a loop in NumPy."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

import jaxgrip as jg
from experiments.benchmarks.table import Row
from jaxgrip.models.crane import RODS, reference_crane
from jaxgrip.structures import model

js = jg.structures
VARIANTS, POSITIONS, CHUNK = 500, 50, 5
LOOPS = 40
TARGET = 10.0
ANGLES = np.deg2rad(np.linspace(35.0, 70.0, POSITIONS))
ROPES = {"luffing rope": 5e7, "pull-down": 8e7}
NOTE = (
    "500 variants (boom, mast, section) by 50 positions of the crane of 002 section 5.3 with 306 "
    "freedoms: Newton for the poses, linear statics with two ropes, section forces. The loop takes "
    "the stiffness of the parts once for every variant and the poses from closed forms, and solves "
    "all freedoms with SciPy; it was timed on {loops} positions."
)


def frame(length: ArrayLike, count: int, section: jg.fem.BeamSection, *, head: bool = False):
    """Pins at y = ±1 and `count` beams forward from between them; pins at the head too if asked."""
    x = jnp.linspace(0.0, 1.0, count + 1)[1:] * length
    nodes = [jnp.array([[0, 1, 0], [0, -1, 0], [0, 0, 0.0]]), jnp.stack([x, 0 * x, 0 * x], 1)]
    beams = [(0, 2), (2, 1), *((k, k + 1) for k in range(2, 2 + count))]
    named = {"foot": (0, 1), "tip": (2 + count,)}
    if head:
        nodes.append(nodes[0][:2] + nodes[1][-1:])
        beams += [(2 + count, 3 + count), (2 + count, 4 + count)]
        named = {"foot": (0, 1), "tip": (3 + count, 4 + count), "rope": (2 + count,)}
    return js.FramePart(jnp.concatenate(nodes), [js.Beams(beams, section)], named)


def crane(boom: ArrayLike, mast: ArrayLike, area: ArrayLike) -> js.Structure:
    """The crane with beams of one section; its superstructure is rigid."""
    system = reference_crane(boom=boom, mast=mast)
    steel = jg.fem.Isotropic(210e9, 0.3, 7850.0)
    section = jg.fem.BeamSection(
        steel, A=area, Iy=3e-4, Iz=2e-4, J=4e-4, orientation=(0.0, 0.0, 1.0)
    )
    upper = system.parts[system.part("superstructure")].attachments
    names = ("slewing ring", "boom foot", "mast foot", "a-frame foot")
    nodes = jnp.concatenate([*(upper[k][:2] for k in names), jnp.array([[-6.0, 0.0, 1.0]])])
    named = {name: (2 * k, 2 * k + 1) for k, name in enumerate(names)}
    links = js.RigidLinks([(0, k) for k in range(1, 9)])
    rods = frame(RODS, 6, section)
    turned = jnp.array([[RODS, 0.0, 0.0]]) + rods.nodes * jnp.array([[-1.0, 1.0, 1.0]])
    frames = {
        "superstructure": js.FramePart(nodes, [links], named),
        "a-frame": frame(7.0, 4, section),
        "rods": js.FramePart(turned, rods.elements, {"mast end": (0, 1), "a-frame end": (8,)}),
        "mast": frame(mast, 10, section, head=True),
        "boom": frame(boom, 16, section),
    }
    return js.Structure(
        system,
        frames,
        transfer={"slew": "lock", "luffing rope": js.Rope(ROPES["luffing rope"])},
        ties={
            "pull-down": js.Tie(js.Rope(ROPES["pull-down"]), "a-frame.tip", ("superstructure", 8))
        },
    )


LOADS = (js.NodalForce("boom.tip", (0.0, 0.0, -1e5)), js.Inertia(acceleration=0.01))


def geometry(mast: ArrayLike, xp=jnp):
    """Tips of A-frame and mast in the plane of the crane, the A-frame at 150 degrees."""
    tip = xp.array([-3.0 - 7 * np.sqrt(0.75), 6.0])
    foot = xp.array([0.5, 2.5])
    way = tip - foot
    c = xp.linalg.norm(way)
    angle = xp.arctan2(way[1], way[0]) - xp.arccos((c**2 + mast**2 - RODS**2) / (2 * c * mast))
    return tip, foot + mast * xp.stack([xp.cos(angle), xp.sin(angle)])


def variant(x: jax.Array) -> tuple[jax.Array, ...]:
    """Rope force and largest bending moment at all positions of one variant."""
    boom, mast, area = x
    structure = crane(boom, mast, area)
    small = js.condense(structure, LOADS)
    start = jg.assembly.start(structure.system)
    _, top = geometry(mast)
    head = jnp.array([[1.5, 2.5]]) + boom * jnp.stack([jnp.cos(ANGLES), jnp.sin(ANGLES)], 1)
    ropes = jnp.linalg.norm(head - top[None], axis=1)

    def one(rope: jax.Array) -> tuple[jax.Array, ...]:
        placed = jg.assembly.assemble(
            structure.system, {"luffing rope": rope}, start=start, throw=False
        )
        found = js.solve(small, placed.poses, LOADS, throw=False)
        moment = jnp.max(jnp.abs(found.beam_forces[..., 4:]))
        return found.tie("luffing rope"), moment, placed.succeeded & found.succeeded

    return jax.vmap(one)(ropes)


def numpy_loop(variants: np.ndarray, count: int) -> tuple[float, np.ndarray]:
    """Seconds for a position and forces of the luffing rope at the first `count` positions."""
    forces = []
    seconds = 0.0
    for boom, mast, area in variants:
        structure = crane(boom, mast, area)
        elements = model.elements(structure)
        stiffness = np.asarray(model.stiffness(structure, elements))
        inertia = np.asarray(model.inertia_loads(structure, elements))
        layout, nodes = structure.layout, np.asarray(structure.nodes())
        group, matrices = elements.groups[0], elements.matrices[0]
        local = np.asarray(matrices.stiffness), np.asarray(matrices.axes)
        for angle in ANGLES:
            if len(forces) == count:
                return seconds / count, np.array(forces)
            begin = time.perf_counter()
            forces.append(
                _one_position(
                    layout, nodes, stiffness, inertia, group.ends, local, boom, mast, angle
                )
            )
            seconds += time.perf_counter() - begin
    return seconds / len(forces), np.array(forces)


def _one_position(layout, nodes, stiffness, inertia, ends, local, boom, mast, angle) -> float:
    tip, top = geometry(mast, np)
    rods = np.arctan2(*(top - tip)[::-1])
    lift = np.arctan2(*(top - [0.5, 2.5])[::-1])
    along = np.array([0.0, np.deg2rad(150.0), rods, lift, angle])
    c, s = np.cos(along), np.sin(along)
    turns = np.zeros((5, 3, 3))
    turns[:, 0, 0], turns[:, 2, 2], turns[:, 1, 1] = c, c, 1.0
    turns[:, 2, 0], turns[:, 0, 2] = s, -s
    origins = np.array(
        [[0, 0, 1.5], [-3, 0, 2.5], [tip[0], 0, tip[1]], [0.5, 0, 2.5], [1.5, 0, 2.5]]
    )
    count = len(layout.root)
    part = layout.body[:count] - 1
    places = origins[part] + np.einsum("kab,kb->ka", turns[part], nodes[:count])
    n = layout.freedoms

    def row(entries) -> np.ndarray:
        """Sum of coefficient times displacement, in ground axes, of some nodes."""
        result = np.zeros(n + 1)
        for node, force, moment in entries:
            turn = turns[part[node]]
            arm = nodes[node] - nodes[layout.root[node]]
            pull = turn.T @ force
            result[layout.dof[node][:3]] += pull
            result[layout.dof[node][3:]] += turn.T @ moment + np.cross(arm, pull)
        return result[:n]

    zero = np.zeros(3)
    rows = []
    for block in layout.blocks:
        first, second = block.stations
        if block.name == "ring":
            rows += [row([(second[0], axis, zero)]) for axis in np.eye(3)]
            rows += [row([(second[1], axis, zero)]) for axis in np.eye(3)[:2]]
        elif block.name == "slew":
            rows.append(row([(second[0], zero, np.eye(3)[2])]))
        elif block.kind == "merge":
            rows += [
                row([(a, -axis, zero), (b, axis, zero)])
                for a, b in zip(first, second, strict=True)
                for axis in np.eye(3)
            ]
        else:
            axis = places[first[1]] - places[first[0]]
            across = np.linalg.svd(axis[None])[2][1:]
            rows += [
                row([(a, -d, zero), (b, d, zero)])
                for a, b in zip(first, second, strict=True)
                for d in across
            ]
    k = stiffness.copy()
    stretches = {}
    for span in layout.spans:
        a, b = span.ends
        way = places[b] - places[a]
        length = np.linalg.norm(way)
        stretch = row([(a, -way / length, zero), (b, way / length, zero)])
        stretches[span.name] = (stretch, ROPES[span.name] / length)
        k += ROPES[span.name] / length * np.outer(stretch, stretch)
    swing = 0.01 * np.array([[0, -1.0, 0], [1.0, 0, 0], [0, 0, 0]])
    amounts = np.concatenate(
        [
            np.einsum("pba,pb->pa", turns, np.array([[0, 0, 9.81]]) + origins @ swing.T),
            np.einsum("pba,bc,pcd->pad", turns, swing, turns).reshape(5, 9),
        ],
        axis=1,
    )
    force = -np.sum(inertia * amounts[layout.part_of_freedom], axis=1)
    last = int(np.flatnonzero(part == 4)[-1])
    force += row([(last, np.array([0, 0, -1e5]), zero)])
    b = np.array(rows)
    scale = np.abs(k).max()
    whole = np.block([[k, scale * b.T], [scale * b, np.zeros((len(b), len(b)))]])
    u = scipy.linalg.solve(whole, np.append(force, np.zeros(len(b))), assume_a="sym")[:n]
    moved = np.append(u, 0.0)[layout.dof[:count]]
    matrices, axes = local
    pull = np.einsum("mij,mj->mi", matrices, moved[ends].reshape(-1, 12))
    np.abs(np.einsum("mba,mkb->mka", axes, pull.reshape(-1, 4, 3))).max()
    stretch, spring = stretches["luffing rope"]
    return float(spring * stretch @ u)


def main() -> list[Row]:
    """All variants and positions, ours against the loop."""
    draw = np.random.default_rng(0)
    variants = np.stack(
        [
            draw.uniform(40.0, 56.0, VARIANTS),
            draw.uniform(29.7, 30.2, VARIANTS),
            draw.uniform(0.015, 0.03, VARIANTS),
        ],
        axis=1,
    )
    program = jax.jit(lambda x: jax.lax.map(variant, x, batch_size=CHUNK))
    start = time.perf_counter()
    compiled = program.lower(jnp.asarray(variants)).compile()
    compile_s = time.perf_counter() - start
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        force, _, fine = jax.block_until_ready(compiled(jnp.asarray(variants)))
        seconds.append(time.perf_counter() - start)
    loop, forces = numpy_loop(variants[:1], LOOPS)
    both = np.asarray(fine[0, :LOOPS])
    error = np.max(np.abs(np.asarray(force[0, :LOOPS]) / forces - 1), where=both, initial=0.0)
    return [
        Row(
            f"{VARIANTS} variants x {POSITIONS} positions",
            min(seconds),
            compile_s,
            peer="NumPy and SciPy",
            peer_run_s=loop * VARIANTS * POSITIONS,
            target=TARGET,
            answer=f"{float(jnp.mean(fine)):.1%} in equilibrium, ropes agree to {error:.0e}",
            note=NOTE.format(loops=LOOPS),
        )
    ]
