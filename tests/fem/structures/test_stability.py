import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxgrip as jg
from tests.fem.structures.models import STEEL, chain, check_derivatives

js = jg.fem.structures
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


@pytest.mark.soak
def test_buckling_of_two_cantilevers_that_meet_in_a_ball():
    """Tip stiffnesses P k / (tan k l - k l) of both are negative at once: cos k l = 0."""
    n, half = 6, LENGTH / 2
    nodes = np.zeros((n + 1, 3))
    nodes[:, 0] = np.linspace(0, half, n + 1)
    beams = js.Beams([(k, k + 1) for k in range(n)], SLENDER)
    frame = js.FramePart(nodes, [beams], {"a": (0,), "b": (n,)})
    parts = [frame.part("lower"), frame.part("upper", position=(half, 0, 0))]
    joint = jg.mechanism.Connection("middle", J.Ball(), "lower.b", "upper.a")
    structure = js.Structure(
        jg.mechanism.System(parts, [joint]),
        {"lower": frame, "upper": frame},
        supports={"lower.a": "all", "upper.b": ("y", "z", "rx", "ry", "rz")},
    )
    poses = jg.mechanism.start(structure.system)
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


@pytest.mark.long
def test_string_hardens():
    """A rope in two halves under tension T resists a push across by 4 T / L."""
    nodes = [[0, 0, 0], [1.0, 0, 0], [2.0, 0, 0]]
    bars = js.Bars([(0, 1), (1, 2)], js.Bar(STEEL, 1.0))
    frame = js.FramePart(nodes, [bars], {"root": (0,), "middle": (1,), "tip": (2,)})
    supports = {"rope.root": "pinned", "rope.tip": ("y", "z"), "rope.middle": ("z",)}
    # A soft spring holds the middle while there is no tension yet.
    ground = {"aside": [[1.0, 5.0, 0]]}
    system = jg.mechanism.System([frame.part("rope")], [], ground)
    structure = js.Structure(
        system,
        {"rope": frame},
        supports=supports,
        ties={"soft": js.Tie(js.Spring(1.0), "ground.aside", "rope.middle")},
    )
    poses = jg.mechanism.start(system)
    loads = [js.NodalForce("rope.tip", (1e4, 0, 0)), js.NodalForce("rope.middle", (0, 1.0, 0))]
    solution = js.second_order(structure, poses, loads)
    moved = solution.part("rope").displacements[1, 1]
    np.testing.assert_allclose(moved, 1 / (1e4 / 1.0 * 2 + 1.0), rtol=1e-4)


@pytest.mark.long
def test_sway_of_several_radii_of_gyration():
    """Three and more of 0.1 m; the closed form leaves out terms of the slope squared."""
    length, stiff = 6.0, 210e9 * 1e-4
    tube = jg.fem.BeamSection(STEEL, A=0.01, Iy=1e-4, Iz=1e-4, J=2e-4, orientation=(0, 1.0, 0))
    nodes = np.zeros((5, 3))
    nodes[:, 0] = np.linspace(0, length, 5)
    structure, poses = chain(nodes, turned=False, section=tube)
    force = 0.3 * 3 * stiff / length**3
    push = np.array([0.5 * np.pi**2 * stiff / 4 / length**2, 2e5])
    k = np.sqrt(push / stiff)
    bent = force / push * (np.tan(k * length) / k - length)
    pulled = force / push * (length - np.tanh(k * length) / k)
    for along, sway in ((0.0, 0.3), (-push[0], bent[0]), (push[1], pulled[1])):
        load = js.NodalForce("part.tip", (along, 0, force))
        solution = js.second_order(structure, poses, load)
        np.testing.assert_allclose(
            solution.displacements[-1, 2], sway, rtol=4 * (sway / length) ** 2
        )
        assert solution.margin > 1e-4


def test_no_load(monkeypatch):
    """Nothing buckles, nothing moves."""
    structure, poses = cantilever()
    still = js.NodalForce("part.tip", (0.0, 0, 0))
    found = js.buckling(structure, poses, still, count=3)
    assert np.isinf(found.factors).all()
    np.testing.assert_array_equal(found.modes, 0.0)
    # The linear analysis only explains failures.
    monkeypatch.setattr("jaxgrip.fem.structures._deflected.sentences", None)
    solution = js.second_order(structure, poses, still)
    np.testing.assert_array_equal(solution.displacements, 0.0)


@pytest.mark.parametrize("count", [0, -1, 151])
def test_count_of_factors(count):
    structure, poses = cantilever()
    with pytest.raises(ValueError, match="whole number from 1 to 150"):
        js.buckling(structure, poses, [], count=count)


TOP, RISE, STEPS = 2.0, 1.0, 8


@functools.cache
def columns():
    """Of three parts: a rigid lever on a spring, a cantilever below a rigid top, a pinned beam.

    The lever's pins and tip follow a node between them, and the cantilever's end follows the top.
    """
    pins = [[0, -1, 0], [0, 1, 0]]
    links = js.RigidLinks([(2, 0), (2, 1), (2, 3)])
    lever = [*pins, [0, 0, LENGTH], [0, 0, LENGTH + RISE]]
    lever = js.FramePart(lever, [links], {"pins": (0, 1), "tip": (3,)})
    joints = [("hinge", J.Hinge()), ("held", J.Angle(0.0))]
    joints = [jg.mechanism.Connection(k, j, "ground.pins", "lever.pins") for k, j in joints]

    nodes = np.zeros((STEPS + 2, 3))
    nodes[:, 2] = [*np.linspace(0, LENGTH, STEPS + 1), LENGTH + TOP]
    beams = js.Beams([(k, k + 1) for k in range(STEPS)], SLENDER)
    rigid = js.RigidLinks([(STEPS + 1, STEPS)])
    mast = js.FramePart(nodes, [beams, rigid], {"foot": (0,), "tip": (STEPS + 1,)})

    alone = js.Beams([(0, 1)], SLENDER, released=(("My", "Mz"), ("My", "Mz")))
    pinned = js.FramePart([[0, 0, 0], [0, 0, LENGTH]], [alone], {"foot": (0,), "tip": (1,)})

    frames = {"lever": lever, "mast": mast, "pinned": pinned}
    parts = [frame.part(name) for name, frame in frames.items()]
    held = {"mast.foot": "all", "pinned.foot": "all", "pinned.tip": ("x", "y", "rx", "ry", "rz")}
    structure = js.Structure(
        jg.mechanism.System(parts, joints, {"pins": pins}),
        frames,
        transfer={"held": js.Spring(1e5)},
        supports=held,
    )
    return structure, jg.mechanism.start(structure.system)


def loaded(analysis, name, force, **options):
    """The analysis of the columns with a force on the tip of one of them."""
    structure, poses = columns()
    loads = [
        js.NodalForce(f"{k}.tip", force if k == name else np.zeros(3)) for k in structure.names
    ]
    return analysis(structure, poses, loads, **options)


@pytest.mark.soak
def test_rigid_arms_on_a_spring():
    """A rigid lever on a spring k that turns buckles at k / L, and falls over beyond."""
    length = LENGTH + RISE
    found = loaded(js.buckling, "lever", (0, 0, -1.0), count=3)
    np.testing.assert_allclose(found.factors, [1e5 / length, np.inf, np.inf], rtol=1e-8)
    for push, pushed in ((100.0, 0.5), (1.0, 5.0)):
        solution = loaded(js.second_order, "lever", (push, 0, -pushed * 1e5 / length))
        turn = brentq(
            lambda t, f=push, p=pushed: 1e5 * (t - p * np.sin(t)) - f * length * np.cos(t),
            1e-6,
            3.0,
        )
        tip = length * np.array([np.sin(turn), 0, np.cos(turn) - 1])
        np.testing.assert_allclose(
            solution.part("lever").displacements[3], tip, rtol=1e-8, atol=1e-9
        )


@pytest.mark.long
def test_rigid_top_that_the_beam_follows():
    """k L tan k L = L / h under a load at the height h above the beam."""
    found = loaded(js.buckling, "mast", (0, 0, -1.0), count=3)
    k = np.sqrt(found.factors[0] / EI)
    np.testing.assert_allclose(k * LENGTH * np.tan(k * LENGTH), LENGTH / TOP, rtol=1e-5)
    np.testing.assert_allclose(found.factors[1], 2 * found.factors[0], rtol=1e-5)
    np.testing.assert_allclose(np.abs(found.modes).max(axis=(1, 2)), 1.0)

    push, force = 0.6 * float(found.factors[0]), 10.0
    k = np.sqrt(push / EI)
    c, s = np.cos(k * LENGTH), np.sin(k * LENGTH)
    sway = (s + TOP * k * c) / (k * (c - TOP * k * s)) - LENGTH - TOP
    solution = loaded(js.second_order, "mast", (force, 0, -push))
    moved = solution.part("mast").displacements[-1, 0]
    np.testing.assert_allclose(moved, force / push * sway, rtol=1e-5)


@pytest.mark.long
def test_beam_between_balls():
    """One cubic element buckles at 12/π² times Euler's load, its nodes staying in place."""
    one = 12 * EI / LENGTH**2
    found = loaded(js.buckling, "pinned", (0, 0, -1.0), count=3)
    np.testing.assert_allclose(found.factors, [one, 2 * one, 5 * one], rtol=1e-6)
    np.testing.assert_array_equal(found.modes, 0.0)
    assert loaded(js.second_order, "pinned", (0, 0, -0.9 * one)).succeeded
    with pytest.raises(js.StructureError, match=r"beyond buckling.*between its ends") as caught:
        loaded(js.second_order, "pinned", (0, 0, -1.1 * one))
    np.testing.assert_allclose(caught.value.solution.load_factor, 1 / 1.1, rtol=1e-5)


@pytest.mark.soak
def test_buckling_has_second_derivatives():
    """Factors are as 1 / L², rotations of modes that move by 1 as 1 / L."""

    @jax.jit
    def found(size, iz):
        def both(size):
            section = jg.fem.BeamSection(
                STEEL, A=10.0, Iy=1e-5, Iz=iz, J=1e-5, orientation=(0, 1.0, 0)
            )
            nodes = size * jnp.zeros((4, 3)).at[:, 0].set(jnp.linspace(0, LENGTH, 4))
            structure, poses = chain(nodes, turned=False, section=section)
            load = js.NodalForce("part.tip", (-1.0, 0, 0))
            lost = js.buckling(structure, poses, load, count=2, throw=False)
            return lost.factors, lost.modes

        (factors, modes), rates = both(size), jax.jacfwd(both)(size)
        summed = jax.grad(lambda size: both(size)[0].sum())(size)
        return factors, modes, rates, summed, jax.jacfwd(jax.jacfwd(lambda s: both(s)[0]))(size)

    factors, modes, rates, summed, twice = found(1.0, 2e-5)
    np.testing.assert_allclose(rates[0], -2 * factors, rtol=1e-8)
    np.testing.assert_allclose(summed, -2 * factors.sum(), rtol=1e-8)
    np.testing.assert_allclose(twice, 6 * factors, rtol=1e-7)
    np.testing.assert_allclose(rates[1][..., :3], 0.0, atol=1e-7)
    np.testing.assert_allclose(rates[1][..., 3:], -modes[..., 3:], atol=1e-7)
    # Of equal factors the sum has a derivative, and nothing else is made up.
    factors, _, rates, summed, twice = found(1.0, 1e-5)
    np.testing.assert_allclose(factors[0], factors[1], rtol=1e-9)
    np.testing.assert_allclose(summed, -2 * factors.sum(), rtol=1e-8)
    assert np.isnan(twice).all()
    assert np.isnan(rates[1]).any()


@pytest.mark.soak
def test_no_factors_of_what_has_no_linear_solution():
    structure, poses = columns()

    @jax.jit
    def factors(force):
        loads = [js.NodalForce(f"{k}.tip", force) for k in structure.names]
        return js.buckling(structure, poses, loads, count=3, throw=False).factors

    for number in (np.nan, np.inf):
        assert np.isnan(factors(jnp.full(3, number))).all()


@pytest.mark.soak
def test_stability_has_derivatives():
    """Of a cantilever with a rigid arm at its end and a beam beside it that ends in a ball."""
    nodes = [[0, 0, 0], [LENGTH / 2, 0, 0], [LENGTH, 0, 0], [LENGTH, 0.1, 0.5]]
    beams = js.Beams([(0, 1), (1, 2)], SLENDER)
    beside = js.Beams([(0, 2)], SLENDER, released=((), ("My", "Mz")))
    named = {"root": (0,), "tip": (3,)}
    frame = js.FramePart(nodes, [beams, beside, js.RigidLinks([(2, 3)])], named)
    clamp = jg.mechanism.Connection("clamp", J.Clamp(), "part")
    system = jg.mechanism.System([frame.part("part")], [clamp])
    structure = js.Structure(system, {"part": frame}, supports={"part.root": "all"})
    poses = jg.mechanism.start(system)

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
