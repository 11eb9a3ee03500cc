import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import fem
from jaxgrip.fem import Reduced
from jaxgrip.fem._inertia import TabulatedInertia
from jaxgrip.fem._integrators import StructureTerm
from jaxgrip.fem._structure import Structure, structure
from jaxgrip.fem.topology import Constant
from jaxgrip.solve.stiff import Kvaerno5
from jaxgrip.spatial import axis_angle

SIDE = np.sqrt(7.5e-5)


def beam(damping=None, cells=(4, 1, 1), e=7.22e10, nu=0.34, rho=2700.0, length=0.06, width=SIDE):
    mesh = fem.box_mesh(length, width, SIDE, *cells)
    return fem.Body(mesh, fem.Isotropic(e, nu, rho), clamp="x0", damping=damping)


def oscillator(frequency):
    """One node of 1 kg that moves along x on a spring."""
    unit = jnp.eye(3).reshape(3, 3, 1, 1) * jnp.eye(3)[0][:, None, None, None]
    inertia = TabulatedInertia(unit, jnp.zeros((3, 1)), jnp.zeros((3, 3, 1)))
    stiffness = jnp.array([[frequency**2]])
    equations = Structure(stiffness, inertia, fem.Rayleigh(), Constant(np.ones(1, dtype=bool)))
    shapes = jnp.zeros((1, 1, 3)).at[0, 0, 0].set(1.0)
    nothing = jnp.zeros((12, 1, 3))
    return Reduced(equations, shapes, nothing, nothing)


class Turn(eqx.Module):
    """A frame that turns about a fixed axis, its origin accelerated."""

    rate: jax.Array
    acceleration: jax.Array

    def __call__(self, t):
        return fem.FrameMotion(
            self.acceleration * jnp.cos(90 * t),
            self.rate * (1 + 0.5 * jnp.sin(80 * t)),
            self.rate * 40 * jnp.cos(80 * t),
        )


class Ramp(eqx.Module):
    """Amounts of loads that come and go."""

    amount: jax.Array

    def __call__(self, t):
        return self.amount * jnp.sin(300 * t) ** 2


TURN = Turn(jnp.array([8.0, -20.0, 14.0]), jnp.array([3.0, -9.0, 2.0]))


def tip_load(body):
    patterns = [
        fem.tip_wrench(body, "x1", *w) for w in (((1, 0, 0), (0, 0, 0)), ((0, 1, 2), (0, 0, 0.1)))
    ]
    return fem.Load(jnp.stack(patterns), Ramp(jnp.array([5.0, 2.0])))


@pytest.mark.long
@pytest.mark.parametrize(
    ("dt", "expected"), [(0.01, -0.84356915088), (0.05, -0.93073871394), (0.1, -0.98849658880)]
)
def test_newmark_on_an_oscillator(dt, expected):
    start = jnp.array([[1.0, 0.0, 0.0]])
    found = fem.simulate(oscillator(10.0), None, dt, t1=1.0, u0=start)
    assert found.u.shape == (round(1 / dt) + 1, 1, 3)
    np.testing.assert_allclose(found.u[-1, 0, 0], expected, atol=1e-11)
    energy = 0.5 * found.v[:, 0, 0] ** 2 + 50 * found.u[:, 0, 0] ** 2
    np.testing.assert_allclose(energy, 50.0, rtol=1e-13)


@pytest.mark.parametrize("rho_inf", [0.0, 0.5, 1.0])
def test_generalised_alpha_leaves_rho_inf_of_what_it_cannot_resolve(rho_inf):
    start = jnp.array([[1.0, 0.0, 0.0]])
    method = fem.GeneralizedAlpha(rho_inf)
    with pytest.warns(UserWarning, match="times the period of the slowest vibration"):
        found = fem.simulate(oscillator(1e7), None, 1.0, t1=60.0, u0=start, method=method)
    late = np.abs(np.asarray(found.u[40:, 0, 0]))
    if rho_inf == 0.0:
        np.testing.assert_allclose(late, 0.0, atol=1e-9)
    else:
        # Two of three eigenvalues coincide at infinity, which adds a factor linear in time.
        rate = (late[-1] / late[0]) ** (1 / (len(late) - 1))
        np.testing.assert_allclose(rate, rho_inf, rtol=0.06)


@pytest.mark.long
@pytest.mark.parametrize(
    "method", [fem.Newmark(), fem.GeneralizedAlpha(0.7)], ids=["newmark", "alpha"]
)
def test_order_two(method):
    start = jnp.array([[1.0, 0.0, 0.0]])
    errors = []
    for steps in (100, 200, 400):
        found = fem.simulate(oscillator(10.0), None, 1.0 / steps, t1=1.0, u0=start, method=method)
        errors.append(abs(float(found.u[-1, 0, 0]) - np.cos(10.0)))
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.05)


@pytest.mark.long
def test_a_mode_swings_alone_and_keeps_its_energy():
    """A whole body started in a mode, against Newmark's closed form."""
    body = beam()
    mode = fem.modes(body, 3)
    w, dt = float(mode.frequency[0]), 2.5e-5
    found = fem.simulate(body, None, dt, t1=200 * dt, u0=mode.shape[0] * 1e-6)
    phase = np.arange(201) * 2 * np.arctan(w * dt / 2)
    expected = np.cos(phase)[:, None, None] * np.asarray(mode.shape[0]) * 1e-6
    np.testing.assert_allclose(found.u, expected, atol=1e-9 * np.abs(expected).max())
    k, m = fem.stiffness(body), fem.mass(body)
    energy = jax.vmap(lambda u, v: jnp.vdot(u, k @ u) + jnp.vdot(v, m @ v))(found.u, found.v)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)


def test_matter_at_rest_feels_nothing_of_a_moving_frame():
    """Displacements that undo the motion of the frame: all inertia forces add up to zero."""
    body = fem.Body(fem.box_mesh(0.06, SIDE, SIDE, 2, 1, 1), fem.Isotropic(1.0, 0.0, 2700.0))
    axis = jnp.array([0.6, 0.0, 0.8])

    def pose(t):
        angle = 0.3 * jnp.sin(7 * t)
        return axis_angle(axis, angle), jnp.array([1.0, 2.0, 3.0]) * t**2

    def displacement(t):
        rotation, origin = pose(t)
        return (body.mesh.nodes - origin[None]) @ rotation - body.mesh.nodes

    def rate(f):
        return lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]

    t = jnp.array(0.4)
    rotation, _ = pose(t)
    speed = 0.3 * 7 * jnp.cos(7 * t)
    growth = -0.3 * 49 * jnp.sin(7 * t)
    acceleration = rotation.T @ rate(rate(lambda s: pose(s)[1]))(t)
    frame = fem.FrameMotion(acceleration, axis * speed, axis * growth)
    equations = structure(body)
    u, v, a = displacement(t), rate(displacement)(t), rate(rate(displacement))(t)
    force = equations.forces(frame)(a, v, u) - equations.inertia.frame_load(frame)
    assert float(jnp.abs(force).max()) < 1e-13 * float(jnp.abs(equations.mass(a)).max())


@pytest.mark.long
def test_a_steady_turn_ends_in_the_stretch_of_statics():
    body = beam(fem.Rayleigh(2e4, 1e-5))
    turn = fem.FrameMotion(jnp.zeros(3), jnp.array([0.0, 0.0, 300.0]), jnp.zeros(3))
    found = fem.simulate(
        body, lambda t: turn, 2.5e-5, t1=5e-3, ts=jnp.array([5e-3]), geometric=False
    )
    matrix = fem.stiffness(body) + fem.inertia(body).matrix(turn.turning)
    free = body.free
    exact = np.zeros(free.shape)
    right = np.asarray(fem.inertia(body).frame_load(turn))[free]
    exact[free] = np.linalg.solve(matrix.to_scipy(free).toarray(), right)
    np.testing.assert_allclose(found.u[0], exact, atol=1e-6 * np.abs(exact).max())


@pytest.mark.long
def test_gravity_in_the_frame_or_as_a_load():
    body, g = beam(fem.Rayleigh(1.0, 8e-5)), jnp.array([1.0, 2.0, -9.81])
    still = fem.FrameMotion(-g, jnp.zeros(3), jnp.zeros(3))
    weight = fem.Load(fem.gravity(body, g)[None], lambda t: jnp.ones(1))
    one = fem.simulate(body, lambda t: still, 2.5e-5, t1=1e-3, geometric=False)
    other = fem.simulate(body, None, 2.5e-5, t1=1e-3, load=weight)
    np.testing.assert_allclose(one.u, other.u, atol=1e-12 * np.abs(other.u).max())


@pytest.mark.soak
def test_reduced_bodies_against_whole_ones_and_against_kvaerno():
    body = beam(fem.Rayleigh(1.0, 8e-5), cells=(6, 2, 2))
    load, dt, t1 = tip_load(body), 2.5e-5, 5e-3
    ts = jnp.linspace(0, t1, 21)
    whole = fem.simulate(body, TURN, dt, t1=t1, load=load, ts=ts)
    small = fem.reduce(body, 20, patterns=load.patterns)
    few = fem.simulate(small, TURN, dt, t1=t1, load=load, ts=ts)
    largest = np.abs(whole.u).max()
    np.testing.assert_allclose(few.u, whole.u, rtol=0, atol=5e-4 * largest)
    stiff = fem.simulate(
        small, TURN, dt, t1=t1, load=load, ts=ts, method=Kvaerno5(), rtol=1e-9, atol=1e-14
    )
    errors = []
    for step in (dt, dt / 4):
        few = fem.simulate(small, TURN, step, t1=t1, load=load, ts=ts)
        errors.append(np.abs(few.u - stiff.u).max() / largest)
    assert errors[0] < 3e-3
    np.testing.assert_allclose(errors[0] / errors[1], 16, rtol=0.1)


@pytest.mark.long
@pytest.mark.parametrize("reduced", [pytest.param(False, marks=pytest.mark.soak), True])
def test_derivatives_of_the_tip_and_of_the_peak(reduced):
    """With respect to material, dimensions, damping and the motion, forwards and backwards."""

    def answer(p, adjoint=None):
        length, width, e, nu, rho, mass, stiffness, speed = p
        body = beam(fem.Rayleigh(mass, stiffness), (4, 1, 1), e, nu, rho, length, width)
        load = tip_load(body)
        model = fem.reduce(body, 6, patterns=load.patterns) if reduced else body
        motion = Turn(TURN.rate * speed, TURN.acceleration)
        ts = jnp.linspace(0, 2e-3, 11)
        u = fem.simulate(model, motion, 5e-5, t1=2e-3, load=load, ts=ts, adjoint=adjoint).u
        stress = jax.vmap(lambda ut: fem.von_mises(fem.stress(body, ut)))(u)
        return 1e6 * jnp.linalg.norm(u[-1, -1]) + 1e-6 * fem.smooth_maximum(stress)

    p = jnp.array([0.06, 1.3 * SIDE, 7.22e10, 0.34, 2700.0, 1.0, 8e-5, 1.0])
    gradient = jax.grad(answer)(p)
    for i in range(len(p)):
        h = 1e-3 * p[i]
        step = jnp.zeros(len(p)).at[i].set(h)
        near, far = (answer(p + k * step) - answer(p - k * step) for k in (1, 2))
        central = (8 * near - far) / (12 * h)
        np.testing.assert_allclose(gradient[i], central, rtol=1e-6, atol=1e-9 * abs(1 / p[i]))
    if not reduced:
        direction = p * jnp.arange(1.0, 9.0)
        forwards = jax.jvp(lambda p: answer(p, diffrax.ForwardMode()), (p,), (direction,))[1]
        np.testing.assert_allclose(forwards, gradient @ direction, rtol=1e-9)


def _end(t, u, v):
    return u[-1]


@pytest.mark.long
def test_other_numbers_do_not_compile_again():
    from jaxgrip.fem._dynamics import _simulate

    body = beam()
    fem.simulate(body, TURN, 2.5e-5, t1=1e-3, save=_end)
    before = _simulate._cached._cache_size()
    other = Turn(TURN.rate * 2, TURN.acceleration)
    fem.simulate(beam(e=2e11, length=0.1), other, 5e-5, t1=2e-3, save=_end)
    assert _simulate._cached._cache_size() == before


@pytest.mark.soak
def test_many_variants_at_once():
    body = beam(fem.Rayleigh(1.0, 8e-5))

    def tip(e):
        material = fem.Isotropic(e, 0.34, 2700.0)
        other = fem.Body(body.mesh, material, clamp="x0", damping=body.damping)
        small = fem.reduce(other, 6)
        return fem.simulate(small, TURN, 2.5e-5, t1=5e-4, ts=jnp.array([5e-4])).u[0, -1]

    moduli = jnp.array([5e10, 7e10, 2e11])
    together = jax.vmap(tip)(moduli)
    alone = jnp.stack([tip(e) for e in moduli])
    np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-16)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"t1": -1.0}, "must be later than the start"),
        ({"t1": np.inf}, "The end t1 is not finite"),
        ({"dt": 0.0}, "must be positive"),
        ({"u0": jnp.full((20, 3), jnp.nan)}, "u0 is not finite"),
        ({"ts": jnp.array([0.0, 2.0])}, "must increase and lie between"),
        ({"method": Kvaerno5()}, "reduce the body first"),
        ({"load": jnp.ones((20, 3))}, "give Load\\(patterns, amount\\)"),
        (
            {"load": fem.Load(jnp.full((1, 20, 3), jnp.nan), lambda t: jnp.ones(1))},
            "patterns of the load is not finite",
        ),
        (
            {"load": fem.Load(jnp.ones((1, 20, 3)), lambda t: jnp.log(5e-4 - t)[None])},
            "amount of the load is not finite at 0.0005",
        ),
    ],
)
def test_bad_input_gets_a_sentence(change, sentence):
    given = {"dt": 1e-5, "t1": 1e-3} | change
    with pytest.raises(ValueError, match=sentence):
        fem.simulate(beam(), None, given.pop("dt"), **given)


@pytest.mark.long
@pytest.mark.parametrize("method", [Kvaerno5(), diffrax.Dopri5()])
def test_a_motion_that_needs_more_steps_is_told(method):
    body = fem.reduce(beam(), 3)
    u0 = jnp.tensordot(jnp.array([1e-6, 0.0, 0.0]), body.shapes, 1)
    options = {"t1": 1.0, "u0": u0, "method": method, "max_steps": 4}
    with pytest.raises(RuntimeError, match=r"^The motion stopped after 4 steps: raise max_steps"):
        fem.simulate(body, None, 1e-5, **options)
    assert not diffrax.is_okay(fem.simulate(body, None, 1e-5, throw=False, **options).result)


def test_methods_that_are_not_stable_are_refused():
    with pytest.raises(ValueError, match="not stable for every step"):
        fem.Newmark(beta=0.1)
    with pytest.raises(ValueError, match="from 0 to 1"):
        fem.GeneralizedAlpha(1.5)


@pytest.mark.long
def test_steps_too_long_for_the_motion_are_told():
    body = beam()
    with pytest.warns(UserWarning, match="times the period of the slowest vibration"):
        fem.simulate(body, None, 1e-3, t1=2e-3)
    fast = fem.FrameMotion(jnp.zeros(3), jnp.array([0.0, 0.0, 8000.0]), jnp.zeros(3))
    with pytest.warns(UserWarning, match=r"rotates by 0\.2"):
        fem.simulate(body, lambda t: fast, 2.5e-5, t1=1e-4, throw=False)


@pytest.mark.long
def test_a_load_that_the_reduction_does_not_know():
    body = beam()
    with pytest.raises(ValueError, match="2 patterns, but the body was reduced with 0"):
        fem.simulate(fem.reduce(body, 3), None, 1e-5, t1=1e-4, load=tip_load(body))


def test_rates_of_a_structure_for_any_solver():
    body = beam()
    small = fem.reduce(body, 4).structure
    q, v = jnp.arange(4.0) * 1e-6, jnp.arange(4.0)
    mass = small.factorise(jnp.array(1.0), jnp.array(0.0))
    term = StructureTerm(small, lambda t: None, lambda t: jnp.zeros(4), mass)
    speed, acceleration = term.vf(0.0, (q, v), None)
    np.testing.assert_array_equal(speed, v)
    w = np.asarray(fem.frequencies(body, 4))
    np.testing.assert_allclose(acceleration, -(w**2) * q, atol=1e-7 * np.abs(acceleration).max())


@pytest.mark.soak
def test_forward_derivatives_of_a_load_that_comes_later():
    """Nothing moves in their direction for a while, which must not leave a trace."""
    body = beam(fem.Rayleigh(1.0, 8e-5))
    patterns = fem.tip_wrench(body, "x1", (0.0, 1.0, 0.0), (0.0, 0.0, 0.0))[None]

    def tip(amount):
        load = fem.Load(patterns, lambda t: jnp.where(t > 1e-3, amount, 0.0)[None])
        ts, adjoint = jnp.array([2e-3]), diffrax.ForwardMode()
        return fem.simulate(body, TURN, 5e-5, t1=2e-3, load=load, ts=ts, adjoint=adjoint).u[
            0, -1, 1
        ]

    slope = jax.jvp(tip, (jnp.array(2.0),), (jnp.array(1.0),))[1]
    np.testing.assert_allclose(slope, tip(jnp.array(3.0)) - tip(jnp.array(2.0)), rtol=1e-8)


@pytest.mark.long
def test_motions_of_closures_under_vmap():
    body = beam(fem.Rayleigh(1.0, 8e-5))

    def tip(speed):
        turn = fem.FrameMotion(
            jnp.zeros(3), jnp.stack([0.0 * speed, 0.0 * speed, speed]), jnp.zeros(3)
        )
        return fem.simulate(body, lambda t: turn, 5e-5, t1=5e-4, ts=[5e-4]).u[0, -1, 0]

    many = jax.vmap(tip)(jnp.array([50.0, 100.0]))
    np.testing.assert_allclose(many[1], 4 * many[0], rtol=1e-3)


@pytest.mark.soak
def test_a_reduced_body_starts_at_rest_while_its_load_changes():
    body = beam(fem.Rayleigh(1.0, 8e-5))

    def jolt(t):
        acceleration = jnp.stack([0.0 * t, 100 * jnp.sin(300 * t), 0.0 * t])
        return fem.FrameMotion(acceleration, jnp.zeros(3), jnp.zeros(3))

    small = fem.reduce(body, 12)
    found = fem.simulate(small, jolt, 1e-5, t1=1e-4)
    # What is left is the part of the corrections that no shape can take back.
    whole = fem.simulate(body, jolt, 1e-5, t1=1e-4)
    assert float(jnp.abs(found.v[0]).max()) < 0.05 * float(jnp.abs(whole.v).max())


@pytest.mark.parametrize("ts", [[], [2.0]])
def test_times_to_save_at(ts):
    with pytest.raises(ValueError, match="ts"):
        fem.simulate(beam(), None, 1e-5, t1=1e-3, ts=ts)


def test_patterns_in_another_order_are_told():
    body = beam()
    load = tip_load(body)
    small = fem.reduce(body, 3, patterns=load.patterns[::-1])
    with pytest.raises(ValueError, match="not those that the body was reduced with"):
        fem.simulate(small, None, 1e-5, t1=1e-4, load=load)
