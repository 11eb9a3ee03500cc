"""Mechanisms from files in motion, against published numbers and closed forms."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from jaxgrip import mechanism, rigid
from jaxgrip.mechanism import assemble, loops, mobility
from jaxgrip.models import four_bar
from tests.mechanism.parallel_cranks import crank_angle

FILES = Path(__file__).parents[2] / "configs" / "assembly"


@pytest.mark.soak
def test_andrews_mechanism_as_published():
    """Test Set for IVP Solvers, problem andrews, at 0.03 s."""
    system = mechanism.read_system(FILES / "andrews.toml")
    motion = mechanism.simulate(system, jnp.array([0.0, 0.03]), rtol=1e-11, atol=1e-11)
    published = {
        "K1": 15.81077119629904,
        "K2": -15.75637105984298,
        "K3": 0.04082224013073101,
        "K5": 0.5244099658805304,
        "K4": -0.5347301163226948,
        "K7": 1.048080741042263,
        "K6": 0.5347301163226948,
    }
    for name, angle in published.items():
        found = float(motion.coordinates[name][-1, 0])
        whole = np.round((found - angle) / (2 * np.pi))
        assert found - 2 * np.pi * whole == pytest.approx(angle, abs=1e-7), name
    # Only the constant torque and the spring do work, without loss.
    turned = motion.coordinates["K1"][:, 0]
    work = 0.033 * float(turned[-1] - turned[0])
    assert float(motion.energy[-1] - motion.energy[0]) == pytest.approx(work, abs=1e-8)


@pytest.mark.long
def test_double_four_bar_goes_over_the_top():
    """Cranks of the double four-bar stay parallel and move as one pendulum."""
    system = mechanism.read_system(FILES / "double_four_bar.toml")
    assembled = assemble(system)
    times = jnp.linspace(0.0, 2.0, 5)
    motion = mechanism.simulate(assembled, times, rates={"foot 1": -1.0})
    # The 0.001 kg m2 about the axes of their slender rods has no effect here.
    exact = crank_angle(3, times)
    tips = motion.poses.position[:, assembled.system.part("coupler 1")]
    expected = np.stack([np.cos(exact), np.sin(exact), np.zeros(5)], axis=1)
    np.testing.assert_allclose(tips, expected, atol=1e-6)
    assert motion.passages >= 2
    assert "went through a singular position" in motion.warnings()[0]


@pytest.mark.soak
def test_bricards_mechanism_keeps_its_energy():
    """Overconstrained by one: one of at most 25 loop equations is redundant, one motion is left."""
    system = mechanism.read_system(FILES / "bricard.toml")
    report = mobility(system)
    assert (report.degrees_of_freedom, report.surplus) == (1, 1)
    motion = mechanism.simulate(system, jnp.linspace(0.0, 2.0, 5))
    assert np.abs(motion.gap).max() < 1e-10
    assert np.ptp(motion.energy) < 1e-6 * np.ptp(motion.kinetic)
    assert np.ptp(motion.kinetic) > 1.0


@pytest.mark.long
def test_urdf_with_a_loop_is_the_system_that_its_parts_are():
    """A four-bar as a tree with a loop and as a system: the same motion."""
    linkage = four_bar()
    system = mechanism.system_of(linkage.mechanism, linkage.start)
    assembled = assemble(system)
    times = jnp.linspace(0.0, 0.5, 3)
    motion = mechanism.simulate(assembled, times, rtol=1e-11, atol=1e-11)
    other = loops.simulate(linkage.mechanism, linkage.start, jnp.zeros(3), times)
    names = linkage.mechanism.coordinates
    for k, name in enumerate(names):
        np.testing.assert_allclose(
            np.sin(motion.coordinates[name][:, 0]), np.sin(other.q[:, k]), atol=1e-8
        )
    again = mechanism.equations(system, assembled.poses)[0]
    assert np.abs(again).max() < 1e-10


def test_springs_and_losses_of_a_tree_are_those_of_its_system():
    inertia = np.diag([0.2, 0.3, 0.25])
    upper = rigid.Placement(
        "upper",
        None,
        (0, 0, 0.1),
        1.5,
        (0.2, 0, 0),
        inertia,
        axis=(0, 1, 0),
        stiffness=3.0,
        reference=0.4,
        damping=0.2,
    )
    lower = rigid.Placement(
        "lower",
        "upper",
        (0.5, 0, 0),
        1.0,
        (0.3, 0, 0),
        inertia,
        axis=(1, 0, 0),
        joint="prismatic",
        stiffness=8.0,
        reference=-0.1,
        friction=0.7,
        friction_speed=0.05,
    )
    tree = rigid.from_placements([upper, lower])
    q, qd = jnp.array([0.3, 0.2]), jnp.array([0.8, 0.02])
    system = mechanism.system_of(tree, q)
    rates = {"upper": float(qd[0]), "lower": float(qd[1])}
    found = mechanism.inverse_dynamics(system, rates=rates)
    linear = rigid.body_jacobians(tree, q)[1, 3:] @ rigid.forward_dynamics(tree, q, qd, 0 * q)
    bend = jax.jvp(lambda q: rigid.body_jacobians(tree, q)[1, 3:] @ qd, (q,), (qd,))[1]
    np.testing.assert_allclose(found.acceleration[1, :3], linear + bend, atol=1e-10)
    energy = rigid.potential_energy(tree, q) + rigid.kinetic_energy(tree, q, qd)
    np.testing.assert_allclose(found.energy, energy, rtol=1e-12)
    with pytest.warns(UserWarning, match="Armature of joints is not used.*upper"):
        mechanism.system_of(rigid.with_passive(tree, armature=jnp.array([0.1, 0.0])))


@pytest.mark.long
def test_crane_luffs_by_its_rope():
    """Forces at rest by equilibrium of pin joints; in motion the work of the rope by the energy."""
    crane = mechanism.read_system(FILES / "crane.toml")
    lifted = mechanism.Applied("lifted", mechanism.Load((0.0, 0.0, -1e5)), "boom.tip")
    system = mechanism.System(
        crane.parts, crane.connections, crane.ground, [lifted], gravity=(0.0, 0.0, 0.0)
    )
    start, way, duration = float(crane.parameters["luffing rope"]), 5.0, 4.0

    def rope(t):
        s = t / duration
        return start + way * s**3 * (10 - 15 * s + 6 * s**2)

    times = jnp.linspace(0.0, duration, 41)
    motion = mechanism.simulate(system, times, drives={"luffing rope": rope})
    # The boom is at 60 degrees.
    assert float(motion.efforts["luffing rope"][0]) == pytest.approx(-79954.028, abs=0.01)
    s = np.asarray(times) / duration
    rate = way / duration * 30 * s**2 * (1 - s) ** 2
    work = scipy.integrate.simpson(np.asarray(motion.efforts["luffing rope"]) * rate, x=times)
    assert float(motion.energy[-1] - motion.energy[0]) == pytest.approx(float(work), rel=1e-5)
    assert motion.warnings() == ()
