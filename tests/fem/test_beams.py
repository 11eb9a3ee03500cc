import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse.linalg
from jax.test_util import check_grads

import jaxgrip as jg
from jaxgrip.fem.topology import Topology

ALUMINIUM = jg.fem.Isotropic(7.22e10, 0.34, 2700.0)
SQUARE = np.sqrt(7.5e-5)
KINDS = [jg.fem.EulerBernoulli(), jg.fem.Timoshenko()]
ids = [type(kind).__name__ for kind in KINDS]
bernoulli, timoshenko = KINDS


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * float(np.abs(b).max()))


def cantilever(length, kind, section, n=16):
    return jg.fem.Body(jg.fem.line_mesh(length, n, element=kind), section, clamp="x0")


def square_section():
    return jg.fem.BeamSection.rectangle(ALUMINIUM, SQUARE, SQUARE)


def without_rotary_inertia():
    """Mass and E I of the square section in a material of 1e6 times the modulus."""
    second = SQUARE**4 / 12 * 1e-6
    return jg.fem.BeamSection(
        jg.fem.Isotropic(7.22e16, 0.34, 2700.0), A=7.5e-5, Iy=second, Iz=second, J=second
    )


def frequencies(body, k):
    matrices = (jg.fem.stiffness(body), jg.fem.mass(body))
    stiffness, mass = (m.to_scipy(body.free).toarray() for m in matrices)
    return np.sqrt(scipy.linalg.eigh(stiffness, mass, eigvals_only=True)[:k])


def exact_frequency(section, length, guess, shear=True):
    """First frequency of a cantilever: the root of what its transfer matrix leaves over."""
    _, gas, _, _, _, ei = np.asarray(section.rigidities)
    rho = float(section.material.rho)
    mass, turning = rho * float(section.A), rho * float(section.Iz)

    def rest(w):
        a = np.zeros((4, 4))
        a[0, 1], a[0, 3], a[1, 2] = 1, shear / gas, 1 / ei
        a[2, 1], a[2, 3], a[3, 0] = -(w**2) * turning, -1, -(w**2) * mass
        return np.linalg.det(scipy.linalg.expm(a * length)[2:, 2:])

    return scipy.optimize.brentq(rest, 0.95 * guess, 1.05 * guess, xtol=1e-9, rtol=1e-14)


def random_rotation(seed=0):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    return q * np.linalg.det(q)


def turned_cantilever(element, n=16, length=0.6):
    turn = random_rotation()
    section = jg.fem.BeamSection.rectangle(ALUMINIUM, 0.03, 0.05, orientation=turn[:, 1])
    ends = np.array([0.1, -0.2, 0.3]) + np.array([[0.0, 0, 0], [length, 0, 0]]) @ turn.T
    mesh = jg.fem.line_mesh(ends, n, element=element)
    return turn, jg.fem.Body(mesh, section, clamp="x0")


@pytest.mark.parametrize(("length", "table"), [(0.06, 12626.27), (0.07, 9276.44)])
def test_frequency_of_a_beam_without_rotary_inertia(length, table):
    w = frequencies(cantilever(length, bernoulli, without_rotary_inertia()), 2)
    np.testing.assert_allclose(w, table, rtol=8e-7)


@pytest.mark.parametrize(
    ("kind", "length", "table", "order"),
    [
        (timoshenko, 0.06, 12417.77, 2),
        (timoshenko, 0.07, 9163.02, 2),
        (bernoulli, 0.06, None, 4),
    ],
)
def test_frequency_with_rotary_inertia(kind, length, table, order):
    """Against the root of the transfer matrix, to which it converges in order."""
    section = square_section()
    exact = exact_frequency(section, length, table or 12500.0, shear=kind is timoshenko)
    if table is not None:
        assert abs(exact / table - 1) < 6e-7
    errors = [frequencies(cantilever(length, kind, section, n), 1)[0] / exact - 1 for n in (8, 16)]
    assert 0 < errors[-1] < 1.1e-5
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.1


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_torsion_and_extension_vibrate_like_bars(kind):
    w = frequencies(cantilever(0.06, kind, square_section()), 8)
    bar = np.pi / 2 / 0.06 * np.sqrt(7.22e10 / 2700)
    # The mass turns with the polar moment, the stiffness is Saint-Venant's.
    twist = bar * np.sqrt(0.1405770149551539 * 6 / (2 * 1.34))
    np.testing.assert_allclose([bar, twist], [135380.3, 75948.8], rtol=1e-5)
    for exact in (bar, twist):
        # A chain of linear elements of length h is too stiff by (k h)^2 / 24.
        assert np.abs(w / exact - 1).min() < (np.pi / 32) ** 2 / 24 * 1.1


def test_tip_displacements_of_the_table():
    moved = {}
    for kind in KINDS:
        body = cantilever(0.06, kind, square_section())
        load = jg.fem.point_force(body, 16, [1.0, 0.0, 1.0, 0.1, 0.0, 0.1])
        moved[kind] = jg.fem.solve_static(body, load)[-1]
    for kind, bent in ((bernoulli, 2.12742e-6), (timoshenko, 2.16306e-6)):
        got = moved[kind][np.array([0, 1, 2, 3])]
        np.testing.assert_allclose(got, [1.10803e-8, 5.31856e-6, bent, 2.81651e-4], rtol=3e-6)


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_cantilever_anywhere_in_space(kind):
    length = 0.6
    turn, body = turned_cantilever(kind, length=length)
    section, g = body.material, ALUMINIUM.E / 2.68
    shear = float(kind is timoshenko) * length / (5 / 6 * g * section.A)
    _, _, _, gj, ei_y, ei_z = section.rigidities
    compliance = np.zeros((6, 6))
    compliance[0, 0] = length / (ALUMINIUM.E * section.A)
    compliance[1, 1] = length**3 / (3 * ei_z) + shear
    compliance[2, 2] = length**3 / (3 * ei_y) + shear
    compliance[3, 3], compliance[4, 4], compliance[5, 5] = length / gj, length / ei_y, length / ei_z
    compliance[1, 5] = compliance[5, 1] = length**2 / (2 * ei_z)
    compliance[2, 4] = compliance[4, 2] = -(length**2) / (2 * ei_y)
    both = np.kron(np.eye(2), turn)
    columns = [
        jg.fem.solve_static(body, jg.fem.point_force(body, 16, both @ e))[16] for e in np.eye(6)
    ]
    got = both.T @ np.stack(columns, axis=1)
    scale = np.sqrt(np.diag(compliance))
    close(got / np.outer(scale, scale), compliance / np.outer(scale, scale), 1e-10)


def test_loads_along_the_beam():
    """Own weight, and acceleration, angular acceleration and spin of the frame (7.4)."""
    own = cantilever(0.06, timoshenko, square_section())
    u = jg.fem.solve_static(own, jg.fem.gravity(own, [0.0, 0.0, -9.81]))
    np.testing.assert_allclose(u[-1, 2], -9.7213e-8, rtol=1e-5)
    zero, z = jnp.zeros(3), jnp.array([0.0, 0.0, 1.0])

    def tip(*motion, section):
        body = cantilever(0.06, bernoulli, section)
        load = jg.fem.inertia(body).frame_load(jg.fem.FrameMotion(*motion))
        return jg.fem.solve_static(body, load)[-1]

    slender = without_rotary_inertia()
    pushed = tip(jnp.array([0.0, 100.0, 0.0]), zero, zero, section=slender)
    turned = tip(zero, zero, 1000 * z, section=slender)
    spun = tip(zero, 1000 * z, zero, section=square_section())
    np.testing.assert_allclose(pushed[1], -9.69307e-7, rtol=1e-5)
    np.testing.assert_allclose(turned[1], -4.26495e-7, rtol=1e-5)
    np.testing.assert_allclose(spun[0], 2.69252e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_rigid_motions_and_momentum(kind):
    """Without strain; with the resultants of the recursions for the solid prism."""
    turn, body = turned_cantilever(kind)
    x, n = np.asarray(body.mesh.nodes), len(body.mesh.nodes)
    rigid = np.zeros((6, n, 6))
    rigid[:3, :, :3] = np.eye(3)[:, None]
    rigid[3:, :, :3] = np.cross(np.eye(3)[:, None], x[None])
    rigid[3:, :, 3:] = np.eye(3)[:, None]
    k = jg.fem.stiffness(body).to_dense().reshape(6 * n, 6 * n)
    assert np.abs(k @ rigid.reshape(6, -1).T).max() < 1e-13 * np.abs(k).max()
    w = np.linalg.eigvalsh(k)
    assert w[6] > 1e-9 * w[-1]

    rng = np.random.default_rng(1)
    a, omega, alpha = rng.standard_normal((3, 3))
    length = 0.6
    mass = 2700 * 0.03 * 0.05 * length
    second = mass / 12 * np.array([0.05**2 + 0.03**2, 0.05**2 + length**2, 0.03**2 + length**2])
    about_centre = turn @ np.diag(second) @ turn.T
    centre = x.mean(axis=0)
    force = mass * (a + np.cross(alpha, centre) + np.cross(omega, np.cross(omega, centre)))
    moment = np.cross(centre, force) + about_centre @ alpha
    moment = moment + np.cross(omega, about_centre @ omega)
    inertia = jg.fem.inertia(body)
    load = inertia.frame_load(jg.fem.FrameMotion(*map(jnp.asarray, (a, omega, alpha))))
    wrench = np.einsum("knd,nd->k", rigid, load)
    close(wrench, -np.concatenate([force, moment]), 1e-12)

    # Rigid acceleration by the mass matrix gives the same wrench.
    z = np.tensordot(np.concatenate([a, alpha]), rigid, 1)
    wrench = np.einsum("knd,nd->k", rigid, jg.fem.mass(body) @ jnp.asarray(z))
    force = mass * (a + np.cross(alpha, centre))
    close(wrench, np.concatenate([force, np.cross(centre, force) + about_centre @ alpha]), 1e-12)


def test_inertia_is_that_of_the_particles():
    """∫ ρ Nᵀ W N by quadrature over the volume, from what the element moves a particle by."""
    kind = timoshenko
    turn, body = turned_cantilever(kind, n=1)
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((3, 3))
    section, x = body.material, body.mesh.cell_nodes[0]
    inertia = jax.jit(kind.inertia)
    local = inertia(x, section, jnp.asarray(weight)).reshape(12, 12)
    transposed = inertia(x, section, jnp.asarray(weight.T)).reshape(12, 12)
    close(local.T, transposed)

    # Displacements of sections between the ends are static ones under prescribed ends.
    points, weights = np.polynomial.legendre.leggauss(4)
    share = (points + 1) / 2
    ends = np.array(x)
    order = np.argsort(share)
    nodes = np.concatenate([ends[:1], ends[0] + share[order, None] * (ends[1] - ends[0]), ends[1:]])
    fine = jg.fem.mesh(nodes, np.arange(5)[:, None] + np.arange(2), kind)
    held = jg.fem.Body(fine, section, supports=[jg.fem.Support((0, 5))])
    u = rng.standard_normal((2, 12)) * np.tile([1, 1, 1, 5, 5, 5], 2)

    def particles(u):
        ends = held.zeros().at[np.array([0, 5])].set(u.reshape(2, 6))
        moved = np.asarray(jg.fem.solve_static(held, held.zeros(), prescribed=ends))[1:5]
        side = np.array([-1, 1]) / np.sqrt(3) / 2
        y, z = np.meshgrid(0.03 * side, 0.05 * side)
        r = np.stack([0 * y.ravel(), y.ravel(), z.ravel()], axis=1) @ turn.T
        return moved[:, None, :3] + np.cross(moved[:, None, 3:], r[None])

    volume = 2700 * 0.6 * 0.03 * 0.05 * weights[order] / 2 / 4
    first, second = map(particles, u)
    expected = np.einsum("q,qra,ab,qrb->", volume, first, weight, second)
    np.testing.assert_allclose(u[0] @ np.asarray(local) @ u[1], expected, rtol=1e-9)


def test_interface_loads_are_dual_to_the_mean_motion_of_nodes():
    """Of the two nodes of an attachment."""
    beam = jg.fem.line_mesh(1.0, 3)
    points = {"x0": np.array([0]), "far": np.array([2, 3])}
    topology = Topology(beam.topology.element, 4, beam.topology.cells, points=points)
    body = jg.fem.Body(jg.fem.Mesh(beam.nodes, topology), square_section(), clamp="x0")
    u = np.random.default_rng(1).normal(size=(4, 6))
    found = np.tensordot(jg.fem.interface_loads(body, "far"), u, 2)
    np.testing.assert_allclose(found, (u[2] + u[3]) / 2, rtol=1e-14)


def test_torsion_constant_of_rectangles():
    """The double Fourier series of Prandtl's stress function."""
    n = np.arange(1.0, 2001.0, 2.0)
    m = n[:, None]
    for b, h in ((1.0, 1.0), (2.0, 1.0), (0.3, 3.0)):
        series = np.sum(1 / (m**2 * n**2 * (m**2 / b**2 + n**2 / h**2)))
        section = jg.fem.BeamSection.rectangle(ALUMINIUM, b, h)
        np.testing.assert_allclose(section.J, 256 / np.pi**6 * b * h * series, rtol=1e-8)

    def constant(b, h):
        return jg.fem.BeamSection.rectangle(ALUMINIUM, b, h).J

    check_grads(jax.jit(constant), (1.0, 1.0), order=1)


def test_portal_frame():
    """Side sway and moments of a frame without extension, from slope deflection."""
    height, span, sway = 3.0, 4.0, 2.0
    second = 1e-4
    section = jg.fem.BeamSection(
        ALUMINIUM, A=1e3, Iy=second, Iz=second, J=second, orientation=(0.0, 1.0, 0.0)
    )
    nodes = np.array([[0.0, 0, 0], [0, 0, height], [span, 0, height], [span, 0, 0]])
    mesh = jg.fem.mesh(
        nodes, [[0, 1], [1, 2], [3, 2]], bernoulli, points={"ground": np.array([0, 3])}
    )
    body = jg.fem.Body(mesh, section, clamp="ground")
    u = jg.fem.solve_static(body, jg.fem.point_force(body, 1, [sway, 0.0, 0.0, 0.0, 0.0, 0.0]))
    k = height / span
    expected = sway * height**3 / (12 * 7.22e10 * second) * (3 * k + 2) / (6 * k + 1)
    np.testing.assert_allclose(u[1:3, 0], expected, rtol=1e-7)
    forces = jg.fem.section_forces(body, u)
    base = sway * height / 2 * (3 * k + 1) / (6 * k + 1)
    corner = sway * height / 2 * 3 * k / (6 * k + 1)
    np.testing.assert_allclose(
        np.abs(forces[np.array([0, 2]), :, 4]), [[base, corner]] * 2, rtol=1e-7
    )
    np.testing.assert_allclose(forces[0, 0, 0], 2 * corner / span, rtol=1e-6)


def test_angled_bracket():
    """A force across the plane of two arms bends both and twists the first."""
    a, b, r, force = 0.5, 0.3, 0.01, 10.0
    section = jg.fem.BeamSection.circle(ALUMINIUM, r, orientation=(0.0, 0.0, 1.0))
    corners = np.array([[0.0, 0, 0], [a, 0, 0], [a, b, 0]])
    body = jg.fem.Body(jg.fem.line_mesh(corners, 2, element=bernoulli), section, clamp="x0")
    end = body.mesh.nearest(corners[-1])
    u = jg.fem.solve_static(body, jg.fem.point_force(body, end, [0.0, 0.0, force, 0.0, 0.0, 0.0]))
    second = np.pi * r**4 / 4
    bent = (a**3 + b**3) / (3 * 7.22e10 * second)
    twisted = b**2 * a / (7.22e10 / 2.68 * 2 * second)
    np.testing.assert_allclose(u[end, 2], force * (bent + twisted), rtol=1e-10)
    forces = jg.fem.section_forces(body, u)
    np.testing.assert_allclose(forces[0, 0, 3], force * b, rtol=1e-10)


def smallest_load_factor(body, load):
    """Of linear buckling: (K + factor K_g) v = 0."""
    u = jg.fem.solve_static(body, load)
    k = jg.fem.stiffness(body).to_scipy(body.free).tocsc()
    geometric = jg.fem.geometric_stiffness(body, u).to_scipy(body.free).tocsc()
    factor = scipy.sparse.linalg.splu(k)
    invert = scipy.sparse.linalg.LinearOperator(k.shape, factor.solve, dtype=float)
    start = np.random.default_rng(0).standard_normal(k.shape[0])
    values = scipy.sparse.linalg.eigsh(
        -geometric, 1, M=k, Minv=invert, which="LA", v0=start, return_eigenvectors=False
    )
    return 1 / values[0]


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_eulers_column_of_beams(kind):
    length, r = 1.0, 0.005
    body = cantilever(length, kind, jg.fem.BeamSection.circle(ALUMINIUM, r))
    load = jg.fem.point_force(body, 16, [-1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    euler = np.pi**2 / 4 * 7.22e10 * np.pi * r**4 / 4 / length**2
    assert abs(smallest_load_factor(body, load) / euler - 1) < 1e-3


@pytest.mark.long
def test_eulers_column_of_solids():
    length, h = 0.15, 0.01
    mesh = jg.fem.box_mesh(length, h, h, 30, 1, 1, element=jg.fem.Hex8Incompatible())
    body = jg.fem.Body(mesh, ALUMINIUM, clamp="x0")
    load = jg.fem.traction(body, "x1", jnp.array([-1 / h**2, 0.0, 0.0]))
    euler = np.pi**2 / 4 * 7.22e10 * h**4 / 12 / length**2
    assert abs(smallest_load_factor(body, load) / euler - 1) < 1e-2


def test_prandtls_lateral_buckling():
    """A blade under a force at its tip: 4.0126 √(EI GJ) / L²."""
    length = 1.0
    section = jg.fem.BeamSection.rectangle(ALUMINIUM, 0.001, 0.1)
    body = cantilever(length, bernoulli, section)
    load = jg.fem.point_force(body, 16, [0.0, 0.0, -1.0, 0.0, 0.0, 0.0])
    _, _, _, gj, _, ei = np.asarray(section.rigidities)
    expected = 4.0126 * np.sqrt(ei * gj) / length**2
    assert abs(smallest_load_factor(body, load) / expected - 1) < 2e-3


def test_geometric_stiffness_of_solids_is_the_second_variation():
    """∂² ∫ S : E dV of Green and Lagrange's strain E with the stress S of u0."""
    rng = np.random.default_rng(3)
    signs = jg.fem.Hex8.nodes
    x = signs + 0.2 * rng.standard_normal((8, 3))
    u0 = 1e-3 * rng.standard_normal((8, 3))
    points = signs / np.sqrt(3)
    factors = 1 + points[:, None, :] * signs[None]
    slopes = np.stack(
        [signs[:, a] / 8 * np.prod(np.delete(factors, a, axis=2), axis=2) for a in range(3)], axis=2
    )
    jacobian = np.einsum("na,qni->qai", x, slopes)
    slopes = np.einsum("qni,qia->qna", slopes, np.linalg.inv(jacobian))
    lam, mu = map(float, ALUMINIUM.lame)
    gradient = np.einsum("na,qni->qai", u0, slopes)
    strain = (gradient + gradient.transpose(0, 2, 1)) / 2
    trace = np.trace(strain, axis1=1, axis2=2)
    stress = lam * trace[:, None, None] * np.eye(3) + 2 * mu * strain
    weighted = np.linalg.det(jacobian)[:, None, None] * stress

    def energy(u):
        gradient = jnp.einsum("na,qni->qai", u, slopes)
        transposed = gradient.transpose(0, 2, 1)
        return jnp.sum(weighted * (gradient + transposed + transposed @ gradient)) / 2

    expected = jax.jit(jax.hessian(energy))(jnp.zeros((8, 3)))
    got = jax.jit(jg.fem.Hex8().geometric_stiffness)(jnp.asarray(x), jnp.asarray(u0), ALUMINIUM)
    close(got, expected)


@pytest.mark.parametrize(
    "kind", [*KINDS, jg.fem.Hex8(), jg.fem.Hex8Incompatible()], ids=lambda kind: type(kind).__name__
)
def test_geometric_stiffness_turns_the_forces(kind):
    """A rigid turn takes forces along; moments, by the rotation vector, half of it."""
    rng = np.random.default_rng(4)
    turn = rng.standard_normal(3)
    if kind.dofs == 6:
        material = jg.fem.BeamSection.rectangle(ALUMINIUM, 0.03, 0.05, orientation=(1.0, 2.0, 3.0))
        x = rng.standard_normal((2, 3))
    else:
        material = ALUMINIUM
        x = kind.nodes + 0.2 * rng.standard_normal((8, 3))
    u = 1e-3 * rng.standard_normal((len(x), kind.dofs))
    x, u = jnp.asarray(x), jnp.asarray(u)
    forces = np.einsum("iajb,jb->ia", jax.jit(kind.stiffness)(x, material), u)
    moved = np.cross(turn, x)
    expected = np.cross(turn, forces[:, :3])
    if kind.dofs == 6:
        moved = np.concatenate([moved, np.tile(turn, (2, 1))], axis=1)
        expected = np.concatenate([expected, np.cross(turn, forces[:, 3:]) / 2], axis=1)
    matrix = jax.jit(kind.geometric_stiffness)(x, u, material)
    close(np.einsum("iajb,jb->ia", matrix, moved), expected, 1e-11)
    close(matrix, matrix.transpose(2, 3, 0, 1))


@pytest.mark.long
def test_derivatives_by_length_section_and_material():
    def tip(values):
        length, b, h, modulus, poisson, density = values
        material = jg.fem.Isotropic(modulus * 7e10, poisson, density * 2700)
        section = jg.fem.BeamSection.rectangle(material, b, h)
        body = cantilever(length, timoshenko, section)
        load = jg.fem.gravity(body, [1.0, 2.0, 3.0])
        load = load + jg.fem.point_force(body, 16, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
        return 1e6 * jg.fem.solve_static(body, load)[-1].sum()

    values = jnp.array([0.3, 0.02, 0.03, 1.0, 0.3, 1.0])
    value = jax.jit(jax.value_and_grad(tip))
    _, gradient = value(values)
    for k in range(6):
        step = 1e-5 * values[k] * jnp.eye(6)[k]
        central = (value(values + step)[0] - value(values - step)[0]) / (2 * jnp.sum(step))
        np.testing.assert_allclose(gradient[k], central, rtol=1e-6)


def test_bad_input():
    section = square_section()
    with pytest.raises(ValueError, match="second moment Iz is -1 m\\^4; it must be positive"):
        jg.fem.BeamSection(ALUMINIUM, A=1.0, Iy=1.0, Iz=-1.0, J=1.0)
    with pytest.raises(ValueError, match=r"shear correction factors are \[1.0, 0.0\]"):
        jg.fem.BeamSection(ALUMINIUM, A=1.0, Iy=1.0, Iz=1.0, J=1.0, shear=(1.0, 0.0))
    with pytest.raises(ValueError, match="zero vector"):
        jg.fem.BeamSection.circle(ALUMINIUM, 0.01, orientation=(0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="width b is 0 m"):
        jg.fem.BeamSection.rectangle(ALUMINIUM, 0.0, 1.0)
    with pytest.raises(ValueError, match="radius r is not finite"):
        jg.fem.BeamSection.circle(ALUMINIUM, np.nan)
    with pytest.raises(ValueError, match="length of the line is -1 m"):
        jg.fem.line_mesh(-1.0, 2)
    with pytest.raises(ValueError, match="number of elements n is 0"):
        jg.fem.line_mesh(1.0, 0)
    with pytest.raises(ValueError, match="Element 1 is degenerate"):
        jg.fem.line_mesh([[0.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0]], 1)
    with pytest.raises(ValueError, match="The line has the shape"):
        jg.fem.line_mesh([[0.0, 0.0, 0.0]], 1)
    up = jg.fem.line_mesh([[0.0, 0, 0], [0, 1.0, 0]], 2)
    with pytest.raises(ValueError, match="parallel to element 0"):
        jg.fem.Body(up, section)
    with pytest.raises(ValueError, match="made of BeamSection, not of Isotropic"):
        jg.fem.Body(jg.fem.line_mesh(1.0, 2), ALUMINIUM)
    with pytest.raises(ValueError, match="made of Isotropic, not of BeamSection"):
        jg.fem.Body(jg.fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1), section)
    hinged = jg.fem.Body(
        jg.fem.line_mesh(1.0, 2), section, supports=[jg.fem.Support("x0", ("x", "y", "z", "rx"))]
    )
    with pytest.raises(ValueError, match=r"2 rigid motions.*rotate about y, rotate about z"):
        jg.fem.solve_static(hinged, hinged.zeros())
    solid = jg.fem.Body(jg.fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1), ALUMINIUM)
    with pytest.raises(ValueError, match="need beams; the elements are Hex8"):
        jg.fem.section_forces(solid, solid.zeros())
