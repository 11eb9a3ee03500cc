import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

me = jg.mechanism.loops


def turned(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def planar_newton_euler(q, qd, tau, lengths, masses, gravity):
    """Accelerations and pin forces of the four-bar from free bodies in the plane.

    Unknown are the angular accelerations and centre accelerations of three rods and the forces at
    the pins: ground on crank, crank on coupler, ground on rocker, rocker on coupler.
    """
    angles = np.array([q[0], q[0] + q[1], q[2]])
    rates = np.array([qd[0], qd[0] + qd[1], qd[2]])
    torque = np.array([tau[0] - tau[1], tau[1], tau[2]])
    half = [turned(a) @ [length / 2, 0] for a, length in zip(angles, lengths, strict=True)]
    inertia = masses * lengths**2 / 12
    # Ends of rods at the pins: (rod, sign of the half length) with force plus, then minus.
    pins = [((0, -1), None), ((1, -1), (0, 1)), ((2, -1), None), ((1, 1), (2, 1))]
    matrix, right = np.zeros((17, 17)), np.zeros(17)
    for i in range(3):
        rows = slice(3 * i, 3 * i + 2)
        matrix[rows, rows] = masses[i] * np.eye(2)
        right[rows] = masses[i] * np.asarray(gravity)
        matrix[3 * i + 2, 3 * i + 2] = inertia[i]
        right[3 * i + 2] = torque[i]
    for p, ends in enumerate(pins):
        rows = slice(9 + 2 * p, 11 + 2 * p)
        for end, sign in zip(ends, (1.0, -1.0), strict=True):
            if end is None:
                continue
            i, side = end
            arm = side * half[i]
            # Acceleration of the end: a + alpha x arm - omega^2 arm; pins coincide.
            matrix[rows, 3 * i : 3 * i + 2] += sign * np.eye(2)
            matrix[rows, 3 * i + 2] += sign * np.array([-arm[1], arm[0]])
            right[rows] += sign * rates[i] ** 2 * arm
            matrix[3 * i : 3 * i + 2, rows] -= sign * np.eye(2)
            matrix[3 * i + 2, rows] -= sign * np.array([-arm[1], arm[0]])
    x = np.linalg.solve(matrix, right)
    alpha = x[[2, 5, 8]]
    return np.array([alpha[0], alpha[1] - alpha[0], alpha[2]]), x[9:].reshape(4, 2)


@pytest.fixture(scope="module")
def moving():
    link = jg.models.four_bar()
    qd = me.consistent_velocity(link.mechanism, link.start, jnp.zeros(3), {"crank": 7.0})
    return link.mechanism, link.start, qd, jnp.array([0.3, -0.2, 0.5])


@pytest.mark.long
@pytest.mark.parametrize(
    "closure", [jg.joints.Hinge(), pytest.param(jg.joints.Ball(), marks=pytest.mark.soak)]
)
def test_four_bar_against_free_bodies(moving, closure):
    """Accelerations and all reactions, whether or not equations of the loop are redundant."""
    _, q, qd, tau = moving
    mechanism = jg.models.four_bar(closure=closure).mechanism
    lengths, masses = np.array([0.1, 0.35, 0.3]), np.array([0.5, 1.0, 0.8])
    exact, pins = planar_newton_euler(*map(np.asarray, (q, qd, tau)), lengths, masses, (0, -9.81))
    qdd, multipliers = me.forward_dynamics(mechanism, q, qd, tau)
    np.testing.assert_allclose(qdd, exact, rtol=1e-11)
    assert np.all(np.isfinite(multipliers))
    loads = me.reaction_forces(mechanism, q, qd, tau)
    np.testing.assert_allclose(loads.force[0, :2], pins[3], rtol=1e-11)
    np.testing.assert_allclose(loads.force[0, 2], 0.0, atol=1e-12)
    np.testing.assert_allclose(loads.moment, np.zeros((1, 3)), atol=1e-12)
    tip = 0.4 + 0.3 * np.exp(1j * float(q[2]))
    np.testing.assert_allclose(loads.point[0], [tip.real, tip.imag, 0.0], atol=1e-14)
    rotation = jg.rigid.forward_kinematics(mechanism.tree, q).rotation
    force = np.einsum("bxy,by->bx", rotation, loads.bodies.F)
    np.testing.assert_allclose(force[:, :2], pins[:3], rtol=1e-10)
    np.testing.assert_allclose(loads.bodies.N[:, 2], tau, atol=1e-12)


@pytest.mark.long
def test_spatial_reactions_balance_every_body():
    """Forces and moments on each body are the rate of its momenta, by automatic derivatives."""
    mechanism, q = jg.models.slider_crank(offset=0.05)
    # Out of the plane the guide carries moments: gravity is oblique.
    mechanism = eqx.tree_at(lambda m: m.tree.gravity, mechanism, jnp.array([1.0, -5.0, 3.0]))
    qd = me.consistent_velocity(mechanism, q, jnp.zeros(3), {"crank": 4.0})
    tau = jnp.array([0.7, 0.1, -0.2])
    qdd, _ = me.forward_dynamics(mechanism, q, qd, tau)
    loads = me.reaction_forces(mechanism, q, qd, tau)
    tree = mechanism.tree
    place = jg.rigid.forward_kinematics(tree, q)

    def momenta(t):
        at = jg.rigid.forward_kinematics(tree, q + t * qd + 0.5 * t**2 * qdd)
        return at.rotation, jnp.einsum("bxy,by->bx", at.rotation, tree.com) + at.translation

    zero, one = jnp.zeros(()), jnp.ones(())

    def rates(t):
        (rotation, _), (turning, velocity) = jax.jvp(momenta, (t,), (one,))
        spin = turning @ jnp.swapaxes(rotation, 1, 2)
        w = jnp.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
        inertia = rotation @ tree.inertia @ jnp.swapaxes(rotation, 1, 2)
        return tree.mass[:, None] * velocity, jnp.einsum("bxy,by->bx", inertia, w)

    _, (push, twist) = jax.jit(lambda t: jax.jvp(rates, (t,), (one,)))(zero)
    force = np.einsum("bxy,by->bx", place.rotation, loads.bodies.F)
    moment = np.einsum("bxy,by->bx", place.rotation, loads.bodies.N)
    origin = np.asarray(place.translation)
    centre = np.asarray(momenta(zero)[1])
    for i in range(3):
        f = force[i] + np.asarray(tree.mass[i] * tree.gravity)
        n = moment[i] + np.cross(origin[i] - centre[i], force[i])
        if i < 2:
            f, n = f - force[i + 1], n - moment[i + 1]
            n = n - np.cross(origin[i + 1] - centre[i], force[i + 1])
        else:
            arm = np.asarray(loads.point[0]) - centre[i]
            f, n = f + loads.force[0], n + loads.moment[0] + np.cross(arm, loads.force[0])
        np.testing.assert_allclose(f, push[i], atol=1e-11)
        np.testing.assert_allclose(n, twist[i], atol=1e-11)


@pytest.fixture(scope="module")
def flywheels():
    """Two flywheels in a fixed ratio."""
    rows = [
        jg.rigid.Placement(name, None, (x, 0.0, 0.0), 1.0, (0.0, 0.0, 0.0), (inertia,) * 3)
        for name, x, inertia in (("drive", 0.0, 0.2), ("load", 0.5, 0.3))
    ]
    coupling = me.Coupling("mimic", jg.joints.Gear(-2.5, 0.1), "drive", "load")
    return me.Mechanism(jg.rigid.from_placements(rows), [], [coupling])


def test_mimic_joints_share_their_inertia(flywheels):
    """With the ratio r: (I1 + r² I2) q̈ = τ1 + r τ2."""
    mechanism = flywheels
    q = me.assemble(mechanism, jnp.zeros(2), {"drive": 0.4}).q
    np.testing.assert_allclose(q, [0.4, -0.9], atol=1e-15)
    qdd, multipliers = me.forward_dynamics(mechanism, q, jnp.zeros(2), jnp.array([1.0, 0.4]))
    exact = (1.0 - 2.5 * 0.4) / (0.2 + 2.5**2 * 0.3)
    np.testing.assert_allclose(qdd, [exact, -2.5 * exact], atol=1e-14)
    np.testing.assert_allclose(multipliers, [-0.4 - 2.5 * 0.3 * exact], atol=1e-14)


def test_drives_must_be_as_many_as_degrees_of_freedom(flywheels):
    """One drive of the flywheels needs (I1 + r² I2) q̈; two or none are refused."""
    q, rest = jnp.array([0.4, -0.9]), jnp.zeros(2)
    found = me.inverse_dynamics(flywheels, q, rest, {"drive": 3.0})
    np.testing.assert_allclose(found.torques, [3.0 * (0.2 + 2.5**2 * 0.3)], rtol=1e-13)
    for drives in ({}, {"drive": 1.0, "load": -2.5}):
        with pytest.raises(me.MechanismError, match="do not determine the 1 degree of freedom"):
            me.inverse_dynamics(flywheels, q, rest, drives)


def test_a_mechanism_without_loops_is_its_tree():
    tree = jg.models.gripper_finger("A").tree
    q, qd, tau = jnp.array([[0.1, -0.3, -0.5], [1.0, 2.0, -1.0], [0.1, 0.2, 0.3]])
    qdd, multipliers = me.forward_dynamics(me.Mechanism(tree), q, qd, tau)
    np.testing.assert_allclose(qdd, jg.rigid.forward_dynamics(tree, q, qd, tau), rtol=1e-11)
    assert multipliers.shape == (0,)


@pytest.mark.long
def test_drives_that_cause_the_acceleration(moving):
    mechanism, q, qd, tau = moving
    other = tau.at[0].set(0.0)
    qdd, multipliers = me.forward_dynamics(mechanism, q, qd, tau)
    found = me.inverse_dynamics(mechanism, q, qd, {"crank": qdd[0]}, other)
    np.testing.assert_allclose(found.torques, tau[:1], rtol=1e-10)
    np.testing.assert_allclose(found.qdd, qdd, rtol=1e-11)
    np.testing.assert_allclose(found.multipliers, multipliers, atol=1e-10)
    for drives in ({}, {"crank": 1.0, "rocker": 1.0}):
        with pytest.raises(me.MechanismError, match=r"do not determine the 1 degree"):
            me.inverse_dynamics(mechanism, q, qd, drives)


@pytest.mark.soak
def test_derivatives_along_closed_states(moving):
    """In both modes, of accelerations and multipliers, by state, masses and torques."""
    mechanism, start, _, tau = moving

    def motion(angle, rate, masses, tau):
        heavy = eqx.tree_at(lambda m: m.tree.mass, mechanism, masses)
        q = me.assemble(heavy, start, {"crank": angle}, throw=False).q
        qd = me.consistent_velocity(heavy, q, jnp.zeros(3), {"crank": rate})
        return jnp.concatenate(me.forward_dynamics(heavy, q, qd, tau))

    every = (0, 1, 2, 3)
    weights = jnp.arange(1.0, 9.0)
    forward = jax.jit(jax.jacfwd(motion, argnums=every))
    reverse = jax.jit(jax.grad(lambda *point: weights @ motion(*point), argnums=every))
    motion = jax.jit(motion)
    for rate in (3.0, 0.0):
        point = jax.tree.map(jnp.asarray, (1.0, rate, mechanism.tree.mass, tau))
        for i, (by, back) in enumerate(zip(forward(*point), reverse(*point), strict=True)):
            np.testing.assert_allclose(back, jnp.tensordot(weights, by, 1), atol=1e-9)
            for k in np.ndindex(point[i].shape):
                e = jnp.zeros_like(point[i]).at[k].set(1e-6)
                up, down = (motion(*point[:i], point[i] + s, *point[i + 1 :]) for s in (e, -e))
                np.testing.assert_allclose(by[:, *k], (up - down) / 2e-6, rtol=1e-6, atol=1e-6)


def test_many_states_at_once_and_new_numbers(moving):
    mechanism, q, qd, tau = moving
    before = me.forward_dynamics._cache_size()
    for mass in (1.0, 2.0):
        heavier = eqx.tree_at(lambda m: m.tree.mass, mechanism, mass * mechanism.tree.mass)
        me.forward_dynamics(heavier, q, qd, tau)
    assert me.forward_dynamics._cache_size() - before <= 1
    scales = jnp.array([0.0, 1.0, 2.0])
    many, _ = jax.vmap(lambda k: me.forward_dynamics(mechanism, q, k * qd, tau))(scales)
    for k, qdd in zip(scales, many, strict=True):
        one, _ = me.forward_dynamics(mechanism, q, k * qd, tau)
        np.testing.assert_allclose(qdd, one, rtol=1e-10)
