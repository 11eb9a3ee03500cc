"""Rods, strut and double wishbone of Kracht 2017; independent values (SciPy)."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg
from jaxgrip.mechanism.historical.rod import (
    Rod,
    Strut,
    chain,
    heun,
    joint_force,
    rod_block,
    rod_energy,
    rotation,
    strut_length,
    unstressed,
)

ENERGIES = jax.jit(jax.vmap(rod_energy, (None, 0)))
STILL = jnp.zeros(3)
START = jnp.array([0.5, -np.pi / 2, 0.0, 2.0])
DOWN = (0.0, -9.81, 0.0)


@eqx.filter_jit
def motion(rate, x0, times, numbers=None, rtol=1e-11):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        diffrax.Dopri8(),
        times[0],
        times[-1],
        None,
        x0,
        args=numbers,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol),
        max_steps=100_000,
    ).ys


def swing(t, x, rod):
    return rod_block(rod, x, STILL, STILL).rate


def drift(rod):
    path = motion(swing, START, jnp.linspace(0, 5, 501), rod)
    energy = ENERGIES(rod, path)
    return float(energy[0]), float(jnp.max(jnp.abs(energy - energy[0])))


@pytest.mark.long
def test_energy_of_both_modes():
    """The source's equations leave out the moment of the universal joint."""
    start, lost = drift(Rod(0.4, 1.0, gravity=DOWN))
    assert lost < 1e-8
    np.testing.assert_allclose(start, -1.640, rtol=0, atol=5.1e-4)
    np.testing.assert_allclose(
        drift(Rod(0.4, 1.0, gravity=DOWN, mode="printed"))[1], 0.0245, rtol=0, atol=5.1e-5
    )
    # A thick rod, whose joint transmits a moment.
    assert drift(Rod(0.4, 1.0, (0.01, 0.014, 0.012), gravity=DOWN))[1] < 1e-8


def test_modes_agree_with_one_angle_at_rest():
    thick = (0.01, 0.014, 0.012)
    exact, printed = (Rod(0.4, 1.0, thick, mode=mode) for mode in ("exact", "printed"))
    for state, load in (
        ([0.4, 0.7, 1.3, 0.0], [3 * np.cos(0.7), 3 * np.sin(0.7), 5.0]),
        ([0.0, 0.7, 0.0, 1.3], [3.0, -2.0, 5.0]),
    ):
        state, load = jnp.array(state), jnp.array(load)
        a, b = (rod_block(rod, state, STILL, load) for rod in (exact, printed))
        np.testing.assert_allclose(a.rate, b.rate, rtol=0, atol=1e-12)


def universal(thick):
    """The same rod as a tree, its universal joint with a cross that has no mass."""
    half = 0.2
    cross = jg.rigid.Placement("cross", None, (0.0, 0, 0), 0.0, (0.0, 0, 0), (0.0, 0, 0))
    rod = jg.rigid.Placement("rod", "cross", (0.0, 0, 0), 1.0, (half, 0, 0), thick, (0.0, -1, 0))
    return jg.rigid.from_placements([cross, rod], gravity=DOWN)


def test_exact_mode_is_a_tree_with_a_universal_joint():
    thick = (0.01, 0.014, 0.012)
    tree, rod = universal(thick), Rod(0.4, 1.0, thick, gravity=DOWN)
    state = jnp.array([0.5, -1.1, 0.8, 2.0])
    q, qd = state[jnp.array([1, 0])], state[jnp.array([3, 2])]
    load = jnp.array([3.0, -2.0, 5.0])

    def tip(q):
        # The rod's x axis is horizontal in its joint's frame, too.
        axes = rotation(q[1], q[0])
        return 0.4 * axes[0]

    torque = jax.jacfwd(tip)(q).T @ load
    block = rod_block(rod, state, STILL, load)
    for dynamics in (jg.rigid.forward_dynamics, jg.rigid.aba):
        qdd = dynamics(tree, q, qd, torque)
        np.testing.assert_allclose(block.rate[2:], qdd[::-1], rtol=1e-12)
    # The acceleration of the outer end is that of its position.
    curve = jax.jvp(lambda x: jax.jvp(tip, (x,), (qd,))[1], (q,), (qd,))[1]
    np.testing.assert_allclose(
        block.acceleration, curve + jax.jacfwd(tip)(q) @ qdd, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        rod_energy(rod, state),
        jg.rigid.kinetic_energy(tree, q, qd) + jg.rigid.potential_energy(tree, q),
        rtol=1e-12,
    )


def test_joint_force_is_the_force_that_moves_the_mass_centre():
    rod = Rod(0.4, 1.5, (0.01, 0.014, 0.012), gravity=DOWN)
    state, a = jnp.array([0.5, -1.1, 0.8, 2.0]), jnp.array([1.0, 2.0, -3.0])
    load = jnp.array([3.0, -2.0, 5.0])
    block = rod_block(rod, state, a, load)
    centre = (a + block.acceleration) / 2
    np.testing.assert_allclose(
        block.force + load + 1.5 * jnp.array(DOWN), 1.5 * centre, rtol=0, atol=1e-12
    )


@pytest.mark.long
def test_double_pendulum():
    """In the x-z plane against a tree; in space energy is conserved."""
    rods = [Rod(0.4, 1.0), Rod(0.3, 2.0)]
    bodies = [
        jg.rigid.Placement(
            name,
            parent,
            (x, 0.0, 0.0),
            mass,
            (size / 2, 0.0, 0.0),
            (1e-9, mass * size**2 / 12, mass * size**2 / 12),
            (0.0, -1.0, 0.0),
        )
        for name, parent, x, mass, size in (
            ("first", None, 0.0, 1.0, 0.4),
            ("second", "first", 0.4, 2.0, 0.3),
        )
    ]
    tree = jg.rigid.from_placements(bodies)
    q, qd = jnp.array([0.3, 0.5]), jnp.array([1.0, -2.0])
    states = jnp.array([[0.3, 0.0, 1.0, 0.0], [0.8, 0.0, -1.0, 0.0]])
    found = jnp.stack([b.rate[2] for b in chain(rods, states)])
    qdd = jg.rigid.forward_dynamics(tree, q, qd, jnp.zeros(2))
    np.testing.assert_allclose(found, [qdd[0], qdd[0] + qdd[1]], rtol=1e-12)

    def energy(x):
        first, second = x.reshape(2, 4)

        def along(length, state):
            """Position and velocity of a point along a rod, from its joint."""
            return jax.jvp(lambda angles: length * rotation(*angles)[0], (state[:2],), (state[2:],))

        (tip, speed), (_, own) = along(0.4, first), along(0.15, second)
        carried = speed @ speed + 2 * speed @ own + 2 * 9.81 * tip[2]
        return rod_energy(rods[0], first) + rod_energy(rods[1], second) + carried

    path = motion(
        lambda t, x, r: jnp.concatenate([b.rate for b in chain(r, x.reshape(2, 4))]),
        jnp.array([0.3, 0.2, 0.0, 1.5, -0.4, 0.9, 0.5, -1.0]),
        jnp.linspace(0, 2, 201),
        rods,
    )
    energies = jax.jit(jax.vmap(energy))(path)
    assert jnp.max(jnp.abs(energies - energies[0])) < 1e-8


@pytest.mark.long
def test_strut():
    strut = unstressed(Strut((0.1, 0.2, 0.5), 0.28, 2e4, 0.0, 0.0), (0.3, -0.2))
    assert strut_length(strut, jnp.array([0.3, -0.2])) == strut.free_length
    rod = Rod(0.4, 3.0, strut=strut)
    x0 = jnp.array([0.3, -0.2, 1.0, 2.0])
    path = motion(swing, x0, jnp.linspace(0, 1, 101), rod)
    energy = ENERGIES(rod, path)
    assert jnp.max(jnp.abs(energy - energy[0])) < 1e-8
    # A damper dissipates the power c l'^2.
    damped = Rod(0.4, 3.0, strut=Strut((0.1, 0.2, 0.5), 0.28, 2e4, 150.0, 0.4))
    rate = rod_block(damped, x0, STILL, STILL).rate
    _, lost = jax.jvp(lambda x: rod_energy(damped, x), (x0,), (rate,))
    x, y, z = 0.1, 0.2, 0.5
    (ct, st), (cp, sp) = ((np.cos(v), np.sin(v)) for v in (0.3, -0.2))
    length = np.linalg.norm(np.array([x, y, z]) - 0.28 * np.array([ct * cp, ct * sp, st]))
    stretching = (
        0.28
        / length
        * (1.0 * (x * cp * st + y * sp * st - z * ct) + 2.0 * (x * sp * ct - y * cp * ct))
    )
    np.testing.assert_allclose(lost, -150.0 * stretching**2, rtol=1e-12)


def test_gradients_of_a_block():
    def out(length, mass, thick, state, a, force):
        rod = Rod(length, mass, thick, strut=Strut((0.1, 0.2, 0.5), 0.28, 20.0, 1.5, 0.4))
        return jnp.concatenate(rod_block(rod, state, a, force))

    args = (0.4, 1.3, jnp.array([0.01, 0.014, 0.012]), START + 0.1, STILL + 0.3, STILL + 0.7)
    check_grads(jax.jit(out), args, order=1, modes=("fwd", "rev"), rtol=1e-6, eps=1e-5)


WISHBONE = jg.models.double_wishbone()
FALLING = jg.models.double_wishbone(gravity=(0.0, -9.81))
TIMES = jnp.linspace(0, 10, 1001)


def shake(t, x, wishbone):
    return wishbone.rate(x, 10 * jnp.sin(10 * t))


def coast(t, x, wishbone):
    return wishbone.rate(x)


def shaken(wishbone):
    return motion(shake, jnp.zeros(2), TIMES, wishbone, rtol=1e-10)[:, 0]


def harmonic(angle):
    """Mean, amplitude and phase over the last four periods, by least squares."""
    t = np.asarray(TIMES)
    last = t >= 10 - 4 * 2 * np.pi / 10
    basis = np.stack([np.ones_like(t), np.sin(10 * t), np.cos(10 * t)], axis=1)[last]
    mean, sine, cosine = np.linalg.lstsq(basis, np.asarray(angle)[last])[0]
    return mean, np.hypot(sine, cosine), np.arctan2(cosine, sine)


def test_wishbone_numbers():
    np.testing.assert_allclose(WISHBONE.linkage.coupler, 0.304138, rtol=0, atol=5.1e-7)
    np.testing.assert_allclose(WISHBONE.free_length, 0.468402, rtol=0, atol=5.1e-7)
    inertia = WISHBONE.inertia(0.0)
    lever = jax.grad(lambda x: WISHBONE.layout(x).strut)(0.0)
    np.testing.assert_allclose(inertia, 4.26667, rtol=0, atol=5.1e-6)
    np.testing.assert_allclose(lever, -0.26900, rtol=0, atol=5.1e-6)
    frequency = jnp.sqrt(WISHBONE.stiffness * lever**2 / inertia)
    np.testing.assert_allclose(frequency, 18.417, rtol=0, atol=5.1e-4)
    ratio = WISHBONE.damping * lever**2 / (2 * inertia * frequency)
    np.testing.assert_allclose(ratio, 0.6906, rtol=0, atol=5.1e-5)


@pytest.mark.long
def test_wishbone_of_rod_blocks():
    """Both arms as rods, the carrier by Newton and Euler; forces in its joints close the loop."""
    wishbone = jg.models.double_wishbone(gravity=(1.0, -9.81))
    linkage, branch = wishbone.linkage, wishbone.branch
    angle, speed, load = jnp.asarray(0.1), 1.5, 200.0
    phi = angle - linkage.direction
    at = jg.mechanism.historical.planar.joints(linkage, phi, branch)
    turn = jax.jacfwd(lambda x: jg.mechanism.historical.planar.position(linkage, x, branch))(phi)
    psi = jg.mechanism.historical.planar.position(linkage, phi, branch).psi + linkage.direction
    still, down = jnp.zeros(2), jnp.array([1.0, -9.81])

    def in_space(x):
        return jnp.stack([x[0], 0.0 * x[0], x[1]])

    strut = Strut((0.15, 0.0, 0.45), 0.28, 20e3, 1500.0, wishbone.free_length)
    lower = Rod(0.4, 3.0, gravity=in_space(down), strut=strut)
    upper = Rod(0.3, 2.0, gravity=in_space(down))
    states = jnp.array([[angle, 0.0, speed, 0.0], [psi, 0.0, turn.psi * speed, 0.0]])

    def arm(rod, state, force):
        return rod_block(rod, state, STILL, in_space(force))

    def arms(forces):
        first, second = forces.reshape(2, 2)
        ends = [
            arm(*x).acceleration for x in ((lower, states[0], first), (upper, states[1], second))
        ]
        return jnp.concatenate([end[jnp.array([0, 2])] for end in ends])

    def carrier(forces):
        centre = (at.A + at.B) / 2
        levers = jnp.stack([at.A - centre, at.B - centre, at.C - centre])
        all_forces = jnp.stack([*forces.reshape(2, 2), still.at[1].set(load)])
        moments = levers[:, 0] * all_forces[:, 1] - levers[:, 1] * all_forces[:, 0]
        spin, swing = jnp.sum(moments) / 0.5, turn.theta * speed
        own = jnp.sum(all_forces, axis=0) / 25.0 + down
        left = jnp.stack([-levers[:2, 1], levers[:2, 0]], axis=1)
        return (own[None] + spin * left - swing**2 * levers[:2]).reshape(4)

    forces = joint_force(arms, carrier, 4)
    np.testing.assert_allclose(
        arm(lower, states[0], forces[:2]).rate[2],
        wishbone.rate(jnp.stack([angle, jnp.asarray(speed)]), load)[1],
        rtol=1e-11,
    )


@pytest.mark.long
def test_comfort_has_a_gradient():
    """Root mean square of the angle over the steps, by stiffness and damping."""

    @jax.jit
    def roughness(numbers):
        wishbone = jg.models.double_wishbone(stiffness=numbers[0] * 1e4, damping=numbers[1] * 1e3)
        path = heun(lambda t, x: wishbone.rate(x, 10 * jnp.sin(10 * t)), jnp.zeros(2), 0.05, 40)
        return 1e3 * jnp.sqrt(jnp.mean(path[:, 0] ** 2))

    numbers, h = jnp.array([2.0, 1.5]), 1e-5
    steps = h * jnp.eye(2)
    central = [(roughness(numbers + d) - roughness(numbers - d)) / (2 * h) for d in steps]
    np.testing.assert_allclose(jax.grad(roughness)(numbers), central, rtol=1e-8)
    assert roughness._cache_size() == 1


def test_impossible_rods():
    with pytest.raises(ValueError, match="The mass of a rod is 0 kg; it must be positive"):
        Rod(0.4, 0.0)
    with pytest.raises(ValueError, match="no mode 'fast'; modes are exact and printed"):
        Rod(0.4, 1.0, mode="fast")
    with pytest.raises(ValueError, match="The printed equations need an inertia along the rod"):
        Rod(0.4, 1.0, (0.0, 0.1, 0.2), mode="printed")
    with pytest.raises(ValueError, match="The reach of a strut is -1 m; it must be positive"):
        Strut((0.0, 0.0, 1.0), -1.0, 1.0, 1.0, 1.0)


@pytest.mark.long
def test_wishbone_keeps_its_energy():
    free = jg.models.double_wishbone(gravity=(1.0, -9.81), damping=0.0)
    # Ends of steps, not between them.
    path = jnp.stack(
        [motion(coast, jnp.array([0.1, 3.0]), jnp.array([0.0, end]), free)[-1] for end in (0, 1, 2)]
    )
    energy = jax.jit(jax.vmap(free.energy))(path)
    assert jnp.ptp(path[:, 1]) > 1.0
    assert jnp.max(jnp.abs(energy - energy[0])) < 1e-8


def test_wishbone_shaken():
    angle = shaken(WISHBONE)
    _, amplitude, phase = harmonic(angle)
    np.testing.assert_allclose(amplitude, 2.6848e-3, rtol=0, atol=5.1e-8)
    np.testing.assert_allclose(phase, -0.8162, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(angle[-1], -2.6199e-3, rtol=0, atol=5.1e-8)
    # The step and the method of the source.
    rough = heun(lambda t, x: WISHBONE.rate(x, 10 * jnp.sin(10 * t)), jnp.zeros(2), 0.05, 200)[:, 0]
    np.testing.assert_allclose(jnp.max(jnp.abs(rough - angle[::5])), 1.4e-4, rtol=0, atol=5.1e-6)


def test_wishbone_shaken_with_gravity():
    angle = shaken(FALLING)
    mean, amplitude, phase = harmonic(angle)
    np.testing.assert_allclose(mean, -0.07679, rtol=0, atol=5.1e-6)
    np.testing.assert_allclose(amplitude, 2.8250e-3, rtol=0, atol=5.1e-8)
    np.testing.assert_allclose(phase, -0.8402, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(angle[-1], -0.0795645, rtol=0, atol=5.1e-8)
