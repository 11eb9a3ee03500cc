import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.models.crane import reference_crane
from tests.structures.models import (
    BOX,
    chain,
    check_derivatives,
    crane_poses,
    crane_structure,
    frame_between_pins,
    two_frames,
)

js = jg.structures
J = jg.joints
# Rope length, then the forces of rope, rods, boom, mast [kN] under 100 kN: 002 section 5.3.
FORCES = {
    30: (163.560354, 491.372295, -188.751539, -557.977913),
    45: (120.463671, 398.423329, -168.237577, -425.268517),
    60: (79.954028, 279.883469, -148.993618, -280.599043),
    75: (40.816172, 143.844437, -128.153427, -133.974917),
}
A_FRAME = {45: (-571.994239, 894.555577), 60: (-401.813147, 628.405264)}
ROPES = {30: 57.603284965, 45: 50.571567121, 60: 42.930175867, 75: 34.9768366}


def close(a, b, tolerance=1e-12):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(np.abs(b).max(), 1e-300))


def total(reactions):
    """Sum of forces and of moments about the origin."""
    force = sum(np.asarray(w.force) for w in reactions.values())
    return force, sum(
        np.asarray(w.moment) + np.cross(np.asarray(w.place), np.asarray(w.force))
        for w in reactions.values()
    )


@pytest.mark.parametrize(
    ("joint", "attachment", "transfer", "count"),
    [
        (None, "pins", {}, 12),
        (J.Hinge(), "pins", {}, 7),
        (J.Hinge(), "pins", {"joint": "floating"}, 7),
        (J.Fixed(), "three", {}, 6),
        (J.Ball(), "pin", {}, 9),
        (J.Sleeve(), "pins", {}, 8),
        (J.Guide(), "three", {}, 7),
        (J.Angle(0.7), "pins", {"joint": "lock"}, 11),
    ],
)
def test_motions_without_force_are_those_of_the_joints(joint, attachment, transfer, count):
    structure, poses = two_frames(joint, attachment, attachment, transfer=transfer)
    modes = js.zero_modes(structure, poses)
    assert modes.count == count
    assert len(modes.sentences) == count


def test_cantilever_at_a_slant():
    length, force = 3.0, 700.0
    structure, poses = chain([[0, 0, 0], [1.0, 0, 0], [length, 0, 0]])
    turn = np.asarray(poses.rotation[0])
    solution = js.solve(structure, poses, js.NodalForce("part.tip", turn @ [0, 0, force]))
    bent = np.asarray(solution.part("part").displacements[-1]) @ turn
    # The section's y axis is the part of (0.3, 1, 0.2) across x.
    y = np.array([0, 1.0, 0.2]) / np.sqrt(1.04)
    z = np.array([0, -0.2, 1.0]) / np.sqrt(1.04)
    e = 210e9 * np.array([BOX.Iy, BOX.Iz])
    f = np.array([0, 0, force])
    expected = length**3 / 3 * (y * (f @ y) / e[1] + z * (f @ z) / e[0])
    close(bent, expected, 1e-10)


def test_moment_and_stress_under_own_weight():
    length = 4.0
    structure, poses = chain([[0, 0, 0], [length, 0, 0]], reach=(0.1, 0.2), turned=False)
    solution = js.solve(structure, poses, js.Inertia((0, 0, -9.81)))
    result = solution.part("part")
    weight = 7850.0 * 0.02 * 9.81
    moment = np.linalg.norm(result.beam_forces[0, 0, 4:])
    np.testing.assert_allclose(moment, weight * length**2 / 2, rtol=1e-12)
    assert np.abs(result.beam_forces[0, 1]).max() < 1e-9 * moment
    my, mz = np.abs(result.beam_forces[0, 0, 4:])
    bent = my * 0.2 / float(BOX.Iy) + mz * 0.1 / float(BOX.Iz)
    np.testing.assert_allclose(result.beam_stresses[0, 0], [-bent, bent], rtol=1e-9)


def loads(boom, mast=(0.0, 0, 0), moment=(0.0, 0, 0), **inertia):
    """Loads of one structure, so that the crane is compiled once."""
    inertia = {"gravity": (0.0, 0, 0)} | inertia
    pull = js.NodalForce("mast.tip", mast, moment)
    return js.NodalForce("boom.tip", boom), pull, js.Inertia(**inertia)


BOOM, MAST, MOMENT = (1e3, 2e3, -1e5), (0.0, 1e3, 0.0), (3e3, 2e3, 1e3)
DOWN = (0.0, 0.0, -9.81)


@pytest.mark.parametrize("boom", FORCES)
def test_crane_bar_forces(boom):
    system = reference_crane(rope=ROPES[boom])
    structure, poses = crane_structure(system), crane_poses(boom, 0.3)
    solution = js.solve(structure, poses, loads((0, 0, -1e5)))
    found = [solution.tie("luffing rope"), solution.part("rods").beam_forces[0, 0, 0]]
    found += [solution.part(name).beam_forces[2, 0, 0] for name in ("boom", "mast")]
    np.testing.assert_allclose(np.array(found) / 1e3, FORCES[boom], rtol=0, atol=6e-7)
    if boom in A_FRAME:
        found = [solution.part("a-frame").beam_forces[2, 0, 0], solution.tie("pull-down")]
        np.testing.assert_allclose(np.array(found) / 1e3, A_FRAME[boom], rtol=0, atol=6e-7)


def test_reactions_balance_the_loads_and_work_is_energy():
    structure, poses = crane_structure(reference_crane()), crane_poses(60, 0.3)
    solution = js.solve(
        structure, poses, loads(BOOM, MAST, MOMENT, gravity=DOWN, rate=0.2, acceleration=0.05)
    )
    force, moment = total(solution.reactions())
    mass, centre = (np.asarray(x) for x in js.centre_of_gravity(structure, poses))
    places = np.asarray(structure.places(poses))
    tip, mast = (places[structure.node(p)] for p in ("boom.tip", "mast.tip"))
    # Weight and centrifugal force of all mass act at the centre; the couple of slewing does not.
    turn = np.array([[0, -0.05, 0], [0.05, 0, 0], [0, 0, 0]]) - np.diag([0.04, 0.04, 0])
    own = -mass * (np.array([0, 0, 9.81]) + turn @ centre)
    applied = np.array([[1e3, 2e3, -1e5], [0, 1e3, 0]])
    close(force, -applied.sum(0) - own, 1e-9)
    gravity = js.solve(structure, poses, loads(BOOM, MAST, MOMENT, gravity=DOWN))
    _, moment = total(gravity.reactions())
    expected = np.cross(tip, applied[0]) + np.cross(mast, applied[1]) + [3e3, 2e3, 1e3]
    expected = expected + np.cross(centre, [0, 0, -9.81 * mass])
    close(moment, -expected, 1e-9)


def test_work_is_twice_the_energy():
    structure, poses = two_frames(J.Hinge(), supports={"lower.tip": "all", "upper.tip": "all"})
    load = js.NodalForce("lower.pin", (1e3, -2e3, 5e2))
    solution = js.solve(structure, poses, load)
    work = load.force @ solution.displacements[structure.node("lower.pin"), :3] / 2
    group = js.model.elements(structure).groups[0]
    turn = structure.rotations(poses)[group.ends[:, 0]]
    u = solution.displacements[group.ends].reshape(-1, 4, 3)
    u = jnp.einsum("mba,mkb->mka", turn, u).reshape(-1, 12)
    stiffness = js.model.beam_matrices(group).stiffness
    energy = jnp.einsum("mi,mij,mj->", u, stiffness, u) / 2
    np.testing.assert_allclose(work, energy, rtol=1e-10)


def test_turning_everything_leaves_element_forces():
    structure = crane_structure(reference_crane())
    under = loads((0, 0, -1e5), gravity=DOWN)
    results = [js.solve(structure, crane_poses(60, slew), under) for slew in (0.0, 1.1)]
    close(results[0].beam_forces, results[1].beam_forces, 1e-9)
    close(results[0].spring_forces, results[1].spring_forces, 1e-9)


def test_superelements_give_the_whole_solution():
    structure, poses = crane_structure(reference_crane()), crane_poses(60, 0.3)
    plane = loads((0, 0, -1e5))
    whole, parts = (js.solve(x, poses, plane) for x in (structure, js.condense(structure, plane)))
    for name in ("displacements", "beam_forces", "spring_forces"):
        close(getattr(parts, name), getattr(whole, name), 1e-10)
    structure, poses = two_frames(J.Hinge(), supports={"lower.tip": "all", "upper.tip": "all"})
    under = (js.NodalForce(("upper", 3), (1e3, 2e3, -1e5)), js.Inertia(rate=1.0))
    whole, parts = (js.solve(x, poses, under) for x in (structure, js.condense(structure, under)))
    for name in ("displacements", "beam_forces", "multipliers"):
        close(getattr(parts, name), getattr(whole, name), 1e-10)
    with pytest.raises(ValueError, match=r"'upper', 3\).*condensed"):
        js.solve(js.condense(structure), poses, under)


def test_three_hinged_arch():
    """Span 2 a, rise h, weight F at the crown: thrust F a / 2 h at either foot."""
    a, h, force = 4.0, 3.0, 1e4

    def half(side):
        nodes = [[side * a, -1, 0], [side * a, 1, 0], [0, -1, h], [0, 1, h]]
        beams = js.Beams([(0, 2), (1, 3), (0, 3), (2, 1)], BOX)
        return js.FramePart(nodes, [beams], {"foot": (0, 1), "crown": (2, 3)})

    frames = {"left": half(-1.0), "right": half(1.0)}
    system = jg.assembly.System(
        [frame.part(name) for name, frame in frames.items()],
        [
            jg.assembly.Connection("foot left", J.Hinge(), "ground.left", "left.foot"),
            jg.assembly.Connection("foot right", J.Hinge(), "ground.right", "right.foot"),
            jg.assembly.Connection("crown", J.Hinge(), "left.crown", "right.crown"),
        ],
        {
            "left": [[-a, -1, 0], [-a, 1, 0]],
            "right": [[a, -1, 0], [a, 1, 0]],
        },
    )
    structure = js.Structure(system, frames)
    poses = jg.assembly.start(system)
    halves = [js.NodalForce(("left", k), (0, 0, -force / 2)) for k in (2, 3)]
    reactions = js.solve(structure, poses, halves).reactions()
    thrust = force * a / 2 / h
    # Across the arch it is not determinate by statics.
    close(reactions["foot left"].force[::2], [thrust, force / 2], 1e-9)
    close(reactions["foot right"].force[::2], [-thrust, force / 2], 1e-9)


def test_released_beam_is_a_beam_on_two_supports():
    length = 4.0
    ends = {"released": (("My", "Mz", "Mx"), ("My", "Mz"))}
    structure, poses = chain(
        [[0, 0, 0], [length, 0, 0]], held=("root", "tip"), turned=False, **ends
    )
    result = js.solve(structure, poses, js.Inertia()).part("part")
    assert np.abs(result.beam_forces[0, :, 3:]).max() < 1e-9
    shear = np.linalg.norm(result.beam_forces[0, 0, 1:3])
    np.testing.assert_allclose(shear, 7850.0 * 0.02 * 9.81 * length / 2, rtol=1e-12)


def roped(force):
    """A mast on a ball, held by three ropes; one more rope within the part."""
    nodes = [[0, 0, 0], [0, 0, 4.0]]
    frame = js.FramePart(nodes, [js.Beams([(0, 1)], BOX)], {"foot": (0,), "top": (1,)})
    ground = {"foot": [[0, 0, 0]], "a": [[3, 0, 0]], "b": [[-2, 2, 0]], "c": [[-2, -2, 0]]}
    system = jg.assembly.System(
        [frame.part("mast")],
        [jg.assembly.Connection("foot", J.Ball(), "ground.foot", "mast.foot")],
        ground,
    )
    ties = {k: js.Tie(js.Rope(1e6), f"ground.{k}", "mast.top") for k in "abc"}
    supports = {"mast.top": ("y", "rz")}
    structure = js.Structure(system, {"mast": frame}, ties=ties, supports=supports)
    poses = jg.assembly.start(system)
    return js.solve(structure, poses, js.NodalForce("mast.top", force)), structure


def test_ropes_go_slack():
    """Pulled towards +x, ropes b and c hold by symmetry and a is slack."""
    solution, _ = roped((900.0, 0.0, 0.0))
    each = 900.0 / 2 / (2 / np.sqrt(24.0))
    found = [solution.tie(k) for k in "abc"]
    np.testing.assert_allclose(found, [0.0, each, each], rtol=1e-10, atol=1e-9)
    solution, _ = roped((-900.0, 0.0, 0.0))
    np.testing.assert_allclose(solution.tie("a"), 900.0 * 5 / 3, rtol=1e-10)


def test_derivatives_agree_with_central_differences():
    structure, poses = crane_structure(reference_crane()), crane_poses(60, 0.3)

    def changed(s):
        boom = s.frames["boom"]
        section = boom.elements[0].section
        rope = s.transfer["luffing rope"]
        return [boom.nodes, section.Iz, section.material.E, section.material.rho, rope.EA]

    def results(x):
        nodes, iz, young, rho, rope = changed(structure)
        new = [nodes.at[3, 2].add(0.1 * x[0]), iz * x[1], young * x[2], rho * x[3], rope * x[4]]
        moved = poses._replace(position=poses.position.at[5, 0].add(1e-3 * x[0]))
        under = loads(x[5] * jnp.array([0.0, 1e3, -1e5]), gravity=DOWN)
        solution = js.solve(eqx.tree_at(changed, structure, new), moved, under, throw=False)
        bent = solution.part("boom").beam_forces[2, 0, 4:]
        return jnp.concatenate(
            [1e-5 * solution.spring_forces, 1e-4 * bent, solution.displacements[-1, :3]]
        )

    check_derivatives(results, jnp.array([0.1, 1.1, 0.9, 1.2, 0.8, 1.0]), 1e-8)


def test_numbers_do_not_compile_anew():
    supports = {"lower.tip": "all", "upper.tip": "all"}
    structure, poses = two_frames(J.Hinge(), supports=supports)
    other = jax.tree.map(lambda x: 1.01 * x, structure)
    before = js.solve(structure, poses, js.Inertia())
    count = js.analysis.solve_linear._cached._cache_size()
    after = js.solve(other, poses, js.Inertia((0.0, 0.0, -3.0)), throw=False)
    assert js.analysis.solve_linear._cached._cache_size() == count
    assert not np.allclose(before.displacements, after.displacements)


def test_sentences():
    frame = frame_between_pins()
    part = jg.assembly.Part("boom", {"foot": [[0, -1, 0], [0, 1, 0.01]]})
    system = jg.assembly.System(
        [part],
        [jg.assembly.Connection("hinge", J.Hinge(), "ground.foot", "boom.foot")],
        {"foot": [[0, -1, 0], [0, 1, 0]]},
    )
    bare = js.FramePart(frame.nodes, frame.elements)
    with pytest.raises(
        ValueError, match=r"'hinge': point 1 of attachment 'boom.foot'.*0.01 m away"
    ):
        js.Structure(system, {"boom": bare})
    with pytest.raises(ValueError, match="'boom' has no finite-element model"):
        js.Structure(system, {})
    with pytest.raises(ValueError, match="Node 3 belongs to no element"):
        js.FramePart(frame.nodes, [js.Beams([(0, 1), (1, 2)], BOX)])
    with pytest.raises(ValueError, match="there are nodes 0 to 3"):
        js.FramePart(frame.nodes, [js.Beams([(0, 7)], BOX)])
    with pytest.raises(ValueError, match="could move by themselves"):
        js.Beams([(0, 1)], BOX, released=(("Mx",), ("Mx",)))
    structure, poses = two_frames(J.Hinge(), supports={"lower.tip": "all"})
    with pytest.raises(js.StructureError, match=r"'upper' can turn about the axis") as error:
        js.solve(structure, poses, js.Inertia())
    assert "'lower'" not in str(error.value)
    apart = poses._replace(position=poses.position + jnp.array([[0.0, 0, 0], [0.01, 0, 0]]))
    with pytest.raises(ValueError, match=r"'joint' joins node 0 of part 'lower'.*0.01 m apart"):
        js.solve(structure, apart, js.Inertia())
    with pytest.raises(ValueError, match="transfer of a hinge is 'lock'"):
        two_frames(J.Hinge(), transfer={"joint": "lock"})
