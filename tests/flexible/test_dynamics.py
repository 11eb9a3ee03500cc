import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

from .conftest import elastic_body, elastic_link, random_state


@pytest.mark.long
def test_lagrange(branched):
    """Inverse dynamics is what automatic differentiation makes of the two energies."""
    model, n = branched, branched.n
    q, eta, qd, etad, qdd, etadd, _ = random_state(model)
    x, xd = jnp.concatenate([q, eta]), jnp.concatenate([qd, etad])
    xdd = jnp.concatenate([qdd, etadd])

    def kinetic(x, xd):
        return jg.flexible.kinetic_energy(model, x[:n], x[n:], xd[:n], xd[n:])

    def potential(x):
        return jg.flexible.potential_energy(model, x[:n], x[n:])

    @jax.jit
    def lagrange(x, xd, xdd):
        rate = jax.jvp(jax.grad(kinetic, 1), (x, xd), (xd, xdd))[1]
        force = rate - jax.grad(kinetic)(x, xd) + jax.grad(potential)(x)
        return force, jax.jacfwd(jax.grad(kinetic, 1), 1)(x, xd)

    force, mass = lagrange(x, xd, xdd)
    damping = jnp.concatenate(
        [link.damping @ etad[part] for link, part in zip(model.links, model.slices, strict=True)]
    )
    force = force.at[n:].add(damping)
    found = jg.flexible.inverse_dynamics(model, q, eta, qd, etad, qdd, etadd)
    scale = float(jnp.abs(force).max())
    np.testing.assert_allclose(jnp.concatenate(found), force, atol=1e-13 * scale, rtol=1e-11)
    np.testing.assert_allclose(jg.flexible.mass_matrix(model, q, eta), mass, atol=1e-12)
    power = jg.flexible.dissipated_power(model, etad)
    np.testing.assert_allclose(power, etad @ damping, rtol=1e-13)


@pytest.mark.long
def test_forward_dynamics_is_the_inverse(branched):
    q, eta, qd, etad, _, _, tau = random_state(branched)
    qdd, etadd = jg.flexible.forward_dynamics(branched, q, eta, qd, etad, tau)
    back, rest = jg.flexible.inverse_dynamics(branched, q, eta, qd, etad, qdd, etadd)
    np.testing.assert_allclose(back, tau, rtol=1e-9)
    spring = max(float(jnp.abs(link.stiffness).max()) for link in branched.links) * 1e-3
    assert float(jnp.abs(rest).max()) < 1e-13 * spring


@pytest.mark.long
def test_mass_matrix(branched):
    """Symmetric, positive definite; the rigid one in its corner when nothing is deformed."""
    q, eta, *_ = random_state(branched)
    mass = jg.flexible.mass_matrix(branched, q, eta)
    np.testing.assert_array_equal(mass, mass.T)
    assert np.linalg.eigvalsh(mass).min() > 0
    n = branched.n
    flat = jg.flexible.mass_matrix(branched, q, 0 * eta)[:n, :n]
    np.testing.assert_allclose(flat, jg.rigid.crba(branched.tree, q), rtol=1e-12, atol=1e-14)


@pytest.mark.long
def test_rigid_functions_when_undeformed(branched):
    tree, rest = branched.tree, jnp.zeros(branched.k)
    q, _, qd, _, qdd, _, _ = random_state(branched)
    torque, _ = jg.flexible.inverse_dynamics(branched, q, rest, qd, rest, qdd, rest)
    np.testing.assert_allclose(torque, jg.rigid.rnea(tree, q, qd, qdd), rtol=1e-11)
    found = jg.flexible.forward_kinematics(branched, q, rest)
    wanted = jg.rigid.forward_kinematics(tree, q)
    np.testing.assert_allclose(found.rotation, wanted.rotation, atol=1e-14)
    np.testing.assert_allclose(found.translation, wanted.translation, atol=1e-14)


@pytest.mark.long
def test_derivatives(gripper):
    """The implicit derivative against central differences, in the state and in the numbers."""
    q, eta, qd, etad, _, _, tau = random_state(gripper, bend=1e-4)
    rng = np.random.default_rng(5)
    state = (q, eta, qd, etad, tau)
    steps = [jnp.asarray(rng.normal(size=v.shape)) for v in state]
    steps[1] = 1e-4 * steps[1]

    @jax.jit
    def along(h):
        model = jax.tree.map(lambda x: x * (1 + 0.3 * h), gripper)
        moved = [x + h * d for x, d in zip(state, steps, strict=True)]
        return jnp.concatenate(jg.flexible.forward_dynamics(model, *moved))

    h = 1e-3
    wide = (along(h) - along(-h)) / (2 * h)
    narrow = (along(h / 2) - along(-h / 2)) / h
    wanted = (4 * narrow - wide) / 3
    _, found = jax.jvp(along, (0.0,), (1.0,))
    np.testing.assert_allclose(found, wanted, atol=1e-8 * float(jnp.abs(wanted).max()))
    weights = jnp.arange(1.0, len(found) + 1)
    reverse = jax.grad(lambda h: weights @ along(h))(0.0)
    np.testing.assert_allclose(reverse, weights @ found, rtol=1e-10)


@pytest.mark.long
def test_new_numbers_do_not_compile_anew(gripper):
    q, eta, qd, etad, _, _, tau = random_state(gripper)
    jg.flexible.forward_dynamics(gripper, q, eta, qd, etad, tau)
    size = jg.flexible.forward_dynamics._cache_size()
    softer = jax.tree.map(lambda x: 0.9 * x, gripper)
    jg.flexible.forward_dynamics(softer, q, eta, qd, etad, tau)
    assert jg.flexible.forward_dynamics._cache_size() == size


def test_one_mode_by_hand():
    """A link that turns about z and bends in the plane in one given shape, derived on paper.

    With ψ the deflection: T = ½ (I + μ η²) φ'² + β φ' η' + ½ μ η'² with μ = ∫ρψ², β = ∫ρxψ.
    """
    body = elastic_body(0.5, (0.03, 0.02), (10, 2, 2), rho=2000.0)
    x = np.asarray(body.mesh.nodes)[:, 0]
    shape = np.zeros((1, len(x), 3))
    shape[0, :, 1] = x**2
    link = jg.flexible.elastic_link(body, shape, stiffening=False)
    rows = [
        jg.rigid.DHRow("link", None, 0.0, 0.0, 1.0, (0.2, 0.0, 0.0), (1e-3, 2e-3, 2e-3)),
    ]
    gravity = np.array([2.0, -9.0, 1.0])
    tree = jg.flexible.with_link_inertia(jg.rigid.from_dh(rows, gravity), {"link": link})
    model = jg.flexible.FlexibleTree(tree, {"link": link})
    # The elements interpolate x² linearly from node to node.
    ends = np.linspace(0, 0.5, 11)
    points, weights = np.polynomial.legendre.leggauss(3)
    place = (ends[:-1, None] + 0.025 * (1 + points)).ravel()
    line = np.tile(0.025 * weights, 10) * 2000.0 * 0.03 * 0.02
    psi = np.interp(place, ends, ends**2)
    mu, beta, first = line @ psi**2, line @ (place * psi), line @ psi
    mass = 2000.0 * 0.5 * 0.03 * 0.02
    moment = mass * (0.5**2 / 3 + 0.03**2 / 12)
    dense = jg.fem.stiffness(body).to_scipy()
    k = float(shape.ravel() @ (dense @ shape.ravel()))
    phi, eta, omega, rate, alpha, change = 0.7, 0.03, 5.0, -2.0, 3.0, 40.0
    c, s = np.cos(phi), np.sin(phi)
    along, across = gravity[0] * c + gravity[1] * s, -gravity[0] * s + gravity[1] * c
    torque = (moment + mu * eta**2) * alpha + beta * change + 2 * mu * eta * rate * omega
    torque -= mass * 0.25 * across - first * eta * along
    force = beta * alpha + mu * change - mu * eta * omega**2 + k * eta - first * across
    one = [jnp.array([v]) for v in (phi, eta, omega, rate, alpha, change)]
    found = jnp.concatenate(jg.flexible.inverse_dynamics(model, *one))
    np.testing.assert_allclose(found, [torque, force], rtol=1e-10)
    exact = np.array([[moment + mu * eta**2, beta], [beta, mu]])
    np.testing.assert_allclose(jg.flexible.mass_matrix(model, *one[:2]), exact, rtol=1e-10)
    # Left to itself the shape moves so that no force is missing.
    free = np.linalg.solve(exact, exact @ [alpha, change] - [0.0, force])
    found = jg.flexible.forward_dynamics(model, *one[:4], jnp.array([torque]))
    np.testing.assert_allclose(jnp.concatenate(found), free, rtol=1e-9)


def hub_and_beam(ratio, count):
    """Roots λ of an Euler-Bernoulli beam on a free hub of inertia ratio · ρAL³ about its root."""

    def determinant(x):
        c, s, ch, sh = np.cos(x), np.sin(x), np.cosh(x), np.sinh(x)
        # Displacement 0 at the root, curvature + ratio λ⁴ slope = 0 there, free at the end.
        rows = [
            [1, 0, 1, 0],
            [-1, ratio * x**3, 1, ratio * x**3],
            [-c, -s, ch, sh],
            [s, -c, sh, ch],
        ]
        return np.linalg.det(np.array(rows))

    from scipy.optimize import brentq

    grid = np.linspace(0.5, 12.0, 400)
    values = [determinant(x) for x in grid]
    cross = [i for i in range(399) if values[i] * values[i + 1] < 0]
    return np.array([brentq(determinant, grid[i], grid[i + 1]) for i in cross[:count]])


@pytest.mark.long
@pytest.mark.parametrize("ratio", [0.02, 0.5])
def test_frequencies_of_hub_and_beam(ratio):
    """Linearised at rest; the scale is the beam's own clamped frequency, which cancels locking."""
    length, height, width = 1.0, 0.02, 0.03
    body = elastic_body(length, (height, width), (60, 1, 1), nu=0.0)
    link = elastic_link(body, 12)
    hub = ratio * float(link.mass) * length**2
    small = hub / 1e6
    bodies = [
        jg.rigid.Placement("hub", None, (0.0, 0.0, 0.0), 0.1, (0.0, 0.0, 0.0), (hub, hub, hub)),
        jg.rigid.Placement("beam", "hub", (0.0,) * 3, 1.0, (0.0,) * 3, (small,) * 3, joint="fixed"),
    ]
    tree = jg.flexible.with_link_inertia(
        jg.rigid.from_placements(bodies, (0.0, 0.0, 0.0)), {"beam": link}
    )
    model = jg.flexible.FlexibleTree(tree, {"beam": link})
    mass = np.asarray(jg.flexible.mass_matrix(model, jnp.zeros(1), jnp.zeros(model.k)))
    stiffness = np.zeros_like(mass)
    stiffness[1:, 1:] = link.stiffness
    from scipy.linalg import eigh

    values, vectors = eigh(stiffness, mass)
    turning = np.abs(vectors[0]) > 1e-3 * np.abs(vectors[0]).max()
    found = np.sqrt(values[turning][1:4])
    clamped = 1.8751040687119611
    scale = float(jnp.sqrt(link.stiffness[0, 0])) / clamped**2
    np.testing.assert_allclose(found, scale * hub_and_beam(ratio, 3) ** 2, rtol=5e-3)


def test_momentum_when_undeformed(branched):
    """The sum over rigid bodies, from the derivatives of their poses."""
    tree, rest = branched.tree, jnp.zeros(branched.k)
    q, _, qd, *_ = random_state(branched)

    def poses(q):
        place = jg.rigid.forward_kinematics(tree, q)
        arm = jnp.einsum("bxy,by->bx", place.rotation, tree.com)
        return place.rotation, place.translation + arm

    (rotation, centre), (turning, speed) = jax.jvp(poses, (q,), (qd,))
    spin = np.einsum("bxy,bzy->bxz", turning, rotation)
    w = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
    push = np.asarray(tree.mass)[:, None] * speed
    twist = np.einsum("bxy,byz,bwz,bw->bx", rotation, tree.inertia, rotation, w)
    momentum, angular = jg.flexible.momentum(branched, q, rest, qd, rest)
    np.testing.assert_allclose(momentum, push.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(angular, (twist + np.cross(centre, push)).sum(axis=0), rtol=1e-12)


def test_points_move_with_their_face(branched):
    """With the link where nothing is deformed; then by the mean motion of the face."""
    tree, rest, point = branched.tree, jnp.zeros(branched.k), jnp.array([0.32, 0.05, -0.02])
    q, *_ = random_state(branched)
    link, part = branched.link("arm")
    face = link.interface.index("x1")

    def tip(eta):
        return jg.flexible.tip_position(branched, q, eta, "arm", "x1", point)

    place, i = jg.rigid.forward_kinematics(tree, q), tree.body("arm")
    (found, slope) = jax.jvp(tip, (rest,), (rest.at[part].set(jnp.array([1.0, -2.0, 3.0])),))
    np.testing.assert_allclose(found, place.rotation[i] @ point + place.translation[i], atol=1e-14)
    way, turn = (
        np.asarray(x)[face] @ [1.0, -2.0, 3.0]
        for x in (link.interface.translation, link.interface.rotation)
    )
    expected = way + np.cross(turn, point - link.interface.centre[face])
    np.testing.assert_allclose(slope, place.rotation[i] @ expected, rtol=1e-12)
