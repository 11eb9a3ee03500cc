"""Gears between joints of which one closes a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.joints import Ball, Gear, Hinge
from jaxgrip.mechanism import Connection, Part, System

me = jg.mechanism.loops
WIDTH, CRANK, COUPLER = 0.4, 0.4, 0.7
RATE, APART = 1.7, 1e-5


def five_bar(gravity=(0.0, -9.81, 0.0)):
    """Two cranks that mirror each other by a gear; the second one's hinge closes the loop."""
    lengths = {"crank": CRANK, "first": COUPLER, "second": COUPLER, "other crank": CRANK}
    names, ends = list(lengths), [0.0, *lengths.values()]
    tree = jg.rigid.from_placements(
        [
            jg.rigid.Placement(
                name=name,
                parent=names[k - 1] if k else None,
                translation=(ends[k], 0.0, 0.0),
                mass=1.0 + k,
                com=(lengths[name] / 2, 0.05, 0.0),
                inertia=(0.01, 0.02, 0.03),
            )
            for k, name in enumerate(names)
        ],
        gravity=gravity,
    )
    axis = np.array([[0.0, 0, 0], [0, 0, 1], [1, 0, 0]])
    at = np.array([1.0, 0.0, 0.0])
    pin = me.Loop("pin", Hinge(), None, "other crank", axis + WIDTH * at, axis + CRANK * at)
    gear = me.Coupling("mirror", Gear(-1.0), "crank", "pin", (False, True))
    return me.Mechanism(tree, [pin], [gear])


def mirrored(angle):
    """Coordinates (4,) of the symmetric position."""
    tilt = jnp.arccos((WIDTH / 2 - CRANK * jnp.cos(angle)) / COUPLER)
    return jnp.stack([angle, tilt - angle, -2 * tilt, tilt - angle])


@pytest.mark.parametrize("angle", [0.6, 4.0])
def test_equations_and_motion_of_a_geared_five_bar(angle):
    """Lagrange's equation of its one degree of freedom; the second angle is past half a turn."""
    step, seen = 1e-6, _seen(five_bar(), jnp.asarray(angle), jnp.asarray(RATE))
    np.testing.assert_allclose(seen["gap"], 0.0, atol=1e-14)
    before, after = seen["beside"]
    np.testing.assert_allclose(seen["rows"].T, (after - before) / (2 * step), atol=1e-9)
    # By differences over three close angles.
    inertia, potential = map(np.asarray, (seen["inertia"], seen["potential"]))
    slopes = [(x[2] - x[0]) / (2 * APART) for x in (inertia, potential)]
    exact = -(slopes[0] * RATE**2 / 2 + slopes[1]) / inertia[1]
    assert float(seen["qdd"][0]) == pytest.approx(exact, rel=1e-6)


@jax.jit
def _seen(mechanism, angle, rate):
    def along(angle):
        q, slope = jax.jvp(mirrored, (angle,), (jnp.ones(()),))
        inertia = slope @ jg.rigid.crba(mechanism.tree, q) @ slope
        return inertia, jg.rigid.potential_energy(mechanism.tree, q)

    inertia, potential = jax.vmap(along)(angle + APART * jnp.array([-1.0, 0.0, 1.0]))
    q, qd = jax.jvp(mirrored, (angle,), (rate,))
    shifts = 1e-6 * jnp.stack([-jnp.eye(4), jnp.eye(4)])
    return {
        "inertia": inertia,
        "potential": potential,
        "gap": me.constraints(mechanism, q),
        "rows": me.jacobian(mechanism, q),
        "beside": jax.vmap(jax.vmap(lambda dq: me.constraints(mechanism, q + dq)))(shifts),
        "qdd": me.forward_dynamics(mechanism, q, qd, jnp.zeros(4))[0],
    }


@pytest.mark.long
@pytest.mark.parametrize("angle", [0.446, 0.54, 0.585, 0.6, 0.747, 0.861, 0.954])
def test_a_geared_five_bar_turns_over_and_keeps_its_energy(angle):
    """More than a full turn; the tip stays in the middle.

    At 60 degrees, wherever the steps fall, it passes a position where both couplers lie on each
    other and could turn about the tips of the cranks.
    """
    mechanism = five_bar()
    q, slope = jax.jvp(mirrored, (jnp.asarray(angle),), (jnp.ones(()),))
    times = jnp.linspace(0.0, 1.0, 21)
    motion = me.simulate(mechanism, q, 12.0 * slope, times)
    assert motion.q[-1, 0] - motion.q[0, 0] > 2 * np.pi
    assert motion.passages >= 3
    tree = mechanism.tree
    energy = jax.vmap(
        lambda q, qd: jg.rigid.kinetic_energy(tree, q, qd) + jg.rigid.potential_energy(tree, q)
    )(motion.q, motion.qd)
    assert np.ptp(energy) < 1e-8 * float(energy[0])
    tip = CRANK * jnp.cos(motion.q[:, 0]) + COUPLER * jnp.cos(motion.q[:, 0] + motion.q[:, 1])
    np.testing.assert_allclose(tip, WIDTH / 2, atol=1e-9)
    # The gear does no work: it turns the other crank backward by what it does to the first.
    reactions = me.reaction_forces(mechanism, motion.q[-1], motion.qd[-1], jnp.zeros(4))
    assert float(reactions.moment[0, 2]) == pytest.approx(float(reactions.bodies.N[0, 2]), rel=1e-7)


@pytest.mark.long
def test_a_system_whose_joints_are_all_geared():
    """A parallelogram turns at a constant rate; one of its four geared hinges closes the loop."""
    length, width, angle, rate = 0.5, 1.2, 0.5, 2.0
    tip = length * np.array([np.cos(angle), np.sin(angle), 0.0])
    along = (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))

    def bar(name, size, position, quaternion=(1.0, 0.0, 0.0, 0.0)):
        ends = {"in": axis(0.0), "out": axis(size)}
        return Part(name, ends, position, quaternion, 1.0, (size / 2, 0, 0), (0.1, 0.2, 0.3))

    def axis(x):
        return [[x, 0, 0], [x, 0, 1], [x + 1, 0, 0]]

    system = System(
        [
            bar("crank", length, (0, 0, 0), along),
            bar("coupler", width, tip),
            bar("rocker", length, (width, 0, 0), along),
        ],
        [
            Connection("A", Hinge(), "ground.A", "crank.in"),
            Connection("B", Hinge(), "crank.out", "coupler.in"),
            Connection("C", Hinge(), "coupler.out", "rocker.out"),
            Connection("D", Hinge(), "ground.D", "rocker.in"),
            Connection("belt", Gear(1.0), "A", "D"),
            Connection("teeth", Gear(-1.0), "B", "C"),
        ],
        {"A": axis(0.0), "D": axis(width)},
        gravity=(0, 0, 0),
    )
    times = jnp.linspace(0.0, 0.5, 6)
    motion = jg.mechanism.simulate(system, times, rates={"A": rate})
    for name, sign in (("A", 1), ("B", -1), ("C", 1), ("D", 1)):
        exact = sign * (angle + rate * np.asarray(times))
        np.testing.assert_allclose(motion.coordinates[name][:, 0], exact, atol=1e-9)


def test_wrong_couplings_of_loops_get_a_sentence():
    good = five_bar()
    axis = np.array([[0.0, 0, 0], [0, 0, 1], [1, 0, 0]])
    others = [
        me.Loop("other", Hinge(), "crank", "second", axis, axis),
        me.Loop("ball", Ball(), "crank", "second", axis, axis),
    ]
    loops = [*good.loops, *others]
    for names, sentence in (
        (("pin", "other"), "couples the angles of 'pin' and 'other', which both close loops"),
        (("ball", "pin"), "joint of loop 'ball' has no single coordinate to couple"),
        (("pen", "pin"), "There is no loop 'pen'"),
    ):
        coupling = me.Coupling("gear", Gear(2.0), *names, (True, True))
        with pytest.raises(ValueError, match=sentence):
            me.Mechanism(good.tree, loops, [coupling])
