import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.models.crane import reference_crane
from tests.structures.models import STEEL, chain, check_derivatives, crane_poses, crane_structure

js = jg.structures
J = jg.joints
# Nearly without stretch, as the closed forms have it.
SLENDER = jg.fem.BeamSection(STEEL, A=10.0, Iy=1e-5, Iz=2e-5, J=1e-5, orientation=(0, 1.0, 0))
EI = 210e9 * 1e-5
LENGTH = 3.0


def cantilever(n=24):
    nodes = np.zeros((n + 1, 3))
    nodes[:, 0] = np.linspace(0, LENGTH, n + 1)
    return chain(nodes, turned=False, section=SLENDER)


def test_euler_buckling():
    structure, poses = cantilever()
    found = js.buckling(structure, poses, js.NodalForce("part.tip", (-1.0, 0, 0)), count=3)
    euler = np.pi**2 * EI / 4 / LENGTH**2
    np.testing.assert_allclose(found.factors, [euler, 2 * euler, 9 * euler], rtol=2e-5)
    np.testing.assert_allclose(found.factors[:2], [euler, 2 * euler], rtol=1e-6)
    pulled = js.buckling(structure, poses, js.NodalForce("part.tip", (1.0, 0, 0)), count=3)
    assert np.isinf(pulled.factors).all()


def test_buckling_of_two_cantilevers_that_meet_in_a_ball():
    """Tip stiffnesses P k / (tan k l - k l) of both are negative at once: cos k l = 0."""
    n, half = 6, LENGTH / 2
    nodes = np.zeros((n + 1, 3))
    nodes[:, 0] = np.linspace(0, half, n + 1)
    beams = js.Beams([(k, k + 1) for k in range(n)], SLENDER)
    frame = js.FramePart(nodes, [beams], {"a": (0,), "b": (n,)})
    parts = [frame.part("lower"), frame.part("upper", position=(half, 0, 0))]
    joint = jg.assembly.Connection("middle", J.Ball(), "lower.b", "upper.a")
    structure = js.Structure(
        jg.assembly.System(parts, [joint]),
        {"lower": frame, "upper": frame},
        supports={"lower.a": "all", "upper.b": ("y", "z", "rx", "ry", "rz")},
    )
    poses = jg.assembly.start(structure.system)
    found = js.buckling(structure, poses, js.NodalForce("upper.b", (-1.0, 0, 0)))
    np.testing.assert_allclose(found.factors[0], EI * (np.pi / 2 / half) ** 2, rtol=1e-5)


def test_deflected_cantilever_is_the_closed_form():
    structure, poses = cantilever()
    force, push = 100.0, 0.6 * np.pi**2 * EI / 4 / LENGTH**2
    k = np.sqrt(push / EI)
    solution = js.second_order(structure, poses, js.NodalForce("part.tip", (-push, 0, force)))
    part = solution.part("part")
    sway = force / push * (np.tan(k * LENGTH) / k - LENGTH)
    np.testing.assert_allclose(part.displacements[-1, 2], sway, rtol=1e-6)
    moment = force * np.tan(k * LENGTH) / k
    np.testing.assert_allclose(np.abs(part.beam_forces[0, 0, 4]), moment, rtol=1e-6)
    with pytest.raises(js.StructureError, match="beyond buckling"):
        js.second_order(structure, poses, js.NodalForce("part.tip", (-2 * push, 0, force)))


def test_string_hardens():
    """A rope in two halves under tension T resists a push across by 4 T / L."""
    nodes = [[0, 0, 0], [1.0, 0, 0], [2.0, 0, 0]]
    bars = js.Bars([(0, 1), (1, 2)], js.Bar(STEEL, 1.0))
    frame = js.FramePart(nodes, [bars], {"root": (0,), "middle": (1,), "tip": (2,)})
    supports = {"rope.root": "pinned", "rope.tip": ("y", "z"), "rope.middle": ("z",)}
    # A soft spring holds the middle while there is no tension yet.
    ground = {"aside": [[1.0, 5.0, 0]]}
    system = jg.assembly.System([frame.part("rope")], [], ground)
    structure = js.Structure(
        system,
        {"rope": frame},
        supports=supports,
        ties={"soft": js.Tie(js.Spring(1.0), "ground.aside", "rope.middle")},
    )
    poses = jg.assembly.start(system)
    loads = [js.NodalForce("rope.tip", (1e4, 0, 0)), js.NodalForce("rope.middle", (0, 1.0, 0))]
    solution = js.second_order(structure, poses, loads)
    moved = solution.part("rope").displacements[1, 1]
    np.testing.assert_allclose(moved, 1 / (1e4 / 1.0 * 2 + 1.0), rtol=1e-4)


@pytest.mark.long
def test_stability_has_derivatives():
    structure, poses = cantilever(2)

    def changed(s):
        frame = s.frames["part"]
        return [frame.nodes, frame.elements[0].section.Iy, frame.elements[0].section.material.E]

    def results(x):
        nodes, iy, young = changed(structure)
        other = eqx.tree_at(changed, structure, [nodes * x[0], iy * x[1], young * x[2]])
        load = js.NodalForce("part.tip", x[3] * jnp.array([-2e5, 0, 1e5]))
        buckles = js.buckling(other, poses, load, throw=False).factors
        bent = js.second_order(other, poses, load, throw=False)
        return jnp.concatenate([buckles, 10 * bent.displacements[-1, 2:3]])

    check_derivatives(results, jnp.array([1.1, 0.9, 1.05, 1.0]), 1e-8)


def test_crane_under_a_small_load():
    """Under a small load the deflected crane is the linear one."""
    structure, poses = crane_structure(reference_crane()), crane_poses(60, 0.3)
    small = (js.NodalForce("boom.tip", (0, 1e-6, -1e-3)),)
    linear, second = (f(structure, poses, small) for f in (js.solve, js.second_order))
    scale = np.abs(linear.displacements).max()
    np.testing.assert_allclose(second.displacements, linear.displacements, atol=1e-5 * scale)
