import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

from .conftest import elastic_body, elastic_link

DURATION = 0.137


def path(finger, t):
    """Angles of a smooth motion of the finger from start to end, with rates and accelerations."""
    s = t / DURATION
    steps = (
        s**4 * (35 - 84 * s + 70 * s**2 - 20 * s**3),
        140 * (s * (1 - s)) ** 3 / DURATION,
        420 * (s * (1 - s)) ** 2 * (1 - 2 * s) / DURATION**2,
    )
    way = finger.end - finger.start
    return finger.start + way * steps[0], way * steps[1], way * steps[2]


@pytest.fixture(scope="module")
def follow(finger):
    """Simulation under the torques that would drive rigid links along the path."""

    def torque(t, *_):
        return jg.rigid.rnea(finger.tree, *path(finger, t))

    def run(model, times):
        rest = jnp.zeros(3)
        eta = jg.flexible.quasi_static(model, finger.start, rest, rest)
        return jg.flexible.simulate(
            model, finger.start, eta, rest, 0 * eta, times, torque, rtol=1e-8, atol=1e-8
        )

    return jax.jit(run), jax.jit(jax.vmap(torque))


@pytest.fixture(scope="module")
def gauss():
    """Times and weights of Gauss' rule on 60 intervals of the motion, with both ends."""
    x, w = np.polynomial.legendre.leggauss(5)
    ends = np.linspace(0, DURATION, 61)
    half = DURATION / 120
    times = (ends[:-1, None] + half * (1 + x)).ravel()
    return jnp.asarray(np.r_[0.0, times, DURATION]), np.r_[0.0, np.tile(half * w, 60), 0.0]


@pytest.mark.long
def test_energy_balance(gripper, follow, gauss):
    """Work of the torques less what damping takes is the change of energy."""
    run, torque = follow
    times, weights = gauss
    motion = run(gripper, times)
    power = np.einsum("ti,ti->t", motion.qd, torque(times))
    loss = jax.vmap(jg.flexible.dissipated_power, (None, 0))(gripper, motion.etad)

    def energy(i):
        state = motion.q[i], motion.eta[i]
        kinetic = jg.flexible.kinetic_energy(gripper, *state, motion.qd[i], motion.etad[i])
        return float(kinetic + jg.flexible.potential_energy(gripper, *state))

    work, change = float(weights @ power), energy(-1) - energy(0)
    exchanged = float(weights @ np.abs(power))
    assert float(weights @ np.asarray(loss)) > 0
    assert abs(work - float(weights @ np.asarray(loss)) - change) < 1e-6 * exchanged
    np.testing.assert_allclose(work - float(weights @ np.asarray(loss)), change, rtol=1e-5)


@pytest.mark.soak
def test_stiff_links_follow_the_rigid_motion(gripper, finger, follow, gauss):
    """Tenfold stiffness brings the joints ten times nearer to the rigid motion, and the bending
    ten times nearer, in its own measure, to the one-way response to that motion."""
    run, _ = follow
    times = gauss[0]
    q, qd, qdd = jax.vmap(lambda t: path(finger, t))(times)
    one_way = jax.vmap(jg.flexible.quasi_static, (None, 0, 0, 0))(gripper, q, qd, qdd)
    joints, bending = [], []
    for factor in (1.0, 10.0, 100.0):
        model = eqx.tree_at(
            lambda m: [link.stiffness for link in m.links],
            gripper,
            [factor * link.stiffness for link in gripper.links],
        )
        motion = run(model, times)
        joints.append(float(jnp.abs(motion.q - q).max()))
        bending.append(float(jnp.abs(factor * motion.eta - one_way).max() / jnp.abs(one_way).max()))
    print("joints", joints, "bending", bending)
    np.testing.assert_allclose(np.divide(joints[:-1], joints[1:]), 10, rtol=0.1)
    np.testing.assert_allclose(np.divide(bending[:-1], bending[1:]), 10, rtol=0.1)


@pytest.mark.long
def test_one_way_loads(gripper, finger):
    """The loads on undeformed links are those of the rigid recursion."""
    tree = finger.tree
    q, qd, qdd = path(finger, jnp.asarray(0.03))
    found = jg.flexible.quasi_static(gripper, q, qd, qdd)
    bodies = jg.rigid.rnea_bodies(tree, q, qd, qdd)
    turn = jg.rigid.forward_kinematics(tree, q).rotation
    between = turn[1].T @ turn[2]
    for name, i in (("link2", 1), ("link3", 2)):
        body = elastic_body(float(finger.link_lengths[i]), damping=(1.0, 8e-5))
        frame = jg.fem.FrameMotion(bodies.vd[i], bodies.w[i], bodies.wd[i])
        load = jg.fem.inertia(body).frame_load(frame)
        if i == 1:
            wrench = (-between @ bodies.F[2], -between @ bodies.N[2])
            load = load + jg.fem.tip_wrench(body, "x1", *wrench)
        link, part = gripper.link(name)
        shapes = jg.flexible.shapes(body, 3)
        wanted = jnp.einsum("knd,nd->k", shapes, load) / jnp.diagonal(link.stiffness)
        scale = float(jnp.abs(wanted).max())
        np.testing.assert_allclose(found[part], wanted, atol=1e-9 * scale)
        u = jg.flexible.displacement(gripper, found, name, shapes)
        np.testing.assert_allclose(
            u, jnp.tensordot(wanted, shapes, 1), atol=1e-9 * float(jnp.abs(u).max())
        )


@pytest.mark.soak
def test_floating_body_keeps_momentum():
    """A bent, turning beam with a mass at its tip, free in the plane and out of plane bending."""
    body = elastic_body(0.5, (0.01, 0.012), (12, 1, 1), E=2e9, rho=1500.0)
    link = elastic_link(body, 4)
    small, still = (1e-13,) * 3, (0.0, 0.0, 0.0)

    def carrier(name, parent, axis, joint):
        return jg.rigid.Placement(name, parent, still, 1e-11, still, small, axis, joint=joint)

    bodies = [
        carrier("x", None, (1.0, 0.0, 0.0), "prismatic"),
        carrier("y", "x", (0.0, 1.0, 0.0), "prismatic"),
        carrier("z", "y", (0.0, 0.0, 1.0), "prismatic"),
        carrier("a", "z", (0.0, 1.0, 0.0), "revolute"),
        carrier("b", "a", (0.0, 0.0, 1.0), "revolute"),
        carrier("beam", "b", (1.0, 0.0, 0.0), "revolute"),
        jg.rigid.Placement(
            "mass", "beam", (0.5, 0.0, 0.0), 0.05, still, (1e-5,) * 3, joint="fixed"
        ),
    ]
    tree = jg.flexible.with_link_inertia(
        jg.rigid.from_placements(bodies, (0.0, 0.0, 0.0)), {"beam": link}
    )
    model = jg.flexible.FlexibleTree(tree, {"beam": link})
    q = jnp.array([0.1, -0.2, 0.3, 0.2, 0.4, -0.3])
    qd = jnp.array([0.5, 1.0, -0.3, 2.0, 3.0, 1.0])
    eta = jnp.array([2e-3, 1e-3, 2e-4, 1e-4])
    motion = jg.flexible.simulate(
        model,
        q,
        eta,
        qd,
        0 * eta,
        jnp.linspace(0, 0.05, 6),
        rtol=1e-10,
        atol=1e-10,
        solver=diffrax.Dopri8(),
    )
    assert float(jnp.abs(motion.eta[:, 0]).min()) < 0.9 * float(jnp.abs(motion.eta[:, 0]).max())

    @jax.jit
    @jax.vmap
    def invariants(q, eta, qd, etad):
        kinetic = jg.flexible.kinetic_energy(model, q, eta, qd, etad)
        energy = kinetic + jg.flexible.potential_energy(model, q, eta)
        return *jg.flexible.momentum(model, q, eta, qd, etad), energy[None]

    for values in invariants(motion.q, motion.eta, motion.qd, motion.etad):
        drift = jnp.abs(values - values[:1]).max() / jnp.linalg.norm(values[0])
        assert float(drift) < 1e-8


@pytest.mark.soak
def test_faster_than_the_first_vibration():
    """On a heavy hub the lag vibration has Southwell's frequency, w² = w1² + 0.193 Ω²; without
    stiffening it grows like cosh √(Ω² - w1²) t, which is told."""
    mesh = jg.fem.line_mesh(1.0, 8, element=jg.fem.EulerBernoulli())
    section = jg.fem.BeamSection.rectangle(jg.fem.Isotropic(7e10, 0.0, 2700.0), 0.005, 0.02)
    body = jg.fem.Body(mesh, section, clamp="x0")
    mode = jg.fem.modes(body, 1)
    w1 = float(mode.frequency[0])
    # It bends where the beam is thin, in the plane of the turn.
    assert abs(mode.shape[0, -1, 1]) > 1e3 * abs(mode.shape[0, -1, 2])
    rows = [jg.rigid.DHRow("beam", None, 0.0, 0.0, 1e3, (0.0, 0.0, 0.0), (1e6, 1e6, 1e6))]
    tree = jg.rigid.from_dh(rows, (0.0, 0.0, 0.0))
    speed, half = 1.5 * w1, np.pi / (w1 * np.sqrt(1 + 0.193 * 1.5**2))

    def bend(**options):
        link = jg.flexible.elastic_link(body, mode.shape, **options)
        model = jg.flexible.FlexibleTree(tree, {"beam": link})
        zero, one = jnp.zeros(1), jnp.full(1, 1e-4)
        times = jnp.array([0.0, half / 2, half])
        motion = jg.flexible.simulate(
            model, zero, one, jnp.full(1, speed), zero, times, solver=diffrax.Dopri8()
        )
        return motion.eta[1:, 0] / 1e-4

    np.testing.assert_allclose(bend(), [0.0, -1.0], atol=0.01)
    with pytest.warns(UserWarning, match=r"'beam' rotated at up to .* faster.*stiffening=True"):
        soft = bend(stiffening=False)
    grown = np.cosh(np.sqrt(1.5**2 - 1) * w1 * half * np.array([0.5, 1.0]))
    np.testing.assert_allclose(soft, grown, rtol=0.01)


@pytest.mark.soak
def test_gradient_of_the_tip_error(finger):
    """By Young's modulus, length and density, for many variants at once."""
    times = jnp.array([0.0, 2e-3])

    def tip(factors):
        modulus, length, density = factors
        body = elastic_body(
            0.06 * length, (0.005, 0.005), (6, 1, 1), E=7e8 * modulus, rho=2700.0 * density
        )
        link = elastic_link(body, 2)
        lengths = jnp.stack([jnp.asarray(0.02), 0.06 * length, jnp.asarray(0.07)])
        tree = jg.models.gripper_finger("A", link_lengths=lengths).tree
        model = jg.flexible.FlexibleTree(tree, {"link2": link})
        rest, flat = jnp.zeros(3), jnp.zeros(2)
        motion = jg.flexible.simulate(
            model,
            finger.start,
            flat,
            rest,
            flat,
            times,
            lambda t, *_: finger.torque_limit * jnp.array([1.0, -1.0, -1.0]),
            rtol=1e-12,
            atol=1e-12,
            solver=diffrax.Dopri8(),
            adjoint=diffrax.ForwardMode(),
        )
        place = jg.flexible.forward_kinematics(model, motion.q[-1], motion.eta[-1])
        point = jnp.array([0.07, 0.0, 0.0])
        return 1e3 * (place.translation[2] + place.rotation[2] @ point)

    nothing = jnp.ones(3)
    found = jax.jit(jax.jacfwd(tip))(nothing)
    h = 1e-2
    steps = np.array([-h, -h / 2, h / 2, h])
    variants = 1.0 + steps[:, None, None] * jnp.eye(3)[None]
    values = jax.jit(jax.vmap(tip))(variants.reshape(-1, 3)).reshape(4, 3, 3)
    wide, narrow = (values[3] - values[0]) / (2 * h), (values[2] - values[1]) / h
    wanted = ((4 * narrow - wide) / 3).T
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * float(jnp.abs(wanted).max()))
    by_modulus = float(jnp.abs(found[:, 0]).max())
    np.testing.assert_allclose(found[:, 0], wanted[:, 0], atol=1e-6 * by_modulus)


@pytest.mark.long
def test_bad_input(gripper, finger):
    rest, flat = jnp.zeros(3), jnp.zeros(6)
    with pytest.raises(ValueError, match=r"eta0 has the shape \(3,\); it must be \(6,\)"):
        jg.flexible.simulate(gripper, rest, rest, rest, rest, jnp.linspace(0, 1, 3))
    with pytest.raises(ValueError, match="q0 is not finite"):
        jg.flexible.simulate(gripper, rest + jnp.nan, flat, rest, flat, jnp.linspace(0, 1, 3))
    with pytest.raises(ValueError, match="times must be finite and must not decrease"):
        jg.flexible.simulate(gripper, rest, flat, rest, flat, jnp.array([1.0, 0.0]))
    start = {"q0": rest, "eta0": flat, "qd0": rest, "etad0": flat}
    times = jnp.linspace(0, 1, 3)
    for name, x in start.items():
        for bad in (jnp.nan, jnp.inf):
            broken = start | {name: x.at[1].set(bad)}
            with pytest.raises(ValueError, match=rf"^{name} is not finite"):
                jg.flexible.simulate(gripper, **broken, times=times)
    with pytest.raises(ValueError, match="times must be finite and must not decrease"):
        jg.flexible.simulate(gripper, **start, times=jnp.array([0.0, jnp.inf]))
    for change, message in (
        ({"rtol": 0.0}, "rtol is 0; it must be positive"),
        ({"atol": jnp.nan}, "atol is not finite"),
        ({"jumps": jnp.array([0.2, 0.1])}, "jumps must be finite and must not decrease"),
        ({"torque": lambda *_: jnp.zeros(2)}, r"torque has the shape \(2,\); it must be \(3,\)"),
        (
            {"torque": lambda *_: None},
            "result of the torque is None; it must be a number",
        ),
        ({"torque": lambda t: rest}, r"of \(t\); it must be a function of \(t, q, eta, qd, etad\)"),
    ):
        with pytest.raises(ValueError, match=message):
            jg.flexible.simulate(gripper, **start, times=times, **change)
