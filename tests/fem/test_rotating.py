import contextlib

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import jaxgrip as jg
from jaxgrip.fem import _rotating as rotating

ALUMINIUM = jg.fem.Isotropic(7.22e10, 0.34, 2700.0)
SQUARE = np.sqrt(7.5e-5)
X, Y, Z = np.eye(3)


@pytest.fixture(scope="module")
def link():
    """Link 2 of the source's gripper, on its mesh."""
    mesh = jg.fem.box_mesh(0.06, SQUARE, SQUARE, 13, 6, 6)
    return jg.fem.Body(mesh, ALUMINIUM, clamp="x0")


@pytest.fixture(scope="module")
def spinning():
    """The spin-up beam of Simo and Vu-Quoc: E A, E I, G A, mass and rotary inertia a length."""
    material = jg.fem.Isotropic(2.8e7, 0.4, 1.2)
    section = jg.fem.BeamSection(material, A=1.0, Iy=5e-4, Iz=5e-4, J=1e-3)
    np.testing.assert_allclose(section.rigidities, [2.8e7, 1e7, 1e7, 1e4, 1.4e4, 1.4e4], rtol=1e-14)
    return jg.fem.Body(jg.fem.line_mesh(10.0, 8), section, clamp="x0")


def slender(element, h=0.025):
    """A cantilever 1 m long and h high."""
    if element == "Hex8":
        mesh = jg.fem.box_mesh(1.0, h, h, 40, 1, 1)
        return jg.fem.Body(mesh, ALUMINIUM, clamp="x0")
    kind = getattr(jg.fem, element)()
    section = jg.fem.BeamSection.rectangle(ALUMINIUM, h, h)
    return jg.fem.Body(jg.fem.line_mesh(1.0, 16, element=kind), section, clamp="x0")


def test_solid_link_in_rotating_frames(link):
    """Section 7.4: bending along and across the axis of the spin, and whirl about its own axis."""
    first = jg.fem.rotating_frequencies(link, np.zeros(3), 2, geometric=False)
    np.testing.assert_allclose(first.imag, 13346.541, atol=6e-4)
    for speed, lag in ((1000.0, 13307.7), (5000.0, 12344.0), (10000.0, 8752.9)):
        values = jg.fem.rotating_frequencies(link, speed * Z, 2, geometric=False)
        assert np.abs(values.real).max() < 1e-6
        assert abs(values[0].imag - lag) < 0.06
        assert values[0].imag < np.sqrt(13346.541**2 - speed**2)
        # Along the axis only the turn of the sections feels the spin.
        assert abs(values[1].imag / 13346.541 - 1) < 3e-3
    for speed, whirl in ((1000.0, [12354.0, 14338.5]), (5000.0, [8378.0, 18300.6])):
        values = jg.fem.rotating_frequencies(link, speed * X, 2, geometric=False)
        assert np.abs(values.real).max() < 1e-6
        np.testing.assert_allclose(values.imag, whirl, atol=0.06)


def test_beams_without_stiffening():
    """Lag w² = w1² - Ω² and whirl w1 ± Ω, unstable beyond w1."""
    body = slender("EulerBernoulli", h=0.005)
    w1 = jg.fem.rotating_frequencies(body, np.zeros(3), 1)[0].imag
    for ratio in (0.3, 0.7):
        lag, flap = jg.fem.rotating_frequencies(body, ratio * w1 * Z, 2, geometric=False).imag
        np.testing.assert_allclose([lag / w1, flap / w1], [np.sqrt(1 - ratio**2), 1], rtol=2e-5)
        whirl = jg.fem.rotating_frequencies(body, ratio * w1 * X, 2, geometric=False).imag
        np.testing.assert_allclose(whirl / w1, [1 - ratio, 1 + ratio], rtol=3e-5)
    values = jg.fem.rotating_frequencies(body, 1.5 * w1 * Z, 3, geometric=False)
    growth = np.abs(values - np.sqrt(1.5**2 - 1) * w1)
    assert growth.min() < 1e-4 * w1


@pytest.mark.parametrize("element", ["EulerBernoulli", "Timoshenko", "Hex8"])
def test_centrifugal_stiffening(element):
    """Flap w² = w1² + 1.193 Ω² and lag w1² + 0.193 Ω² of a blade without hub."""
    body = slender(element)
    w1 = jg.fem.rotating_frequencies(body, np.zeros(3), 1)[0].imag
    speed = 0.2 * w1
    lag, flap = jg.fem.rotating_frequencies(body, speed * Z, 2).imag
    assert abs((flap**2 - w1**2) / speed**2 - 1.193) < 0.01
    assert abs((lag**2 - w1**2) / speed**2 - 0.193) < 0.01


def test_sparse_and_dense_eigenvalues_agree(monkeypatch):
    body = slender("Timoshenko")
    dense = jg.fem.rotating_frequencies(body, np.array([30.0, 20.0, 50.0]), 3)
    monkeypatch.setattr(rotating, "DENSE_LIMIT", 0)
    sparse = jg.fem.rotating_frequencies(body, np.array([30.0, 20.0, 50.0]), 3)
    np.testing.assert_allclose(sparse.imag, dense.imag, rtol=1e-9)


def test_damping_is_rayleighs():
    """Without spin λ² + (a + b w²) λ + w² = 0."""
    still = slender("Timoshenko")
    w1 = jg.fem.rotating_frequencies(still, np.zeros(3), 1)[0].imag
    damping = jg.fem.Rayleigh(mass=5.0, stiffness=1e-4)
    body = jg.fem.Body(still.mesh, still.material, clamp="x0", damping=damping)
    value = jg.fem.rotating_frequencies(body, np.zeros(3), 1)[0]
    decay = (5.0 + 1e-4 * w1**2) / 2
    np.testing.assert_allclose(value, -decay + 1j * np.sqrt(w1**2 - decay**2), rtol=1e-8)


def test_rotating_bar():
    """Extension sin(k L) / (k cos(k L)) - L with k = w √(ρ / E)."""
    material = jg.fem.Isotropic(7.22e10, 0.0, 2700.0)
    speed = 5000.0
    bar = jg.fem.Body(jg.fem.box_mesh(0.06, 0.01, 0.01, 40, 1, 1), material, clamp="x0")
    k = speed * np.sqrt(2700 / 7.22e10)
    exact = np.tan(k * 0.06) / k - 0.06
    u = jg.fem.rotating_equilibrium(bar, speed * Z, geometric=False)
    np.testing.assert_allclose(u[-1, 0], exact, rtol=1e-6)
    np.testing.assert_allclose(exact, 6.740376e-5, rtol=1e-7)
    still = jg.fem.FrameMotion(jnp.zeros(3), jnp.asarray(speed * Z), jnp.zeros(3))
    u = jg.fem.solve_static(bar, jg.fem.inertia(bar).frame_load(still))
    np.testing.assert_allclose(u[-1, 0], 6.731302e-5, rtol=1e-6)


def test_spin_up_beam_at_rest_in_its_frame(spinning):
    """Extension ρA w² L³ / (3 EA); the lag frequency rises only with stiffening."""
    for geometric in (False, True):
        said = contextlib.nullcontext()
        if not geometric:
            said = pytest.warns(UserWarning, match=r"rotates at 6 rad/s, faster than its slowest")
        with said:
            u = jg.fem.rotating_equilibrium(spinning, 6 * Z, geometric=geometric)
        np.testing.assert_allclose(u[-1, 0], 5.143e-4, rtol=1e-3)
        assert np.abs(u[:, 1:]).max() < 1e-12
    stiff = [
        jg.fem.rotating_frequencies(spinning, speed * Z, 1)[0].imag
        for speed in (0.0, 2.0, 4.0, 6.0)
    ]
    assert np.all(np.diff(stiff) > 0)
    soft = [
        jg.fem.rotating_frequencies(spinning, speed * Z, 1, geometric=False)[0].imag
        for speed in (0.0, 1.0, 2.0)
    ]
    assert np.all(np.diff(soft) < 0)


def spin_up(t, xp=jnp):
    """Angle's rate and acceleration of the spin-up."""
    s = xp.minimum(t, 15.0)
    rate = 0.4 * (s - 15 / (2 * np.pi) * xp.sin(2 * np.pi * s / 15))
    return rate, 0.4 * (1 - xp.cos(2 * np.pi * s / 15))


def ritz_tip(times):
    """Deflection of the tip of Bernoulli's rotating beam, by polynomials x² ... x⁷."""
    poly = np.polynomial.polynomial
    stiffness, mass, tension, load = np.zeros((6, 6)), np.zeros((6, 6)), np.zeros((6, 6)), []

    def integral(p):
        return poly.polyval(1.0, poly.polyint(p))

    shapes = [np.eye(8)[k] for k in range(2, 8)]
    # Length 10, E I 1.4e4 and 1.2 kg/m; the tension is 1.2 w² (L² - x²) / 2.
    for i, p in enumerate(shapes):
        load.append(1.2 * 100 * integral(poly.polymul(p, [0, 1])))
        for j, q in enumerate(shapes):
            curved = poly.polymul(poly.polyder(p, 2), poly.polyder(q, 2))
            sloped = poly.polymul(poly.polyder(p), poly.polyder(q))
            stiffness[i, j] = 1.4e4 / 1e3 * integral(curved)
            mass[i, j] = 12 * integral(poly.polymul(p, q))
            tension[i, j] = 1.2 * 10 / 2 * integral(poly.polymul(sloped, [1, 0, -1]))

    invert = np.linalg.inv(mass)

    def rate(t, y):
        w, a = spin_up(t, np)
        force = -a * np.array(load) - (stiffness + w**2 * (tension - mass)) @ y[:6]
        return np.concatenate([y[6:], invert @ force])

    solution = scipy.integrate.solve_ivp(
        rate, (0, times[-1]), np.zeros(12), "LSODA", times, rtol=1e-7, atol=1e-9
    )
    return solution.y[:6].sum(axis=0)


@pytest.mark.long
def test_spin_up_in_time(spinning):
    """It lags by half a metre, as published, and comes to rest; a Ritz model agrees."""

    def motion(t):
        rate, acceleration = spin_up(t)
        z = jnp.asarray(Z)
        return jg.fem.FrameMotion(jnp.zeros(3), rate * z, acceleration * z)

    run = jg.fem.simulate(spinning, motion, 0.015, t1=18.0, save=lambda t, u, v: u[-1])
    extension, deflection = np.asarray(run.saved[:, :2]).T
    assert 0.5 < -deflection.min() < 0.6
    late = np.asarray(run.t) > 15
    assert np.abs(deflection[late]).max() < 0.01
    np.testing.assert_allclose(extension[late].mean(), 5.143e-4, rtol=1e-3)
    expected = ritz_tip(np.asarray(run.t))
    assert np.abs(deflection - expected).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.long
@pytest.mark.parametrize("reduced", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_faster_than_the_first_vibration(reduced):
    """By default the lag vibration keeps Southwell's frequency, w² = w1² + 0.193 Ω²; without
    stiffening it grows like cosh √(Ω² - w1²) t, and that is told beforehand."""
    body = slender("EulerBernoulli", h=0.005)
    mode = jg.fem.modes(body, 1)
    w1, shape = float(mode.frequency[0]), mode.shape[0]
    # Of the two bending modes of a square section the one in the plane of the turn.
    shape = jnp.zeros_like(shape).at[:, [1, 5]].set(shape[:, [1, 5]])
    # Much more than the sudden stretch by the turn gives through Coriolis' force.
    shape = 1e-2 * shape / shape[-1, 1]
    dual = jg.fem.mass(body) @ shape
    speed, half = 1.5 * w1, np.pi / (w1 * np.sqrt(1 + 0.193 * 1.5**2))
    turn = jg.fem.FrameMotion(jnp.zeros(3), speed * jnp.asarray(Z), jnp.zeros(3))

    def share_of_the_mode(**options):
        model = jg.fem.reduce(body, 6, **options) if reduced else body
        run = jg.fem.simulate(
            model, lambda t: turn, half / 60, t1=half, u0=shape, ts=[half / 2, half],
            **({} if reduced else options),
        )  # fmt: skip
        return jnp.einsum("nd,tnd->t", dual, run.u) / jnp.vdot(dual, shape)

    np.testing.assert_allclose(share_of_the_mode(), [0.0, -1.0], atol=0.04)
    with pytest.warns(UserWarning, match=r"faster than the body's slowest vibration.*geometric=T"):
        soft = share_of_the_mode(geometric=False)
    grown = np.cosh(np.sqrt(1.5**2 - 1) * w1 * half * np.array([0.5, 1.0]))
    np.testing.assert_allclose(soft, grown, rtol=0.02)


def test_bad_input(spinning):
    with pytest.raises(ValueError, match="k is 0; it must be from 1 to 48"):
        jg.fem.rotating_frequencies(spinning, Z, 0)
    with pytest.raises(ValueError, match="omega is not finite"):
        jg.fem.rotating_frequencies(spinning, np.array([0.0, np.nan, 0.0]), 1)
    with pytest.raises(ValueError, match="omega has the shape"):
        jg.fem.rotating_equilibrium(spinning, np.ones(2))
    loose = jg.fem.Body(spinning.mesh, spinning.material)
    with pytest.raises(ValueError, match="6 rigid motion"):
        jg.fem.rotating_equilibrium(loose, Z)
