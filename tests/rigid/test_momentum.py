"""Trees with joints of all kinds against Pinocchio: torques, momenta and the regressor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg

from .test_joints import body, close, robot, state

KINDS = ("free", "spherical", "planar", "screw", "revolute", "prismatic")


def parts(seed=7):
    rng = np.random.default_rng(seed)
    parents = (None, "free", "free", "spherical", "planar", "screw")
    return [
        body(rng, kind, parent, kind, **({"pitch": 0.15} if kind == "screw" else {}))
        for kind, parent in zip(KINDS, parents, strict=True)
    ]


class Theirs:
    """Pinocchio's model of the parts, and its states, whose free and planar rates are in body
    axes, from ours."""

    def __init__(self, pin, bodies, tree):
        self.pin, self.model = pin, pin.Model()
        self.model.gravity.linear = np.array([0.3, -0.5, -9.81])
        made = {
            "free": pin.JointModelFreeFlyer,
            "spherical": pin.JointModelSpherical,
            "planar": pin.JointModelPlanar,
            "screw": lambda: pin.JointModelHelicalUnaligned(np.array([0.0, 0.0, 1.0]), 0.15),
            "revolute": pin.JointModelRZ,
            "prismatic": pin.JointModelPZ,
        }
        joints = {None: 0}
        # Pinocchio wants the joints of a subtree to be neighbours.
        order = ("free", "spherical", "screw", "prismatic", "planar", "revolute")
        by_name = {b.name: b for b in bodies}
        for name in order:
            b = by_name[name]
            place = pin.SE3(np.asarray(b.rotation), np.asarray(b.translation))
            parent = joints[b.parent]
            joints[name] = self.model.addJoint(parent, made[name](), place, name)
            inertia = pin.Inertia(b.mass, np.asarray(b.com), np.asarray(b.inertia))
            self.model.appendBodyToJoint(joints[name], inertia, pin.SE3.Identity())
        self.data, self.tree, self.joints = self.model.createData(), tree, joints

    def at(self, q, qd, qdd):
        """Their q, v, a, and the matrix of their rates by ours."""
        n, tree = self.model.nv, self.tree
        their_q, turn = np.zeros(self.model.nq), np.zeros((n, tree.n))
        v_rate = np.zeros(n)
        for name, j in self.joints.items():
            if name is None:
                continue
            joint = self.model.joints[j]
            ours = np.array(q)[list(tree.coordinates_of(name))]
            rates = list(tree.rates_of(name))
            rows = slice(joint.idx_v, joint.idx_v + joint.nv)
            block, w = np.eye(len(rates)), np.zeros(3)
            if name in ("free", "spherical"):
                x, y, z = ours[-3:]
                ours[-4:] = x, y, z, ours[-4]
            if name == "free":
                there = self.pin.Quaternion(ours[3:]).toRotationMatrix()
                block[:3, :3], w = there.T, np.array(qd)[rates[3:]]
            if name == "planar":
                c, s = np.cos(ours[2]), np.sin(ours[2])
                ours = np.array([ours[0], ours[1], c, s])
                block[:2, :2], w = [[c, s], [-s, c]], np.array([0, 0, qd[rates[2]]])
            turn[rows, rates] = block
            their_q[joint.idx_q : joint.idx_q + joint.nq] = ours
            if name in ("free", "planar"):
                size = len(rates) - (3 if name == "free" else 1)
                linear = np.zeros(3)
                linear[:size] = (block @ np.array(qd)[rates])[:size]
                v_rate[joint.idx_v : joint.idx_v + size] = -np.cross(w, linear)[:size]
        return their_q, turn @ qd, turn @ qdd + v_rate, turn


@pytest.mark.long
def test_joints_of_all_kinds_as_pinocchio():
    pin = pytest.importorskip("pinocchio")
    bodies = parts()
    tree = jg.rigid.from_placements(bodies, (0.3, -0.5, -9.81))
    theirs = Theirs(pin, bodies, tree)
    model, data = theirs.model, theirs.data
    q, qd, qdd, _ = state(tree)
    x, v, a, turn = theirs.at(*map(np.asarray, (q, qd, qdd)))
    m = pin.crba(model, data, x)
    m = np.triu(m) + np.triu(m, 1).T
    close(jg.rigid.crba(tree, q), turn.T @ m @ turn)
    tau = turn.T @ pin.rnea(model, data, x, v, a)
    close(jg.rigid.rnea(tree, q, qd, qdd), tau)
    close(jg.rigid.forward_dynamics(tree, q, qd, tau), qdd)
    close(jg.rigid.aba(tree, q, qd, tau), qdd)
    pin.forwardKinematics(model, data, x, v, a)
    pin.ccrba(model, data, x, v)
    order = np.array([3, 4, 5, 0, 1, 2])
    close(jg.rigid.centroidal_matrix(tree, q), (data.Ag @ turn)[order])
    close(jg.rigid.centroidal_momentum(tree, q, qd), data.hg.vector[order])
    close(jg.rigid.centre_of_mass(tree, q), pin.centerOfMass(model, data, x))
    kinetic, potential = jg.rigid.body_energies(tree, q, qd)
    close(kinetic.sum(), pin.computeKineticEnergy(model, data, x, v))
    close(potential.sum(), pin.computePotentialEnergy(model, data, x))
    close(kinetic.sum(), jg.rigid.kinetic_energy(tree, q, qd))
    close(potential.sum(), jg.rigid.potential_energy(tree, q))
    theirs_by_body = pin.computeJointTorqueRegressor(model, data, x, v, a)
    ours = jg.rigid.regressor(tree, q, qd, qdd).reshape(tree.n, -1, 10)
    # Theirs has yy before xz.
    entries = np.array([0, 1, 2, 3, 4, 5, 7, 6, 8, 9])
    for name in KINDS:
        column = 10 * (theirs.joints[name] - 1)
        there = turn.T @ theirs_by_body[:, column : column + 10]
        close(ours[:, tree.body(name)], there[:, entries])


@pytest.mark.long
def test_the_regressor_gives_the_torques_without_passive_ones():
    tree = jg.rigid.from_placements(robot())
    q, qd, qdd, _ = state(tree)
    torque = jg.rigid.regressor(tree, q, qd, qdd) @ jg.rigid.inertial_parameters(tree)
    close(torque, jg.rigid.rnea(jg.rigid.with_passive(tree), q, qd, qdd), 1e-12)


@pytest.mark.long
def test_momentum_changes_by_gravity_alone():
    """Of a free robot whose joints drive it: d(momentum)/dt = (0, m g)."""
    tree = jg.rigid.from_placements(robot(), (0.3, -0.5, -9.81))
    q, qd, _, tau = state(tree)
    tau = tau.at[:6].set(0.0)
    qdd = jg.rigid.forward_dynamics(tree, q, qd, tau)
    # The armature of the ball and hinges acts between bodies of the robot.
    ideal = jg.rigid.with_passive(tree)
    tau = jg.rigid.rnea(ideal, q, qd, qdd)
    close(tau[:6], jnp.zeros(6), 1e-9)

    def momentum(t):
        moved = jg.rigid.integrate(tree, q, t * qd + 0.5 * t * t * qdd)
        return jg.rigid.centroidal_momentum(tree, moved, qd + t * qdd)

    rate = jax.jacfwd(momentum)(0.0)
    weight = jnp.sum(tree.mass) * tree.gravity
    close(rate, jnp.concatenate([jnp.zeros(3), weight]), 1e-11)
    momenta = jax.jit(lambda q, qd: jg.rigid.centroidal_momentum(tree, q, qd))
    check_grads(momenta, (q, qd), 1, rtol=1e-6)


def top(inertia):
    free = {"translation": np.zeros(3), "com": np.zeros(3), "joint": "free"}
    part = jg.rigid.Placement("top", None, mass=1.3, inertia=inertia, **free)
    return jg.rigid.from_placements([part], (0.0, 0.0, 0.0))


@pytest.mark.long
def test_a_free_top_keeps_its_energy_and_momentum():
    tree = top((0.02, 0.03, 0.045))
    q0, qd0 = jg.rigid.neutral(tree), jnp.array([0.1, -0.2, 0.3, 0.4, 9.0, -0.5])
    motion = jg.rigid.simulate(tree, q0, qd0, jnp.linspace(0.0, 3.0, 31))
    close(motion.q[:, :3], motion.t[:, None] * qd0[None, :3], 1e-9)
    np.testing.assert_allclose(jnp.linalg.norm(motion.q[:, 3:], axis=1), 1.0, rtol=1e-15)
    energy = jax.vmap(lambda q, v: jg.rigid.kinetic_energy(tree, q, v))(motion.q, motion.qd)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)
    spin = jax.vmap(lambda q, v: jg.rigid.centroidal_momentum(tree, q, v))(motion.q, motion.qd)
    close(spin, jnp.broadcast_to(spin[0], spin.shape), 1e-9)


@pytest.mark.long
def test_precession_of_a_symmetric_top():
    """In body axes the transverse rates turn at (C - A) / A times the axial one, and the
    axis goes round the momentum h at h / A."""
    a, c = 0.02, 0.035
    tree = top((a, a, c))
    qd0 = jnp.array([0.0, 0.0, 0.0, 1.5, 0.0, 6.0])
    times = jnp.linspace(0.0, 2.0, 11)
    motion = jg.rigid.simulate(tree, jg.rigid.neutral(tree), qd0, times)
    rate = (c - a) / a * 6.0
    exact = [1.5 * np.cos(rate * times), 1.5 * np.sin(rate * times), 6.0 + 0 * times]
    close(motion.qd[:, 3:], np.stack(exact, axis=1), 1e-9)
    h = np.array([a * 1.5, 0.0, c * 6.0])
    about, size = h / np.linalg.norm(h), np.linalg.norm(h)
    start = np.array([0.0, 0.0, 1.0])
    for t, q in zip(np.asarray(times), motion.q, strict=True):
        axis = jg.rigid.frame_pose(tree, q, "top").rotation[:, 2]
        turn = jg.spatial.axis_angle(jnp.asarray(about), jnp.asarray(size / a * t))
        close(axis, turn @ start, 1e-9)


@pytest.mark.long
def test_motions_are_differentiable_forwards_and_backwards():
    import diffrax

    tree = top((0.02, 0.03, 0.045))
    times = jnp.array([0.0, 0.3])
    still = jg.rigid.neutral(tree)
    start = jnp.array([0.1, -0.2, 0.3, 0.4, 9.0, -0.5])

    def last(qd0, adjoint=None):
        options = {"rtol": 1e-10, "atol": 1e-10, "adjoint": adjoint}
        motion = jg.rigid.simulate(tree, still, qd0, times, **options)
        return jnp.concatenate([motion.q[-1], motion.qd[-1]])

    forward = jax.jit(jax.jacfwd(lambda v: last(v, diffrax.ForwardMode())))(start)
    value = jax.jit(last)
    for k in (2, 4, 5):
        e = 1e-4 * jnp.eye(6)[k]
        close(forward[:, k], (value(start + e) - value(start - e)) / 2e-4, 1e-6)
    weight = jnp.arange(1.0, 14.0)
    backward = jax.jit(jax.grad(lambda v: weight @ last(v)))(start)
    close(backward, weight @ forward, 1e-7)


@pytest.mark.long
def test_a_chain_of_120_as_pinocchio():
    pin = pytest.importorskip("pinocchio")
    row = jg.rigid.DHRow("b0", None, 0.0, 0.0, 1.0, (0.05, 0.0, 0.0), (0.02, 0.03, 0.025))
    rows = [row]
    for i in range(1, 120):
        rows.append(row._replace(name=f"b{i}", parent=f"b{i - 1}", a=0.1, alpha=(-1.0) ** i))
    tree = jg.rigid.from_dh(rows)
    model = pin.Model()
    for i in range(120):
        place = pin.SE3(np.asarray(tree.rotation[i]), np.asarray(tree.translation[i]))
        j = model.addJoint(i, pin.JointModelRZ(), place, f"b{i}")
        inertia = pin.Inertia(1.0, np.asarray(tree.com[i]), np.asarray(tree.inertia[i]))
        model.appendBodyToJoint(j, inertia, pin.SE3.Identity())
    q, qd, tau = 0.3 * np.random.default_rng(3).normal(size=(3, 120))
    theirs = pin.aba(model, model.createData(), q, qd, tau)
    state = map(jnp.asarray, (q, qd, tau))
    close(jg.rigid.forward_dynamics(tree, *state), theirs, 1e-12)
