"""Optimal control problems with known answers.

Each function returns an `ocp.Problem`; its keywords are the problem's numbers, which may be traced:
a solution can be differentiated with respect to them, and other numbers do not recompile. Only
the presence of a bound is static. The answers are in docs/ocp-problems.md, their derivations in
tests/models/test_ocp_problems.py.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import ArrayLike

from jaxgrip.ocp import Free, Problem


def _with(function: Callable, *numbers) -> Partial:
    """A function of numbers, state and control, with the numbers bound as array leaves."""
    return Partial(function, *(jnp.asarray(number, dtype=float) for number in numbers))


def _symmetric(bound) -> tuple:
    """Bounds minus and plus a scalar or a vector."""
    bound = jnp.atleast_1d(jnp.asarray(bound, dtype=float))
    return -bound, bound


def _one_sided(n: int, lower: dict | None = None, upper: dict | None = None) -> tuple:
    """Bounds (n,) given by index, None elsewhere."""
    lower, upper = lower or {}, upper or {}
    return [lower.get(i) for i in range(n)], [upper.get(i) for i in range(n)]


def _double_integrator(x, u):
    return jnp.stack([x[1], u[0]])


def _triple_integrator(x, u):
    return jnp.stack([x[1], x[2], u[0]])


def _effort(x, u):
    return 0.5 * jnp.sum(u**2)


def _squared_position(x, u):
    return x[0] ** 2


def _velocity_bounds(limit) -> tuple | None:
    return None if limit is None else _one_sided(2, {1: -limit}, {1: limit})


def double_integrator_time(
    start: Sequence | ArrayLike = (-1.0, 0.0),
    end: Sequence | ArrayLike = (0.0, 0.0),
    bound: ArrayLike = 1.0,
    speed_limit: ArrayLike | None = None,
    final_time: Free | None = None,
) -> Problem:
    """Move a mass between two positions in minimum time: x'' = u, |u| <= bound.

    **Arguments:** `start`, `end` `(2,)`, position [m] and velocity [m/s], None in `end` leaves one
    free; `bound` of the acceleration [m/s^2]; `speed_limit` [m/s], of |x'|, none when None;
    `final_time`, default `Free(1.0)`.

    Source: CTProblems.jl.
    """
    return Problem(
        _double_integrator,
        initial_state=start,
        final_state=end,
        final_time=Free(1.0) if final_time is None else final_time,
        control_bounds=_symmetric(bound),
        state_bounds=_velocity_bounds(speed_limit),
    )


def double_integrator_energy(
    start: Sequence | ArrayLike = (0.0, 0.0),
    end: Sequence | ArrayLike = (1.0, 0.0),
    final_time: Free | ArrayLike = 1.0,
    bound: ArrayLike = np.inf,
    speed_limit: ArrayLike | None = None,
) -> Problem:
    """Move a mass with the least integral of u^2 / 2: x'' = u, |u| <= bound.

    **Arguments:** `start`, `end` `(2,)`, position [m] and velocity [m/s], None in `end` leaves one
    free; `final_time` [s], which may be free; `bound` of the acceleration [m/s^2]; `speed_limit`
    [m/s], of |x'|, none when None.

    Source: CTProblems.jl.
    """
    return Problem(
        _double_integrator,
        running_cost=_effort,
        initial_state=start,
        final_state=end,
        final_time=final_time,
        control_bounds=_symmetric(bound),
        state_bounds=_velocity_bounds(speed_limit),
    )


def _difference_of_forces(x, u):
    return jnp.stack([x[1], u[0] - u[1]])


def _sum_of_controls(x, u):
    return jnp.sum(u)


def double_integrator_fuel(
    start: Sequence | ArrayLike = (-1.0, 0.0),
    end: Sequence | ArrayLike = (0.0, 0.0),
    final_time: ArrayLike = 1.0,
    bound: ArrayLike = 5.0,
) -> Problem:
    """Move a mass with the least integral of |u|: x'' = u, |u| <= bound.

    |u| has no derivative at zero, so the control is split into two non-negative ones,
    u = u+ - u-, and u+ + u- is integrated. No optimum uses both at once, so the answer is the same.

    **Arguments:** `start`, `end` `(2,)`, position [m] and velocity [m/s], None in `end` leaves one
    free; `final_time` [s]; `bound` of the acceleration [m/s^2].

    Source: CTProblems.jl.
    """
    bound = jnp.full(2, bound, dtype=float)
    return Problem(
        _difference_of_forces,
        running_cost=_sum_of_controls,
        initial_state=start,
        final_state=end,
        final_time=final_time,
        control_bounds=(jnp.zeros(2), bound),
    )


def triple_integrator_time(
    start: Sequence | ArrayLike = (0.0, 0.0, 0.0),
    end: Sequence | ArrayLike = (1.0, 0.0, 0.0),
    bound: ArrayLike = 1.0,
    final_time: Free | None = None,
) -> Problem:
    """Move a mass in minimum time with bounded jerk: x''' = u, |u| <= bound.

    **Arguments:** `start`, `end` `(3,)`, position [m], velocity [m/s] and acceleration [m/s^2],
    None in `end` leaves one free; `bound` of the jerk [m/s^3]; `final_time`, default `Free(2.0)`.

    Source: own derivation.
    """
    return Problem(
        _triple_integrator,
        initial_state=start,
        final_state=end,
        final_time=Free(2.0) if final_time is None else final_time,
        control_bounds=_symmetric(bound),
    )


def bryson_denham(limit: ArrayLike = 1 / 9) -> Problem:
    """Reverse a moving mass within one second before a wall, least integral of u^2 / 2.

    x'' = u from (0, 1) to (0, -1), x <= limit. The wall is not reached for `limit` above 1/4,
    touched at a point between 1/6 and 1/4, and followed below 1/6. The constraint is of order two.
    Also known as Breakwell's problem.

    **Arguments:** `limit` [m].

    Source: Bryson 1963.
    """
    return Problem(
        _double_integrator,
        running_cost=_effort,
        initial_state=(0.0, 1.0),
        final_state=(0.0, -1.0),
        final_time=1.0,
        control_bounds=_symmetric(np.inf),
        state_bounds=_one_sided(2, upper={0: limit}),
    )


def _rocket(thrust, drag, decay, consumption, x, u):
    r, v, m = x
    resistance = drag * v**2 * jnp.exp(-decay * (r - 1.0))
    return jnp.stack(
        [v, (thrust * u[0] - resistance) / m - 1.0 / r**2, -consumption * thrust * u[0]]
    )


def _depth(time, x):
    return -x[0]


def goddard(
    speed_limit: ArrayLike | None = 0.1,
    thrust: ArrayLike = 3.5,
    drag: ArrayLike = 310.0,
    drag_decay: ArrayLike = 500.0,
    consumption: ArrayLike = 2.0,
    empty_mass: ArrayLike = 0.6,
    final_time: Free | None = None,
) -> Problem:
    """Bring a sounding rocket as high as its fuel allows; all quantities are dimensionless.

    States are the distance r from the planet's centre, speed v and mass m, from (1, 0, 1):
    r' = v, m v' = thrust u - drag v^2 exp(-drag_decay (r - 1)) - m / r^2,
    m' = -consumption thrust u, 0 <= u <= 1; -r at the end is minimised. With the speed limit
    full thrust, a singular arc, an arc on the limit and an arc without thrust follow each other.

    **Arguments:** `speed_limit`, none when None; `thrust`, largest; `drag`, `drag_decay`,
    `consumption`; `empty_mass` at the end; `final_time`, default `Free(0.2)`.

    Source: Goddard 1919; CTProblems.jl.
    """
    return Problem(
        _with(_rocket, thrust, drag, drag_decay, consumption),
        terminal_cost=_depth,
        initial_state=(1.0, 0.0, 1.0),
        final_state=[None, None, empty_mass],
        final_time=Free(0.2) if final_time is None else final_time,
        control_bounds=(jnp.zeros(1), jnp.ones(1)),
        state_bounds=None if speed_limit is None else _one_sided(3, upper={1: speed_limit}),
    )


def _integrator(x, u):
    return u


def nonsmooth_turnpike(
    start: ArrayLike = 1.0,
    end: ArrayLike | None = 0.5,
    final_time: ArrayLike = 2.0,
    bound: ArrayLike = 1.0,
) -> Problem:
    """Least integral of x^2 with x' = u, |u| <= bound: to zero, stay there, then to the end.

    The middle is a singular arc of order one.

    **Arguments:** `start`, `end`, scalars, None leaves the end free; `final_time` [s]; `bound`
    [1/s].

    Source: CTProblems.jl.
    """
    return Problem(
        _integrator,
        running_cost=_squared_position,
        initial_state=(start,),
        final_state=(end,),
        final_time=final_time,
        control_bounds=_symmetric(bound),
    )


def _weak_and_slow(x, u):
    return jnp.stack([x[1], u[0] + x[2], u[1]])


def redundant_actuators(
    level: ArrayLike | None = None,
    rate: ArrayLike = 4.0,
    weak: ArrayLike = 1.0,
    final_time: Free | None = None,
) -> Problem:
    """Move a mass by 1 m in minimum time with a fast weak and a slow strong force.

    x'' = u1 + u2 from rest to rest, |u1| <= weak, |u2'| <= rate, |u2| <= level, and u2 begins and
    ends at zero. The slow force is a state, its rate the second control.

    **Arguments:** `level` [m/s^2], none when None; `rate` [m/s^3]; `weak` [m/s^2]; `final_time`,
    default `Free(2.0)`.

    Source: own derivation.
    """
    bounds = None if level is None else _one_sided(3, {2: -level}, {2: level})
    return Problem(
        _weak_and_slow,
        initial_state=(0.0, 0.0, 0.0),
        final_state=(1.0, 0.0, 0.0),
        final_time=Free(2.0) if final_time is None else final_time,
        control_bounds=_symmetric([weak, rate]),
        state_bounds=bounds,
    )


def _two_forces(x, u):
    return jnp.stack([x[1], u[0] + u[1]])


def redundant_actuators_time(
    level: ArrayLike = 1.0,
    rate: ArrayLike = 4.0,
    weak: ArrayLike = 1.0,
    final_time: Free | None = None,
) -> Problem:
    """As [`redundant_actuators`][], but the slow force is a control with a bounded rate.

    It may then begin and end at any level.

    **Arguments:** `level` [m/s^2]; `rate` [m/s^3]; `weak` [m/s^2]; `final_time`, default
    `Free(2.0)`.
    """
    return Problem(
        _two_forces,
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=Free(2.0) if final_time is None else final_time,
        control_bounds=_symmetric([weak, level]),
        rate_bounds=([None, -rate], [None, rate]),
    )


def redundant_actuators_energy(rate: ArrayLike = 4.0, final_time: ArrayLike = 1.0) -> Problem:
    """Move a mass by 1 m with two forces, the second with a bounded rate; least energy.

    x'' = u1 + u2 from rest to rest, |u2'| <= rate, least integral of (u1^2 + u2^2) / 2. A bound
    below 6 distance / time^3 is active throughout.

    **Arguments:** `rate` [m/s^3]; `final_time` [s].

    Source: own derivation, a small analogue of Schanzer 2007, section 6.2.
    """
    return Problem(
        _two_forces,
        running_cost=_effort,
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=final_time,
        control_bounds=_symmetric([np.inf, np.inf]),
        rate_bounds=([None, -rate], [None, rate]),
    )


def fuller(
    start: Sequence | ArrayLike = (0.0, 1.0),
    end: Sequence | ArrayLike = (0.0, 0.0),
    final_time: ArrayLike = 3.5,
    bound: ArrayLike = 1.0,
) -> Problem:
    """Least integral of the squared position of a mass: x'' = u, |u| <= bound.

    The optimum chatters: it has infinitely many switches before it rests at the origin, where a
    singular arc of order two begins.

    **Arguments:** `start`, `end` `(2,)`, position [m] and velocity [m/s]; `final_time` [s]; `bound`
    [m/s^2].

    Source: Fuller 1963; CTDirect.jl.
    """
    return Problem(
        _double_integrator,
        running_cost=_squared_position,
        initial_state=start,
        final_state=end,
        final_time=final_time,
        control_bounds=_symmetric(bound),
    )


def _two_link(inertia, x, u):
    shoulder, elbow, coupling = inertia
    q2, w1, w2 = x[1], x[2], x[3]
    m11 = shoulder + 2.0 * coupling * jnp.cos(q2)
    m12, m22 = elbow + coupling * jnp.cos(q2), elbow
    det = m11 * m22 - m12**2
    a = u[0] + coupling * jnp.sin(q2) * (w2**2 + 2.0 * w1 * w2)
    b = u[1] - coupling * jnp.sin(q2) * w1**2
    return jnp.stack([w1, w2, (m22 * a - m12 * b) / det, (m11 * b - m12 * a) / det])


def two_link_arm(
    start: Sequence | ArrayLike = (0.0, 0.0, 0.0, 0.0),
    end: Sequence | ArrayLike = (1.5, 0.0, 0.0, 0.0),
    torque: Sequence | ArrayLike = (25.0, 9.0),
    inertia: Sequence | ArrayLike = (5.775, 0.815, 1.35),
    final_time: Free | None = None,
) -> Problem:
    """Move a horizontal two-link arm in minimum time.

    A motion from rest to rest, reversed in time and reflected, is one between the same poses, so
    there are two optima.

    **Arguments:** `start`, `end` `(4,)`, two angles [rad] and their rates [rad/s], the second
    relative to the first, None in `end` leaves one free; `torque` `(2,)`, largest [N m]; `inertia`
    `(3,)` [kg m^2], about the shoulder with the links at a right angle, about the elbow, and of the
    coupling; `final_time`, default `Free(1.0)`.

    Source: Willigenburg 1991; PROPT, problem 121.
    """
    return Problem(
        _with(_two_link, inertia),
        initial_state=start,
        final_state=end,
        final_time=Free(1.0) if final_time is None else final_time,
        control_bounds=_symmetric(torque),
    )


def _cops_robot(length, x, u):
    rho, phi = x[0], x[2]
    about_phi = ((length - rho) ** 3 + rho**3) / 3.0
    about_theta = about_phi * jnp.sin(phi) ** 2
    return jnp.stack([x[3], x[4], x[5], u[0] / length, u[1] / about_theta, u[2] / about_phi])


def cops_robot_arm(
    start: Sequence | ArrayLike = (4.5, 0.0, np.pi / 4, 0.0, 0.0, 0.0),
    end: Sequence | ArrayLike = (4.5, 2 * np.pi / 3, np.pi / 4, 0.0, 0.0, 0.0),
    length: ArrayLike = 5.0,
    bound: ArrayLike = 1.0,
    final_time: Free | None = None,
) -> Problem:
    """Move a sliding and rotating bar in minimum time, dimensionless.

    **Arguments:** `start`, `end` `(6,)`, length rho in front of the pivot, angles theta and phi
    [rad], and their rates, None in `end` leaves one free; `length` of the bar; `bound` of the three
    controls; `final_time`, default `Free(9.0)`.

    Source: Dolan 2004, problem "robot arm".
    """
    return Problem(
        _with(_cops_robot, length),
        initial_state=start,
        final_state=end,
        final_time=Free(9.0) if final_time is None else final_time,
        control_bounds=_symmetric(jnp.full(3, bound, dtype=float)),
    )


def _oscillator(frequency, x, u):
    return jnp.stack([x[1], u[0] - frequency**2 * x[0]])


def harmonic_oscillator_time(
    start: Sequence | ArrayLike = (3.0, 0.0),
    end: Sequence | ArrayLike = (0.0, 0.0),
    bound: ArrayLike = 1.0,
    frequency: ArrayLike = 1.0,
    final_time: Free | None = None,
) -> Problem:
    """Bring an oscillator to rest in minimum time: x'' + frequency^2 x = u, |u| <= bound.

    **Arguments:** `start`, `end` `(2,)`, position [m] and velocity [m/s], None in `end` leaves one
    free; `bound` [m/s^2]; `frequency` [rad/s]; `final_time`, default `Free(5.0)`.

    Source: Pontryagin 1962, chapter 1, example 2.
    """
    return Problem(
        _with(_oscillator, frequency),
        initial_state=start,
        final_state=end,
        final_time=Free(5.0) if final_time is None else final_time,
        control_bounds=_symmetric(bound),
    )


def _cart(frequency, x, u):
    return jnp.stack([x[1], u[0], x[3], -u[0] - frequency**2 * x[2]])


def cart_with_load(
    distance: ArrayLike = 1.0,
    bound: ArrayLike = 1.0,
    frequency: ArrayLike = 3.0,
    final_time: Free | None = None,
) -> Problem:
    """Move a cart with a swinging load from rest to rest in minimum time.

    s'' = u, |u| <= bound, and the load, whose offset from the cart is r, follows
    r'' + frequency^2 r = -u. States are (s, s', r, r').

    **Arguments:** `distance` [m]; `bound` of the acceleration [m/s^2]; `frequency` of the load
    [rad/s]; `final_time`, default `Free(2.0)`.
    """
    return Problem(
        _with(_cart, frequency),
        initial_state=(0.0, 0.0, 0.0, 0.0),
        final_state=(distance, 0.0, 0.0, 0.0),
        final_time=Free(2.0) if final_time is None else final_time,
        control_bounds=_symmetric(bound),
    )


def _pendulum(x, u):
    return jnp.stack([x[1], u[0] - jnp.sin(x[0])])


def pendulum_swing_up(torque: ArrayLike = 0.6, final_time: Free | None = None) -> Problem:
    """Swing a pendulum up to its upper rest in minimum time: q'' + sin q = u, |u| <= torque.

    The unit of time is the square root of length over gravity. There are further optima with more
    swings.

    **Arguments:** `torque` over weight times length; `final_time`, default `Free(5.0)`.
    """
    return Problem(
        _pendulum,
        initial_state=(0.0, 0.0),
        final_state=(np.pi, 0.0),
        final_time=Free(5.0) if final_time is None else final_time,
        control_bounds=_symmetric(torque),
    )


def _brachistochrone(gravity, x, u):
    speed, angle = x[2], u[0]
    return jnp.stack([speed * jnp.sin(angle), speed * jnp.cos(angle), gravity * jnp.cos(angle)])


def brachistochrone(
    end: Sequence | ArrayLike = (2.0, 2.0),
    gravity: ArrayLike = 9.81,
    final_time: Free | None = None,
) -> Problem:
    """Slide without friction to a given point in minimum time.

    States are the horizontal and the downward distance and the speed, from rest; the control is the
    angle between the path and the vertical [rad].

    **Arguments:** `end` `(2,)`, horizontal and down [m]; `gravity` [m/s^2]; `final_time`, default
    `Free(1.0)`.

    Source: Bernoulli 1696.
    """
    return Problem(
        _with(_brachistochrone, gravity),
        initial_state=(0.0, 0.0, 0.0),
        final_state=[end[0], end[1], None],
        final_time=Free(1.0) if final_time is None else final_time,
        control_bounds=_symmetric(np.inf),
    )


def _boat(speed, shear, x, u):
    return jnp.stack([speed * jnp.cos(u[0]) - shear * x[1], speed * jnp.sin(u[0])])


def zermelo(
    start: Sequence | ArrayLike = (3.66, -1.86),
    end: Sequence | ArrayLike = (0.0, 0.0),
    speed: ArrayLike = 1.0,
    shear: ArrayLike = 1.0,
    final_time: Free | None = None,
) -> Problem:
    """Steer a boat through a current in minimum time; the control is its heading [rad].

    x' = speed cos(u) - shear y, y' = speed sin(u), and 0 <= u <= 2 pi, as headings repeat.

    **Arguments:** `start`, `end` `(2,)` [m], None in `end` leaves one free; `speed` through the
    water [m/s]; `shear` of the current [1/s]; `final_time`, default `Free(5.0)`.

    Source: Zermelo 1931; Bryson 1975, section 2.7.
    """
    return Problem(
        _with(_boat, speed, shear),
        initial_state=start,
        final_state=end,
        final_time=Free(5.0) if final_time is None else final_time,
        control_bounds=(np.zeros(1), np.full(1, 2.0 * np.pi)),
    )


def _van_der_pol(x, u):
    return jnp.stack([(1.0 - x[1] ** 2) * x[0] - x[1] + u[0], x[0]])


def _sum_of_squares(x, u):
    return jnp.sum(x**2) + jnp.sum(u**2)


def van_der_pol(
    lowest: ArrayLike | None = -0.25,
    start: Sequence | ArrayLike = (0.0, 1.0),
    final_time: ArrayLike = 10.0,
    bound: ArrayLike = 1.0,
) -> Problem:
    """Damp a van der Pol oscillator, least integral of x1^2 + x2^2 + u^2.

    x1' = (1 - x2^2) x1 - x2 + u, x2' = x1, |u| <= bound, x1 >= lowest, any end.

    **Arguments:** `lowest`, none when None; `start` `(2,)`; `final_time` [s]; `bound`.

    Source: CasADi, vdp_collocation.py.
    """
    return Problem(
        _van_der_pol,
        running_cost=_sum_of_squares,
        initial_state=start,
        final_state=(None, None),
        final_time=final_time,
        control_bounds=_symmetric(bound),
        state_bounds=None if lowest is None else _one_sided(2, {0: lowest}),
    )


def _rayleigh(damping, x, u):
    return jnp.stack([x[1], -x[0] + x[1] * (1.4 - damping * x[1] ** 2) + 4.0 * u[0]])


def _rayleigh_cost(x, u):
    return u[0] ** 2 + x[0] ** 2


def rayleigh(
    start: Sequence | ArrayLike = (-5.0, -5.0),
    end: Sequence | ArrayLike = (0.0, 0.0),
    final_time: ArrayLike = 4.5,
    bound: ArrayLike = 1.0,
    damping: ArrayLike = 0.14,
) -> Problem:
    """Damp a tunnel-diode oscillator, least integral of u^2 + x1^2.

    x1' = x2, x2' = -x1 + x2 (1.4 - damping x2^2) + 4 u, |u| <= bound.

    **Arguments:** `start`, `end` `(2,)`, None in `end` leaves one free; `final_time` [s]; `bound`;
    `damping`.

    Source: Maurer 2001.
    """
    return Problem(
        _with(_rayleigh, damping),
        running_cost=_rayleigh_cost,
        initial_state=start,
        final_state=end,
        final_time=final_time,
        control_bounds=_symmetric(bound),
    )


def _rayleigh_band(lower, upper, x, u):
    mixed = u[0] + x[0] / 6.0
    return jnp.stack([lower - mixed, mixed - upper])


def rayleigh_mixed(
    start: Sequence | ArrayLike = (-5.0, -5.0),
    final_time: ArrayLike = 4.5,
    lower: ArrayLike = -1.0,
    upper: ArrayLike = 0.0,
    damping: ArrayLike = 0.14,
) -> Problem:
    """As [`rayleigh`][], but u + x1 / 6 is bounded instead of u, and the end is free.

    **Arguments:** `start` `(2,)`; `final_time` [s]; `lower` and `upper` bound of u + x1 / 6;
    `damping`.

    Source: as [`rayleigh`][].
    """
    return Problem(
        _with(_rayleigh, damping),
        running_cost=_rayleigh_cost,
        initial_state=start,
        final_state=(None, None),
        final_time=final_time,
        control_bounds=_symmetric(np.inf),
        path_constraints=_with(_rayleigh_band, lower, upper),
    )


def _catalyst(x, u):
    made = u[0] * (10.0 * x[1] - x[0])
    return jnp.stack([made, -made - (1.0 - u[0]) * x[1]])


def _left_over(time, x):
    return x[0] + x[1] - 1.0


def catalyst_mixing(final_time: ArrayLike = 1.0) -> Problem:
    """Mix two catalysts along a reactor for the largest yield of the third substance.

    x1' = u (10 x2 - x1), x2' = u (x1 - 10 x2) - (1 - u) x2 from (1, 0), 0 <= u <= 1; x1 + x2 - 1 at
    the end is minimised. The optimum is one catalyst alone, a singular mixture, the other alone.

    **Arguments:** `final_time`, length of the reactor.

    Source: Gunn 1965; Dolan 2004, problem "catalyst mixing".
    """
    return Problem(
        _catalyst,
        terminal_cost=_left_over,
        initial_state=(1.0, 0.0),
        final_state=(None, None),
        final_time=final_time,
        control_bounds=(jnp.zeros(1), jnp.ones(1)),
    )
