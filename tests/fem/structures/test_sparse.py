"""Sparse matrices against dense ones, and structures that only the former can solve."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from experiments.benchmarks import numpy_frames
from experiments.benchmarks.large_frame import numpy_tower, tower
from jaxgrip.fem import direct
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.models import reference_crane
from tests.fem.structures.models import (
    BOX,
    STEEL,
    chain,
    check_derivatives,
    crane_poses,
    crane_structure,
    two_frames,
)

js = jg.fem.structures
J = jg.joints
SLENDER = pytest.mark.filterwarnings("ignore:The linear displacements are off:UserWarning")
BOTH_TIPS = {"lower.tip": "all", "upper.tip": "all"}
ONE_TIP = {"upper.tip": "all", "lower.pin": ("y",)}


@pytest.fixture
def sparse(monkeypatch):
    """Function that has everything solved with sparse matrices."""
    return lambda: monkeypatch.setattr("jaxgrip.fem.structures._linear.LARGE", 0)


def mixed():
    """Beams of both theories, released ends, bars, springs, ropes, rigid links, point masses."""
    nodes = [[0, 0, 0], [0, 0, 3.0], [4, 0, 3], [4, 0, 0], [2, 0.5, 3.4], [2, 0, 5], [4, 1, 3]]
    pinned = ("My", "Mz")
    groups = [
        js.Beams([(0, 1), (2, 3)], BOX, released=((), pinned)),
        js.Beams([(1, 4), (4, 2)], BOX, jg.fem.Timoshenko()),
        js.Bars([(4, 5)], js.Bar(STEEL, 1e-3)),
        js.Bars([(1, 5), (2, 5)], js.Rope(1e6, 3.0)),
        js.Bars([(0, 4)], js.Spring(3e5)),
        js.RigidLinks([(2, 6)]),
        js.PointMasses([5, 6], 40.0),
    ]
    named = {"left": (0,), "right": (3,), "top": (5,), "arm": (6,)}
    frame = js.FramePart(nodes, groups, named)
    system = jg.mechanism.System(
        [frame.part("f", (1.0, 2.0, 0.0), (0.8, 0.0, 0.6, 0.0))],
        [],
        {"anchor": [[-4.0, 3.0, 9.0]], "low": [[9.0, -3.0, 0.0]]},
    )
    structure = js.Structure(
        system,
        {"f": frame},
        ties={
            "guy": js.Tie(js.Rope(2e6, 1.0), "ground.anchor", "f.top"),
            "strut": js.Tie(js.Bar(STEEL, 2e-4), "ground.low", "f.arm"),
        },
        supports={"f.left": "all", "f.right": "all", "f.top": ("y",)},
    )
    return structure, jg.mechanism.start(system)


def cases():
    weight = js.Inertia(rate=0.3, acceleration=0.2, origin=(1.0, 0.0, 0.0))
    both = (js.NodalForce(("upper", 3), (1e3, 2e3, -1e4), (200.0, 0.0, 50.0)), weight)
    yield "mixed", *mixed(), (js.NodalForce("f.arm", (1e3, 500.0, -2e3), (0.0, 30.0, 0.0)), weight)
    yield "bent", *chain([[0, 0, 0], [1.0, 0, 0.2], [2, 1, 0]]), (weight,)
    joints = [
        ("Hinge", J.Hinge(), "pins", {"joint": "floating"}),
        ("Fixed", J.Fixed(), "three", {}),
        ("Guide", J.Guide(), "three", {}),
        ("Angle, locked", J.Angle(0.7), "pins", {"joint": "lock"}),
        ("Angle, sprung", J.Angle(0.7), "pins", {"joint": js.Spring(4e5)}),
    ]
    for name, joint, place, transfer in joints:
        # What is held twice has reactions of any size.
        held = ONE_TIP if place == "three" else BOTH_TIPS
        structure, poses = two_frames(joint, place, place, transfer=transfer, supports=held)
        yield name, structure, poses, both
    crane = crane_structure(reference_crane()), crane_poses(60, 0.3)
    yield "crane", *crane, (js.NodalForce("boom.tip", (1e3, 2e3, -1e5)), weight)


@pytest.mark.long
@SLENDER
@pytest.mark.parametrize(
    "name",
    [
        "mixed",
        "crane",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("bent", "Hinge", "Fixed", "Guide", "Angle, locked", "Angle, sprung")
        ),
    ],
)
def test_both_give_the_same(name, sparse):
    case = next(case for found, *case in cases() if found == name)
    dense = js.solve(*case)
    sparse()
    found = js.solve(*case)
    names = ("displacements", "beam_forces", "bar_forces", "multipliers", "spring_forces")
    for name in (*names, "coefficients", "tie_loads"):
        ours, theirs = np.asarray(getattr(found, name)), np.asarray(getattr(dense, name))
        scale = np.abs(theirs).max(initial=1e-300)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * scale, err_msg=name)
    assert np.array_equal(found.taut, dense.taut)
    assert 0.1 < found.margin / dense.margin < 100


@pytest.mark.long
def test_what_is_held_twice_has_one_deflection(sparse):
    """Of reactions that nothing decides, the smallest, by the scales of the equations."""
    structure, poses = two_frames(J.Fixed(), "three", "three", supports=BOTH_TIPS)
    load = js.NodalForce("lower.pin", (1e3, 2e3, -1e4))
    dense = js.solve(structure, poses, load)
    sparse()
    found = js.solve(structure, poses, load)
    for name, tolerance in (("displacements", 1e-9), ("beam_forces", 1e-9), ("multipliers", 1e-4)):
        ours, theirs = np.asarray(getattr(found, name)), np.asarray(getattr(dense, name))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.mark.long
def test_motions_without_force_are_named(sparse):
    """Those of a large structure, as for small ones."""
    structure, poses = tower(4, 12)
    loose = js.Structure(structure.system, structure.frames)
    found = js.zero_modes(loose, poses)
    assert found.count == 6
    assert all(text.startswith("Part 'tower' can ") for text in found.sentences)
    with pytest.raises(js.StructureError, match=r"can still move.*Part 'tower' can slide along"):
        js.solve(loose, poses, js.NodalForce("tower.top", (0.0, 0.0, 1.0)))

    frame = structure.frames["tower"]
    count = len(frame.nodes)
    arm = js.Bars([(count - 1, count)], js.Bar(STEEL, 1e-3))
    nodes = np.concatenate([frame.nodes, np.asarray(frame.nodes)[-1:] + np.array([3.0, 0, 0])])
    feet = {"feet": dict(frame.attachments)["feet"]}
    frame = js.FramePart(nodes, [*frame.elements, arm], feet)
    system = jg.mechanism.System([frame.part("tower")], [])
    structure = js.Structure(system, {"tower": frame}, supports={"tower.feet": "all"})
    with pytest.raises(js.StructureError) as error:
        js.solve(structure, jg.mechanism.start(system), js.NodalForce(("tower", 0), (0, 0, 1.0)))
    assert str(error.value) == (
        "The structure can still move without any force. "
        f"Node {count} of part 'tower' can move by itself along (0, 1, 0) and (0, 0, 1)."
    )


def test_numbers_that_are_none_are_named():
    structure, poses = tower(4, 12)

    def young(s):
        return s.models[0].elements[0].section.material.E

    broken = eqx.tree_at(young, structure, jnp.array(jnp.nan))
    with pytest.raises(js.StructureError, match="beam between nodes 0 and 48 of part 'tower' has"):
        js.solve(broken, poses, js.NodalForce("tower.top", (0.0, 0.0, 1.0)))


@pytest.mark.long
def test_large_structures_are_condensed():
    structure, poses = tower(4, 9)
    load = [js.NodalForce("tower.top", (1e5, 3e4, -2e4)), js.Inertia()]
    small = js.condense(structure, load)
    assert linear.is_large(int((~small.kept).sum()))
    whole, parts = js.solve(structure, poses, load), js.solve(small, poses, load)
    for name in ("displacements", "beam_forces", "multipliers"):
        ours, theirs = np.asarray(getattr(parts, name)), np.asarray(getattr(whole, name))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())


def changed(s):
    beams = s.models[0].elements[0]
    return [beams.section.Iy, beams.section.material.E, s.models[0].nodes]


def bent(structure, poses, x):
    """Displacements of the top and what the feet carry, by stiffness, height and load."""
    iy, young, nodes = changed(structure)
    new = [iy * x[0], young * x[1], nodes.at[-1, 2].add(x[2])]
    load = js.NodalForce("tower.top", x[3] * jnp.array([1e5, 3e4, -2e4]))
    solution = js.solve(eqx.tree_at(changed, structure, new), poses, load, throw=False)
    wrench = solution.connection("tower.feet")
    return jnp.concatenate([1e3 * solution.displacements[-1], 1e-5 * wrench.moment])


AT = jnp.array([1.1, 0.9, 0.2, 1.0])


@pytest.mark.long
def test_derivatives_of_large_structures():
    structure, poses = tower(4, 12)
    assert linear.is_large(structure.degrees_of_freedom)
    check_derivatives(lambda x: bent(structure, poses, x), AT, 1e-7)


@pytest.mark.long
def test_batches_of_large_structures(sparse):
    structure, poses = tower(3, 3)
    many = jnp.outer(jnp.linspace(0.9, 1.1, 3), AT)
    dense = jax.vmap(lambda x: bent(structure, poses, x))(many)
    sparse()
    found = jax.vmap(lambda x: bent(structure, poses, x))(many)
    np.testing.assert_allclose(found, dense, rtol=1e-9, atol=1e-9)
    loads = jnp.asarray(np.stack([np.append(AT[:3], x) for x in (0.5, 1.0, 2.0)]))
    found = jax.vmap(lambda x: bent(structure, poses, x))(loads)
    one = bent(structure, poses, AT)
    np.testing.assert_allclose(found, jnp.outer(loads[:, 3], one), rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_large_structures_are_factorised_once(monkeypatch):
    structure, poses = tower(4, 12)
    calls = []
    plain = direct.factorise
    monkeypatch.setattr(direct, "factorise", lambda x: calls.append(1) or plain(x))
    jax.jacrev(lambda x: bent(structure, poses, x))(1.01 * AT)
    assert len(calls) == 1


def test_a_large_structure_that_moves_has_no_numbers():
    """Within `jit` nothing is raised."""
    structure, poses = tower(4, 12)
    loose = js.Structure(structure.system, structure.frames)
    found = js.solve(loose, poses, js.NodalForce("tower.top", (0.0, 0.0, 1.0)), throw=False)
    assert found.result == js.RESULTS.singular
    assert np.isnan(found.displacements).all()


def test_large_frames_against_another_program():
    """Euler-Bernoulli beams of NumPy, solved by SciPy."""
    structure, poses = tower(4, 12)
    peer = numpy_tower(structure)
    gravity, force = np.array([0.5, 0.0, -9.81]), np.array([1e5, 3e4, -2e4])
    still = np.zeros((1, 3)), np.eye(3)[None]
    expected = numpy_frames.solve(peer, *still, gravity, -1, force)
    load = [js.NodalForce("tower.top", force), js.Inertia(gravity)]
    found = js.solve(structure, poses, load).displacements
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
