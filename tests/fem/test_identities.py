"""Identities of the matrices, and static values of an independent program (NumPy)."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg

import jaxgrip as jg

SIDE = np.sqrt(7.5e-5)
LENGTHS = {2: 0.06, 3: 0.07}
MASSES = {2: 0.16, 3: 0.20}
E, NU, RHO = 7.22e10, 0.34, 2700.0
AXES = np.eye(3)
CENTRE = 661


def link(number=2, nx=13, *, nu=NU, rho=RHO):
    mesh = jg.fem.box_mesh(LENGTHS[number], SIDE, SIDE, nx, 6, 6)
    return jg.fem.Body(mesh, jg.fem.Isotropic(E, nu, rho), clamp="x0")


def cross(axis):
    return jg.spatial.skew(jnp.asarray(axis, dtype=float))


def moment(body, force):
    return np.cross(body.mesh.nodes, force).sum(axis=0)


@pytest.fixture(scope="module")
def body():
    return link()


@pytest.fixture(scope="module")
def inertia(body):
    return jg.fem.inertia(body)


@pytest.fixture(scope="module")
def stiffness(body):
    return jg.fem.stiffness(body)


def test_non_zeros_of_the_source(body, stiffness):
    assert body.mesh.nodes.shape == (686, 3)
    assert body.mesh.topology.cells.shape == (468, 8)
    assert stiffness.to_scipy(body.free).nnz == 120213
    assert stiffness.nnz == 129960
    np.testing.assert_allclose(body.mesh.nodes[CENTRE], [0.06, 0.0, 0.0], atol=1e-17)


def test_rigid_motions_do_not_strain(body, stiffness):
    largest = float(jnp.abs(stiffness.blocks).max())
    for axis in AXES:
        shift = jnp.tile(jnp.asarray(axis), (686, 1))
        assert float(jnp.abs(stiffness @ shift).max()) < 1e-12 * largest
        turn = jnp.cross(shift, body.mesh.nodes)
        assert float(jnp.abs(stiffness @ turn).max()) < 1e-12 * largest * 0.06
        np.testing.assert_allclose(
            jg.fem.apply_stiffness(body, turn), stiffness @ turn, atol=1e-12 * largest * 0.06
        )


def test_translation_matrix(body, inertia):
    mass = RHO * LENGTHS[2] * SIDE**2
    for axis in AXES:
        # C_Ft by integrating the shape functions themselves, and lemma 7.1.
        direct = jg.fem.body_force(body, lambda r, axis=axis: RHO * jnp.asarray(axis))
        load = inertia.load(jnp.asarray(axis), jnp.zeros((3, 3)))
        np.testing.assert_allclose(load, direct, rtol=1e-12, atol=1e-12 * mass / 686)
        by_mass = jg.fem.mass(body) @ jnp.tile(jnp.asarray(axis), (686, 1))
        np.testing.assert_allclose(by_mass, direct, rtol=1e-12, atol=1e-12 * mass / 686)
        np.testing.assert_allclose(direct.sum(axis=0), mass * axis, rtol=1e-12, atol=1e-14 * mass)


def test_scalar_mass_of_a_parallelepiped():
    sides = np.array([[1.0, 0.2, 0.1], [0.1, 0.9, -0.3], [0.2, 0.1, 0.8]])
    signs = jg.fem.Hex8.nodes
    m8 = jg.fem.Hex8().scalar_mass(jnp.asarray(signs @ sides / 2), jg.fem.Isotropic(E, NU, RHO))
    volume = np.linalg.det(sides)
    expected = np.prod(1 + signs[:, None] * signs[None] / 3, axis=2) * RHO * volume / 64
    np.testing.assert_allclose(m8, expected, rtol=1e-12)
    np.testing.assert_allclose(np.diag(m8), RHO * volume / 27, rtol=1e-12)


def test_matrices_of_the_moving_frame(body, inertia):
    mass, length = RHO * LENGTHS[2] * SIDE**2, LENGTHS[2]
    places = body.mesh.nodes
    about_x = mass * SIDE**2 / 6
    across = mass * (length**2 / 3 + SIDE**2 / 12)
    for i, axis in enumerate(AXES):
        euler = inertia.matrix(cross(axis))
        dense = euler.to_scipy()
        assert abs(dense + dense.T).max() < 1e-12 * abs(dense).max()
        np.testing.assert_allclose(
            (euler @ places).sum(axis=0),
            np.cross(axis, [mass * length / 2, 0.0, 0.0]),
            rtol=1e-12,
            atol=1e-14 * mass * length,
        )
        for j, other in enumerate(AXES):
            # Weights of the products ω_i ω_j in ω x (ω x Z), (4.39) to (4.41).
            weight = (cross(axis) @ cross(other) + cross(other) @ cross(axis)) / 2
            softening = inertia.matrix(weight)
            dense = softening.to_scipy()
            assert abs(dense - dense.T).max() < 1e-12 * abs(dense).max()
            # -I for i = j; products of inertia of a box on the x axis vanish.
            expected = -(about_x, across, across)[i] if i == j else 0.0
            energy = float(jnp.sum(places * (softening @ places)))
            np.testing.assert_allclose(energy, expected, rtol=1e-12, atol=1e-13 * across)


@pytest.mark.long
def test_frame_load_is_minus_the_wrench_of_the_rigid_body():
    rng = np.random.default_rng(7)
    finger = jg.models.gripper_finger("A").tree
    q, qd, qdd = (jnp.asarray(rng.normal(size=3) * scale) for scale in (1.0, 20.0, 500.0))
    loads = jg.rigid.rnea_bodies(finger, q, qd, qdd)
    # Nothing hangs on link 3, so its joint transmits what its own motion needs.
    body = link(3, rho=MASSES[3] / (LENGTHS[3] * SIDE**2))
    frame = jg.fem.FrameMotion(loads.vd[2], loads.w[2], loads.wd[2])
    force = jg.fem.inertia(body).frame_load(frame)
    np.testing.assert_allclose(force.sum(axis=0), -loads.F[2], rtol=1e-12)
    np.testing.assert_allclose(
        moment(body, force), -loads.N[2], rtol=1e-12, atol=1e-12 * np.abs(loads.N[2]).max()
    )


def test_frame_load_is_that_of_the_matrices(body, inertia):
    a, w, wd = np.random.default_rng(3).normal(size=(3, 3))
    frame = jg.fem.FrameMotion(*map(jnp.asarray, (a, w, wd)))
    pairs = list(itertools.product(range(3), repeat=2))
    expected = -inertia.load(jnp.asarray(a), jnp.zeros((3, 3)))
    for k in range(3):
        expected -= wd[k] * (inertia.matrix(cross(AXES[k])) @ body.mesh.nodes)
    for i, j in pairs:
        weight = cross(AXES[i]) @ cross(AXES[j])
        expected -= w[i] * w[j] * (inertia.matrix(weight) @ body.mesh.nodes)
    np.testing.assert_allclose(
        inertia.frame_load(frame), expected, rtol=1e-11, atol=1e-13 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    ("number", "mass", "weight", "matched_weight"),
    [(2, 0.012150, 8.4291e-8, 1.1100e-6), (3, 0.014175, 1.50412e-7, 2.1222e-6)],
)
def test_own_weight(number, mass, weight, matched_weight):
    matched = MASSES[number] / (LENGTHS[number] * SIDE**2)
    for rho, expected in ((RHO, weight), (matched, matched_weight)):
        body = link(number, rho=rho)
        total = float(jg.fem.inertia(body).mass.blocks.sum())
        np.testing.assert_allclose(total, mass if rho == RHO else MASSES[number], rtol=1e-12)
        u = jg.fem.solve_static(body, jg.fem.gravity(body, (0.0, 0.0, -9.81)))
        digits = 6 if expected == 1.50412e-7 else 5
        assert rounded(jnp.linalg.norm(u[CENTRE]), digits) == expected


def rounded(value, digits=6):
    return float(f"{float(value):.{digits - 1}e}")


# Columns: tip in y under 1 N across, in x under 1 N along, in y under 0.1 N m about z.
TIPS = {
    13: (1.88803e-6, 1.09525e-8, 4.68975e-6),
    26: (2.05218e-6, None, None),
    52: (2.10102e-6, None, 5.19644e-6),
}


@pytest.mark.long
@pytest.mark.parametrize("nx", TIPS)
def test_tip_loads(nx):
    body = link(nx=nx)
    tip = body.mesh.nearest((LENGTHS[2], 0.0, 0.0))
    loads = [((0, 1, 0), (0, 0, 0)), ((1, 0, 0), (0, 0, 0)), ((0, 0, 0), (0, 0, 0.1))]
    for (force, couple), axis, expected in zip(loads, (1, 0, 1), TIPS[nx], strict=True):
        if expected is None:
            continue
        load = jg.fem.tip_wrench(body, "x1", force, couple)
        # A couple is made of forces as large as its moment over the width.
        largest = 1.0 + np.linalg.norm(couple) / SIDE
        np.testing.assert_allclose(load.sum(axis=0), force, atol=1e-12 * largest)
        about = moment(body, load) - np.cross([LENGTHS[2], 0.0, 0.0], force)
        np.testing.assert_allclose(about, couple, atol=1e-13)
        assert rounded(jg.fem.solve_static(body, load)[tip, axis]) == expected


def test_torsion(body):
    u = jg.fem.solve_static(body, jg.fem.tip_wrench(body, "x1", (0, 0, 0), (0.1, 0, 0)))
    edge = body.mesh.nearest((LENGTHS[2], SIDE / 2, 0.0))
    assert rounded(u[edge, 2] / (SIDE / 2)) == 2.73387e-4


@pytest.mark.parametrize(
    ("nx", "motion", "axis", "expected"),
    [
        (13, ((0, 100, 0), (0, 0, 0), (0, 0, 0)), 1, -8.59235e-7),
        (13, ((0, 0, 0), (0, 0, 0), (0, 0, 1000)), 1, -3.80358e-7),
        (52, ((0, 0, 0), (0, 0, 0), (0, 0, 1000)), 1, -4.23958e-7),
        (13, ((0, 0, 0), (0, 0, 1000), (0, 0, 0)), 0, 2.64447e-6),
    ],
)
def test_inertia_loads(nx, motion, axis, expected):
    body = link(nx=nx)
    frame = jg.fem.FrameMotion(*(jnp.array(x, dtype=float) for x in motion))
    u = jg.fem.solve_static(body, jg.fem.inertia(body).frame_load(frame))
    assert rounded(u[body.mesh.nearest((LENGTHS[2], 0.0, 0.0)), axis]) == expected


@pytest.mark.parametrize(("softening", "expected"), [(True, 6.740365e-5), (False, 6.731302e-5)])
def test_rotating_bar(softening, expected):
    body, rate, length = link(nu=0.0), 5000.0, LENGTHS[2]
    inertia = jg.fem.inertia(body)
    weight = cross((0.0, 0.0, rate)) @ cross((0.0, 0.0, rate))
    matrix = jg.fem.stiffness(body)
    if softening:
        matrix = matrix + inertia.matrix(weight)
    load = -np.asarray(inertia.load(jnp.zeros(3), weight))
    u = np.zeros_like(load)
    u[body.free] = scipy.sparse.linalg.spsolve(matrix.to_scipy(body.free).tocsc(), load[body.free])
    if softening:
        assert rounded(u[CENTRE, 0], 7) == expected
        k = rate * np.sqrt(RHO / E)
        closed = np.sin(k * length) / (k * np.cos(k * length)) - length
    else:
        closed = RHO * rate**2 * length**3 / (3 * E)
        np.testing.assert_allclose(closed, 6.7313e-5, rtol=1e-5)
    np.testing.assert_allclose(u[CENTRE, 0], closed, rtol=1e-5)
