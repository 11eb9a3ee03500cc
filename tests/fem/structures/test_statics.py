import re
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.fem.structures import _analysis as analysis
from jaxgrip.fem.structures import _model as model
from jaxgrip.models import reference_crane
from tests.fem.structures.models import (
    BOX,
    STEEL,
    chain,
    check_derivatives,
    crane_poses,
    crane_structure,
    frame_between_pins,
    two_frames,
)

js = jg.fem.structures
J = jg.joints
# Rope length, then the forces of rope, rods, boom, mast [kN] under 100 kN: independent values by
# the equilibrium of pin joints.
FORCES = {
    30: (163.560354, 491.372295, -188.751539, -557.977913),
    45: (120.463671, 398.423329, -168.237577, -425.268517),
    60: (79.954028, 279.883469, -148.993618, -280.599043),
    75: (40.816172, 143.844437, -128.153427, -133.974917),
}
A_FRAME = {45: (-571.994239, 894.555577), 60: (-401.813147, 628.405264)}
ROPES = {30: 57.603284965, 45: 50.571567121, 60: 42.930175867, 75: 34.9768366}
# The forces are those of statics, however far the slender beams of the crane would deflect.
SLENDER = pytest.mark.filterwarnings("ignore:The linear displacements are off:UserWarning")


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


@pytest.mark.long
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


def test_signs_of_section_forces():
    """A cantilever under six loads at its tip, by equilibrium of what is beyond each section."""
    # The section's y axis is that of the ground, so z is, too.
    section = jg.fem.BeamSection(STEEL, A=0.02, Iy=3e-4, Iz=2e-4, J=4e-4, orientation=(0, 1, 0))
    structure, poses = chain([[0, 0, 0], [1.0, 0, 0], [3.0, 0, 0]], turned=False, section=section)
    force, moment = np.array([500.0, 70.0, -40.0]), np.array([11.0, -13.0, 17.0])
    load = js.NodalForce("part.tip", force, moment)
    sections = np.array([[0.0, 1.0], [1.0, 3.0]])
    arms = np.stack([3.0 - sections, 0 * sections, 0 * sections], axis=-1)
    expected = np.concatenate(
        [np.broadcast_to(force, arms.shape), moment + np.cross(arms, force)], axis=-1
    )
    found = js.solve(structure, poses, load).part("part")
    close(found.beam_forces, expected, 1e-9)
    # A load downwards stretches the upper fibres, at z > 0.
    downwards = js.solve(structure, poses, js.NodalForce("part.tip", (0, 0, -40.0))).part("part")
    assert downwards.beam_forces[0, 0, 4] > 0
    assert downwards.rotations[-1, 1] > 0


def loads(boom, mast=(0.0, 0, 0), moment=(0.0, 0, 0), **inertia):
    """Loads of one structure, so that the crane is compiled once."""
    inertia = {"gravity": (0.0, 0, 0)} | inertia
    pull = js.NodalForce("mast.tip", mast, moment)
    return js.NodalForce("boom.tip", boom), pull, js.Inertia(**inertia)


BOOM, MAST, MOMENT = (1e3, 2e3, -1e5), (0.0, 1e3, 0.0), (3e3, 2e3, 1e3)
DOWN = (0.0, 0.0, -9.81)


@SLENDER
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


@SLENDER
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
    group = model.elements(structure).groups[0]
    turn = np.asarray(structure.rotations(poses))[group.ends[:, 0]]
    u = np.asarray(solution.displacements)[group.ends].reshape(-1, 4, 3)
    u = np.einsum("mba,mkb->mka", turn, u).reshape(-1, 12)
    stiffness = jax.jit(model.beam_matrices)(group).stiffness
    energy = np.einsum("mi,mij,mj->", u, stiffness, u) / 2
    np.testing.assert_allclose(work, energy, rtol=1e-10)


@SLENDER
def test_turning_everything_leaves_element_forces():
    structure = crane_structure(reference_crane())
    under = loads((0, 0, -1e5), gravity=DOWN)
    results = [js.solve(structure, crane_poses(60, slew), under) for slew in (0.0, 1.1)]
    close(results[0].beam_forces, results[1].beam_forces, 1e-9)
    close(results[0].spring_forces, results[1].spring_forces, 1e-9)


@pytest.mark.long
@SLENDER
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
    system = jg.mechanism.System(
        [frame.part(name) for name, frame in frames.items()],
        [
            jg.mechanism.Connection("foot left", J.Hinge(), "ground.left", "left.foot"),
            jg.mechanism.Connection("foot right", J.Hinge(), "ground.right", "right.foot"),
            jg.mechanism.Connection("crown", J.Hinge(), "left.crown", "right.crown"),
        ],
        {
            "left": [[-a, -1, 0], [-a, 1, 0]],
            "right": [[a, -1, 0], [a, 1, 0]],
        },
    )
    structure = js.Structure(system, frames)
    poses = jg.mechanism.start(system)
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


HEIGHT, REACH, ROPE_MASS = 10.0, 7.3, 2.5


def guyed(turn):
    """A mast on a ball with four ropes to the ground, the first along x turned by an angle."""
    frame = js.FramePart([[0, 0, 0], [0, 0, HEIGHT]], js.Beams([(0, 1)], BOX), {"foot": (0,)})
    angles = turn + np.arange(4) * np.pi / 2
    feet = REACH * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    system = jg.mechanism.System(
        [frame.part("mast")],
        [jg.mechanism.Connection("ball", J.Ball(), "ground.foot", "mast.foot")],
        {"foot": [[0, 0, 0]]} | {f"g{k}": [foot] for k, foot in enumerate(feet)},
    )
    rope = js.Rope(1e7, ROPE_MASS)
    ties = {f"g{k}": js.Tie(rope, f"ground.g{k}", ("mast", 1)) for k in range(4)}
    supports = {"mast.foot": ("rz",)}
    return js.Structure(system, {"mast": frame}, ties=ties, supports=supports), system


@pytest.mark.parametrize("turn", [0.0, np.deg2rad(20), np.deg2rad(33)])
def test_ropes_go_slack(turn):
    """Pulled along a rope, whatever the rounding makes of the two beside; then lifted."""
    structure, system = guyed(turn)
    poses = jg.mechanism.start(system)
    length = np.hypot(HEIGHT, REACH)
    along = np.array([REACH * np.cos(turn), REACH * np.sin(turn), HEIGHT]) / length

    def pulled(force, gravity):
        loads = [js.NodalForce(("mast", 1), force), js.Inertia((0.0, 0.0, -gravity))]
        return js.solve(structure, poses, loads)

    found = pulled(1e4 * along, 0.0)
    close([found.tie(f"g{k}") for k in range(4)], [0.0, 0.0, 1e4, 0.0], 1e-9)
    lift = np.array([500.0, -300.0, 5e4])
    force, moment = total(pulled(lift, 9.81).reactions())
    mass, centre = (np.asarray(x) for x in js.centre_of_gravity(structure, poses))
    np.testing.assert_allclose(mass, 7850 * 0.02 * HEIGHT + 4 * ROPE_MASS * length, rtol=1e-12)
    np.testing.assert_allclose(centre, [0, 0, HEIGHT / 2], rtol=0, atol=1e-12)
    close(force, [0, 0, 9.81 * mass] - lift, 1e-9)
    close(moment, -np.cross([0, 0, HEIGHT], lift), 1e-8)


@pytest.mark.parametrize("excess", [-1e-13, 0.0, 1e-13])
def test_locked_rope_holds_whatever_the_rounding(excess):
    """An arm of 3 m between pins along y, held by a rope to a place 4 m above its hinge."""
    nodes = [[0, -1, 0], [0, 1, 0], [0, 0, 0], [3, 0, 0]]
    beams = js.Beams([(0, 2), (2, 1), (2, 3)], BOX)
    frame = js.FramePart(nodes, beams, {"pins": (0, 1), "tip": (3,)})
    system = jg.mechanism.System(
        [frame.part("arm")],
        [
            jg.mechanism.Connection("hinge", J.Hinge(), "ground.pins", "arm.pins"),
            jg.mechanism.Connection("rope", J.Rope(5.0 + excess), "ground.top", "arm.tip"),
        ],
        {"pins": nodes[:2], "top": [[0, 0, 4.0]]},
    )
    structure = js.Structure(system, {"arm": frame}, transfer={"rope": "lock"})
    load = js.NodalForce("arm.tip", (0.0, 0.0, -100.0))
    solution = js.solve(structure, jg.mechanism.start(system), load)
    close(solution.connection("rope").force, [-75.0, 0.0, 100.0], 1e-9)
    force, moment = total(solution.reactions())
    close(force, [0, 0, 100.0], 1e-9)
    close(moment, [0, -300.0, 0], 1e-9)


@pytest.mark.long
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
    count = analysis._solve_linear._cached._cache_size()
    after = js.solve(other, poses, js.Inertia((0.0, 0.0, -3.0)), throw=False)
    assert analysis._solve_linear._cached._cache_size() == count
    assert not np.allclose(before.displacements, after.displacements)


def sentences(nodes, elements, held):
    frame = js.FramePart(nodes, elements, {f"n{k}": (k,) for k in range(len(nodes))})
    system = jg.mechanism.System([frame.part("f")], [])
    supports = {f"f.n{k}": how for k, how in held.items()}
    structure = js.Structure(system, {"f": frame}, supports=supports)
    found = js.zero_modes(structure, jg.mechanism.start(system))
    return found, structure


@pytest.mark.long
def test_motions_within_parts_are_those_of_nodes():
    """A portal whose columns have hinges at both ends sways; a chain has one sentence."""
    corners = [[0, 0, 0], [0, 0, 3.0], [4, 0, 3], [4, 0, 0]]
    hinges = ("My", "Mz")
    columns = js.Beams([(0, 1), (2, 3)], BOX, released=(hinges, hinges))
    portal = [columns, js.Beams([(1, 2)], BOX)]
    found, _ = sentences(corners, portal, {0: "all", 3: "all"})
    assert set(found.sentences) == {
        "Nodes 1, 2 of part 'f' can move along (1, 0, 0).",
        "Nodes 1, 2 of part 'f' can move along (0, 1, 0).",
        "Nodes 1, 2 of part 'f' can rotate about (1, 0, 0).",
    }
    # A free one moves as a whole, too, and both are told apart.
    found, _ = sentences(corners, portal, {})
    whole = [text for text in found.sentences if text.startswith("Part 'f' can")]
    assert len(whole) == 6
    assert found.count == 14
    assert len(found.sentences) <= found.count

    x = np.zeros((11, 3))
    x[:, 0] = np.arange(11)
    chain_ = js.Bars([(k, k + 1) for k in range(10)], js.Bar(STEEL, 1e-3))
    found, structure = sentences(x, chain_, {0: "pinned", 10: "pinned"})
    assert found.count == 18
    assert found.sentences == (
        "Nodes 1 to 9 of part 'f' can each move by themselves along (0, 1, 0) and (0, 0, 1).",
    )
    with pytest.raises(js.StructureError) as error:
        js.solve(
            structure, jg.mechanism.start(structure.system), js.NodalForce(("f", 5), (0, 0, -1))
        )
    assert len(str(error.value)) < 200
    found, _ = sentences(x, chain_, {0: "pinned"})
    assert (
        sum(text.startswith("Part 'f' can rotate about the axis") for text in found.sentences) == 2
    )


def test_sentences():
    frame = frame_between_pins()
    part = jg.mechanism.Part("boom", {"foot": [[0, -1, 0], [0, 1, 0.01]]})
    system = jg.mechanism.System(
        [part],
        [jg.mechanism.Connection("hinge", J.Hinge(), "ground.foot", "boom.foot")],
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
    with pytest.raises(ValueError, match="are mechanisms; release fewer"):
        js.Beams([(0, 1)], BOX, released=(("Mx",), ("Mx",)))
    structure, poses = two_frames(J.Hinge(), supports={"lower.tip": "all"})
    with pytest.raises(js.StructureError, match=r"'upper' can rotate about the axis") as error:
        js.solve(structure, poses, js.Inertia())
    assert "'lower'" not in str(error.value)
    apart = poses._replace(position=poses.position + jnp.array([[0.0, 0, 0], [0.01, 0, 0]]))
    with pytest.raises(ValueError, match=r"'joint' joins node 0 of part 'lower'.*0.01 m apart"):
        js.solve(structure, apart, js.Inertia())
    with pytest.raises(ValueError, match="'upper': quaternion has norm 2, expected 1"):
        js.solve(structure, poses._replace(quaternion=poses.quaternion.at[1].mul(2.0)), [])
    with pytest.raises(ValueError, match=r"position of the poses .*\(2, 3\)"):
        js.solve(structure, jax.tree.map(lambda x: x[:1], poses), [])
    with pytest.raises(ValueError, match="gravity, which would count twice"):
        js.solve(structure, poses, [js.Inertia(), js.Inertia(rate=0.1)])


TRUSS = js.FramePart([[0, 0, 0], [0, 0, 1.0]], js.Bars([(0, 1)], js.Bar(STEEL, 1e-3)), {"a": (0,)})


def alone(frame=TRUSS, **options):
    system = jg.mechanism.System(
        [TRUSS.part("mast")], [jg.mechanism.Connection("hold", J.Clamp(), "mast")]
    )
    return js.Structure(system, {"mast": frame}, **options)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: two_frames(J.Hinge(), transfer={"joint": "lock"}),
            "of a hinge is 'lock'",
        ),
        (
            lambda: two_frames(J.Angle(0.7, "dot"), transfer={"joint": js.Spring(1.0)}),
            "'joint': the angle of a spring has the form 'dot'; it must be 'signed'",
        ),
        (
            lambda: alone(supports={"mast.a": ("x", "rx")}),
            "fixes rotations, but one of its nodes, of bars only",
        ),
        (lambda: alone(supports={"mast.a": ()}), "The support of 'mast.a' fixes ()"),
        (lambda: alone(supports={"mast.a": 5}), "The support of 'mast.a' fixes 5"),
        (lambda: alone(supports={"ground.a": "all"}), "no attachment of an elastic part"),
        (lambda: alone(ties={"guy": js.Rope(1e6)}), "The tie 'guy' is Rope"),
        (lambda: js.Tie("rope", "mast.a", "ground.b"), "The kind of a tie is 'rope'"),
        (lambda: js.Tie(js.Rope(1e6), None, "ground.b"), "A tie ends at None"),
        (lambda: alone(3), "The model of part 'mast' is 3"),
        (lambda: js.FramePart(TRUSS.nodes, TRUSS.elements, {"a": "x"}), "'a' has the nodes 'x'"),
        (lambda: js.FramePart(TRUSS.nodes, TRUSS.elements, {"a": 0.9}), "'a' has the nodes 0.9"),
        (lambda: js.PointMasses([1.7], 5.0), "point masses has the nodes"),
        (lambda: js.Beams([(0, 1)], BOX, released=(("My",),)), "for the first and for the second"),
        (lambda: js.NodalForce(("mast", 1.5), (0, 0, 1.0)), "has the nodes 1.5"),
        (lambda: js.NodalForce(None, (0, 0, 1.0)), "A force acts on None"),
        (lambda: js.NodalForce(("mast", "tip"), (0, 0, 1.0)), "has the nodes 'tip'"),
        (lambda: js.Inertia(axis=(0, 0, 0)), "slewing axis is (0, 0, 0)"),
        (lambda: js.NodalForce(("mast", [0, 1]), (0, 0, 1.0)), "A force acts on ('mast', [0, 1])"),
        (lambda: js.FramePart(TRUSS.nodes, None), "The elements of a frame part are None"),
        (lambda: js.FramePart(np.zeros((0, 3)), []), "have the shape (0, 3)"),
        (lambda: js.Beams([(0, 1), (1,)], BOX), "Beams have the ends"),
        (lambda: js.Beams([(0, 1)], BOX, released=None), "The releases of beams are None"),
        (lambda: js.Beams([(0, 1)], BOX, released=(None, ())), "releases of beams are (None, ())"),
        (lambda: alone(supports={"mast.a": [["x"]]}), "The support of 'mast.a' fixes [['x']]"),
    ],
)
def test_wrong_structures_get_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make()


# Types are checked by the tests themselves, so what a user meets is tried in a process without.
WRONG_TYPES = {
    "js.FramePart(part.nodes, part.elements, ['a'])": "The attachments are ['a']",
    "js.Bar('steel', 1e-3)": "The material of a bar is 'steel'",
    "js.Structure('crane', {'mast': part})": "The system of a structure is 'crane'",
    "js.Structure(system, [part])": "The frames are [FramePart",
    "js.Structure(system, {'mast': part}, supports=['mast.a'])": "The supports are ['mast.a']",
    "js.Structure(system, {'mast': part}, supports={('mast', 0): 'all'})": "The supports are {",
    "js.Structure(system, {'mast': part}, ties=[js.Rope(1.0)])": "The ties are [Rope",
    "js.Structure(system, {'mast': part}, transfer=['a'])": "The transfer is ['a']",
    "structure.node(3)": "The node is 3",
    "js.solve('crane', poses, [])": "The structure is a str",
    "js.solve(structure, None, [])": "Poses are a NoneType",
    "js.solve(structure, poses, 'weight')": "A load is 'weight'",
    "js.solve(structure, poses._replace(position=[[0, 0, 0]]), [])": "The poses are lists",
    "js.second_order(js.condense(structure), poses, [])": "The structure is a Condensed",
    "js.condense(None)": "The structure is a NoneType",
    "js.condense(structure, 'weight')": "A load is 'weight'",
    "js.zero_modes('crane', poses)": "The structure is a str",
    "js.zero_modes(structure, None)": "Poses are a NoneType",
    "js.zero_modes(structure, poses, np.ones(7, bool))": "taut has the shape (7,)",
    "js.centre_of_gravity(structure, None)": "Poses are a NoneType",
    "js.buckling(structure, poses, [], count=True)": "buckling factors is True",
    "js.equilibrium_path(structure, poses, [], points=1)": "The number of points is 1",
    "js.equilibrium_path(structure, poses, [], points=2.5)": "The number of points is 2.5",
    "js.equilibrium_path(structure, poses, [], step=0.0)": "step of a path is 0",
}
STRANGER = """
import numpy as np
import jaxgrip as jg
jg.enable_x64()
js = jg.fem.structures
steel = jg.fem.Isotropic(210e9, 0.3, 7850.0)
part = js.FramePart([[0, 0, 0], [0, 0, 1.0]], js.Bars([(0, 1)], js.Bar(steel, 1e-3)), {"a": (0,)})
system = jg.mechanism.System([part.part("mast")], [])
structure = js.Structure(system, {"mast": part}, supports={"mast.a": "pinned"})
poses = jg.mechanism.start(system)
for line in open(0):
    try:
        eval(line)
    except ValueError as error:
        print(str(error).replace(chr(10), " "))
    except Exception as error:
        print(type(error).__name__)
    else:
        print("accepted")
"""


def test_wrong_types_get_a_sentence():
    done = subprocess.run(
        [sys.executable, "-c", STRANGER],
        input="\n".join(WRONG_TYPES),
        capture_output=True,
        text=True,
        check=True,
    )
    for (line, sentence), found in zip(WRONG_TYPES.items(), done.stdout.splitlines(), strict=True):
        assert sentence in found, (line, found)
