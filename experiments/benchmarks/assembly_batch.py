"""Many positions of a crane assembled, and many variants assembled and solved, against NumPy."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxgrip as jg
from experiments.benchmarks import numpy_assembly, numpy_frames
from experiments.benchmarks.table import Row, timed
from experiments.crane import luffing, variants
from jaxgrip.fem.structures import Beams, solve
from jaxgrip.models import crane

POSITIONS = 5000
VARIANTS, ANGLES = 500, 50
PEER_POSITIONS, PEER_CASES = 200, 200
NOTE = (
    f"{POSITIONS} positions of the crane, 36 equations each, from one start; NumPy's Newton "
    "iterations have hand-written derivatives and all joints stacked; measured on "
    f"{PEER_POSITIONS}. The answer is the sum of the boom angles over the peer's positions."
)
STRUCTURE_NOTE = (
    f"{VARIANTS} cranes in {ANGLES} positions, each assembled and solved with 342 degrees of "
    "freedom under weight and a hook load. Ours condenses each variant's parts once. NumPy and "
    "SciPy assemble the same equations, build the stiffness of all beams at once and solve it "
    f"sparsely (SuperLU), position by position; measured on {PEER_CASES}. The answer is the sum of "
    "the boom tips' deflections over the peer's cases."
)


def main(peer_python: str) -> list[Row]:
    """Two rows; the peers need no interpreter of their own."""
    return [positions(), structures()]


def positions() -> Row:
    """Assembly alone."""
    system = jg.models.reference_crane()
    base = jg.mechanism.assemble(system)
    ropes = jnp.linspace(*luffing.RANGE, POSITIONS)

    @jax.jit
    def many(ropes: jax.Array) -> jax.Array:
        return jax.vmap(lambda r: luffing.boom_angle(system, {"luffing rope": r}, base.poses))(
            ropes
        )

    first, run = timed(lambda: many(ropes))
    some = np.linspace(0, POSITIONS - 1, PEER_POSITIONS).round().astype(int)
    peer = numpy_assembly.prepare(system)
    drive = system.connection("luffing rope")
    start = np.asarray(base.poses.position), np.asarray(base.poses.rotation)
    began, angles = time.perf_counter(), []
    for r in np.asarray(ropes)[some]:
        drives = peer.drives.copy()
        drives[drive] = r
        _, rotation, _ = numpy_assembly.assemble(peer, drives, *start)
        angles.append(np.arctan2(rotation[5, 2, 0], rotation[5, 0, 0]))
    seconds = (time.perf_counter() - began) * POSITIONS / PEER_POSITIONS
    return Row(
        f"{POSITIONS} positions of a crane",
        run,
        first - run,
        peer="NumPy",
        peer_run_s=seconds,
        answer=f"{float(many(ropes)[some].sum()):.9f} rad",
        peer_answer=f"{np.sum(angles):.9f} rad",
        note=NOTE,
    )


def structures() -> Row:
    """Assembly and finite elements of equipment variants."""
    every = variants.catalogue(np.linspace(36.0, 60.0, VARIANTS // 25), np.linspace(24.0, 33.0, 25))
    angles = jnp.deg2rad(jnp.linspace(30.0, 75.0, ANGLES))
    start = jg.mechanism.assemble(jg.models.reference_crane()).poses

    def one(variant: variants.Variant) -> jax.Array:
        parts = variants.superelements(variant)

        def at(angle: jax.Array) -> jax.Array:
            here = variants.assembled(variant, angle, start)
            found = solve(parts, here.poses, variants.LOADS, throw=False)
            good = here.succeeded & found.succeeded
            tip = parts.structure.node("boom.tip")
            return jnp.where(good, found.displacements[tip, 2], jnp.nan)

        return jax.vmap(at)(angles)

    many = jax.jit(lambda every: jax.lax.map(one, every))
    first, run = timed(lambda: many(every), repeats=1)
    ours = np.asarray(many(every))
    cases = np.random.default_rng(2004).integers((VARIANTS, ANGLES), size=(PEER_CASES, 2))
    prepared = {v: peer_of(jax.tree.map(lambda x, v=v: x[v], every)) for v in {*cases[:, 0]}}
    position, rotation = np.asarray(start.position), np.asarray(start.rotation)
    began, total = time.perf_counter(), 0.0
    for v, k in cases:
        joints, frame, tip, drive, ropes = prepared[v]
        drives = joints.drives.copy()
        drives[drive] = ropes(angles[k])
        x, turn, _ = numpy_assembly.assemble(joints, drives, position, rotation)
        u = numpy_frames.solve(
            frame,
            np.concatenate([x, np.zeros((1, 3))]),
            np.concatenate([turn, np.eye(3)[None]]),
            np.array([0.0, 0.0, -9.81]),
            tip,
            np.array([0.0, 0.0, -variants.HOOK]),
        )
        total += u[tip, 2]
    seconds = (time.perf_counter() - began) * VARIANTS * ANGLES / PEER_CASES
    return Row(
        f"{VARIANTS} cranes in {ANGLES} positions",
        run,
        first - run,
        peer="NumPy and SciPy",
        peer_run_s=seconds,
        answer=f"{ours[cases[:, 0], cases[:, 1]].sum():.9f} m",
        peer_answer=f"{total:.9f} m",
        note=STRUCTURE_NOTE,
        target=10.0,
    )


def peer_of(variant: variants.Variant) -> tuple:
    """Input of the peer for a variant, made before timing starts."""
    system = variants.crane(variant)
    structure = crane.crane_structure(system)
    names = ["a-frame", "rods", "mast", "boom"]
    nodes, part, ends, local, weight, first = [], [], [], [], [], {}
    count = 0
    for name in names:
        model = structure.frames[name]
        first[name] = count
        own = np.asarray(model.nodes)
        for group in model.elements:
            assert isinstance(group, Beams)
            s = group.section
            section = {key: float(getattr(s, key)) for key in ("A", "Iy", "Iz", "J")} | {
                "E": float(s.material.E),
                "G": float(s.material.lame[1]),
            }
            section["rho"] = float(s.material.rho)
            k, w = numpy_frames.beams(own, group.ends.array, section, np.asarray(s.orientation))
            ends.append(count + group.ends.array)
            local.append(k)
            weight.append(w)
        nodes.append(own)
        part += [system.part(name)] * len(own)
        count += len(own)
    anchor = np.add(crane.SUPERSTRUCTURE, crane.COUNTERWEIGHT_PLACE)
    nodes.append(anchor[None])
    part.append(len(system.parts))
    freedoms = np.arange(6 * (count + 1)).reshape(-1, 6)
    freedoms[-1] = -1
    attached = {name: dict(structure.frames[name].attachments) for name in names}

    def at(name: str, attachment: str) -> np.ndarray:
        return first[name] + np.array(attached[name][attachment])

    for name in ("a-frame", "mast", "boom"):
        freedoms[at(name, "foot"), :3] = -1
    freedoms[at("rods", "a-frame end"), :3] = freedoms[at("a-frame", "tip"), :3]
    pins, tips = at("rods", "mast end"), at("mast", "tip")
    freedoms[pins[:, None], [0, 2]] = freedoms[tips[:, None], [0, 2]]
    held = np.unique(freedoms[freedoms >= 0])
    number = np.full(freedoms.max() + 2, -1)
    number[held] = np.arange(len(held))
    bars = np.array(
        [
            (at("mast", "rope")[0], at("boom", "tip")[0]),
            (at("a-frame", "tip")[0], count),
        ]
    )
    ropes = (crane.LUFFING_ROPE, crane.PULL_DOWN)
    frame = numpy_frames.Frame(
        np.array(part),
        np.concatenate(nodes),
        np.concatenate(ends),
        np.concatenate(local),
        np.concatenate(weight),
        number[freedoms],
        bars,
        np.array([rope["EA"] for rope in ropes]),
        np.array([rope["mass_per_length"] for rope in ropes]),
    )
    joints = numpy_assembly.prepare(system)
    boom, mast = float(variant.boom), float(variant.mast)
    foot, top = np.array([1.5, 2.5]), np.array([0.5 - mast / 2, 2.5 + mast * np.sqrt(0.75)])

    def length(angle: float) -> float:
        return np.hypot(*(foot + boom * np.array([np.cos(angle), np.sin(angle)]) - top))

    return joints, frame, at("boom", "tip")[0], system.connection("luffing rope"), length
