"""The gripper's motions with state constraints and competing drives.

Published in Schanzer 2007, appendices A and B.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

FAST = {"A": (0.25, 0.05, 0.40), "B": (0.20, 0.07, 0.35)}
SLOW = {"A": 0.45, "B": 0.40}
SLOW_RATE = {"A": 8.0, "B": 8.5}
FAST_RATE = 100.0
# Squared norms of all drives' limits, the fast and the slow ones.
WEIGHT = 0.3924 + 0.3625

# Relative switching times of 4.3 and 4.4 with the control that changes there.
BY_WEIGHTS = {
    "A": (0.149132, 0.279400, 0.387392, 0.603302, 0.650935, 0.694107, 0.776847),
    "B": (0.196010, 0.275452, 0.474550, 0.523620, 0.578656, 0.609095, 0.653568, 0.836709, 0.879501),
}
CONTROLS_BY_WEIGHTS = {"A": (2, 0, 2, 2, 0, 1, 1), "B": (2, 2, 0, 0, 1, 1, 2, 1, 1)}
BY_RATES = (0.083592, 0.096625, 0.231661, 0.559569, 0.678124, 0.679408, 0.693571, 0.866703)
PUBLISHED_B_BY_RATES = (
    *(0.091875, 0.155421, 0.214970, 0.286395, 0.518840),
    *(0.576198, 0.651682, 0.711393, 0.766194, 0.977383),
)
CONTROLS_BY_RATES = (0, 2, 3, 1, 1, 3, 0, 1)

TOGETHER = (
    *(0.223998, 0.248088, 0.313626, 0.444915, 0.500000, 0.513995, 0.546276, 0.596288),
    *(0.634618, 0.657232, 0.712760, 0.725307, 0.784341, 0.794610, 0.818325, 0.856044),
    *(0.866558, 0.874786, 0.961093, 0.977639),
)


def competing_drives(name, weight=1.0, bounded_rates=False):
    """Least effort within 0.137 s; joint 2 has a fast weak drive and a slow strong one."""
    finger = jg.models.gripper_finger(name)
    limit = np.array([*FAST[name], SLOW[name]])
    rate = np.array([FAST_RATE] * 3 + [SLOW_RATE[name]])
    weights = np.array([1.0, 1.0, 1.0, weight])
    drives = jnp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    return jg.ocp.Problem(
        jg.rigid.StateSpace(finger.tree, drives),
        running_cost=lambda x, u: jnp.sum(weights * u**2) / WEIGHT,
        initial_state=jnp.concatenate([finger.start, jnp.zeros(3)]),
        final_state=jnp.concatenate([finger.end, jnp.zeros(3)]),
        final_time=0.137,
        control_bounds=(-limit, limit),
        rate_bounds=(-rate, rate) if bounded_rates else None,
    )


def both_fingers():
    """Minimum time plus a tenth of finger A's effort, rates of all joints bounded."""
    a, b = jg.models.gripper_finger("A"), jg.models.gripper_finger("B")
    limit = jnp.concatenate([a.torque_limit, b.torque_limit])
    rate = jnp.concatenate([a.velocity_limit, b.velocity_limit])
    return jg.ocp.Problem(
        jg.rigid.StateSpace(jg.models.two_finger_gripper()),
        running_cost=lambda x, u: 1.0 + 0.1 * jnp.sum(u[:3] ** 2) / jnp.sum(limit**2),
        initial_state=jnp.concatenate([a.start, b.start, jnp.zeros(6)]),
        final_state=jnp.concatenate([a.end, b.end, jnp.zeros(6)]),
        final_time=jg.ocp.Free(0.13),
        control_bounds=(-limit, limit),
        state_bounds=([None] * 6 + [-r for r in rate], [None] * 6 + list(rate)),
    )


@pytest.fixture(scope="module")
def together():
    return jg.ocp.solve(both_fingers(), solver=jg.ocp.Solver(starts=1))


@pytest.mark.long
def test_both_fingers_certified(together):
    assert together.certificate.passed, str(together.certificate)
    assert max(check.value for check in together.certificate.checks) < 1e-9
    np.testing.assert_allclose(together.final_time, 0.1213262947, atol=1e-9)


@pytest.mark.long
def test_both_fingers_switching_times(together):
    tau = np.asarray(together.switching_times) / float(together.final_time)
    np.testing.assert_allclose(tau, TOGETHER, atol=2e-6)
    joints = {1: (4, 7), 2: (6, 12, 14, 19), 3: (1, 3, 9, 13, 15, 20), 4: (5,), 5: (8, 18)}
    joints[6] = (2, 10, 11, 16, 17)
    changing = [next(joint for joint, at in joints.items() if i in at) for i in range(1, 21)]
    assert (together.structure.switching_controls + 1).tolist() == changing


@pytest.mark.long
def test_both_fingers_jumps_and_multipliers(together):
    """Order one: the jump at the entry is the multiplier there; it does not grow on the arc.

    The published jumps are those of a costate over the time relative to the final time.
    """
    eta = np.asarray(together.jumps)[:, 0] / float(together.final_time)
    np.testing.assert_allclose(eta[[9, 15]], [8.57103898e-5, 9.63801790e-6], rtol=1e-8)
    np.testing.assert_allclose(np.delete(eta, [9, 15]), 0.0, atol=1e-18)
    bounds = np.flatnonzero(together.structure.active.any(axis=0))
    assert bounds.tolist() == [5, 11]
    for constraint, entry in zip(bounds, (9, 15), strict=True):
        begin, end = np.asarray(together.switching_times)[entry : entry + 2]
        t = np.asarray(together.t)
        nu = np.asarray(together.multiplier)[(t > begin) & (t <= end), constraint]
        assert np.all(nu >= -1e-15)
        assert np.all(np.diff(nu) <= 1e-15)
    assert np.max(np.abs(together.x[:, 6:])) <= 65.0 * (1.0 + 1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "weight", "objective", "share"),
    [
        pytest.param("A", 5.0, 0.0577113, 0.672, marks=pytest.mark.soak),
        ("B", 10.0, 0.0784916, 0.755),
    ],
)
def test_drives_told_apart_by_weights(name, weight, objective, share):
    sol = jg.ocp.solve(competing_drives(name, weight), solver=jg.ocp.Solver(starts=1))
    assert sol.certificate.passed, str(sol.certificate)
    assert max(check.value for check in sol.certificate.checks) < 1e-9
    np.testing.assert_allclose(np.asarray(sol.switching_times) / 0.137, BY_WEIGHTS[name], atol=2e-6)
    assert sol.structure.switching_controls.tolist() == list(CONTROLS_BY_WEIGHTS[name])
    np.testing.assert_allclose(sol.objective, objective, atol=2e-7)
    used = np.max(np.abs(sol.u[:, 3])) / SLOW[name]
    np.testing.assert_allclose(used, share, atol=1e-3)


@pytest.mark.soak
def test_drives_told_apart_by_rates_finger_a():
    sol = jg.ocp.solve(competing_drives("A", bounded_rates=True), solver=jg.ocp.Solver(starts=1))
    assert sol.certificate.passed, str(sol.certificate)
    assert max(check.value for check in sol.certificate.checks) < 1e-9
    np.testing.assert_allclose(np.asarray(sol.switching_times) / 0.137, BY_RATES, atol=2e-6)
    assert sol.structure.switching_controls.tolist() == list(CONTROLS_BY_RATES)
    np.testing.assert_allclose(sol.objective, 0.0257459, atol=1e-6)
    assert_rate_arc(sol, 8.0)


@pytest.mark.long
def test_drives_told_apart_by_rates_finger_b_is_better_than_published():
    """The published structure, saturated from the start, costs 0.02025696 at best."""
    sol = jg.ocp.solve(competing_drives("B", bounded_rates=True), solver=jg.ocp.Solver(starts=1))
    assert sol.certificate.passed, str(sol.certificate)
    assert max(check.value for check in sol.certificate.checks) < 1e-9
    np.testing.assert_allclose(sol.objective, 0.02025535, atol=2e-8)
    assert sol.objective < 0.0202554
    np.testing.assert_allclose(sol.u[0, 3], -0.3873, atol=1e-3)
    assert_rate_arc(sol, 8.5)


@pytest.mark.long
def test_published_structure_of_finger_b_breaks_the_minimum_principle():
    """All its times come out, and the slow drive is at its lower limit where H_u is negative."""
    sol = jg.ocp.solve(
        competing_drives("B", bounded_rates=True),
        solver=jg.ocp.Solver(starts=1),
        structure=[
            [(1, 0.15), (0, 0.65), (-1, 1.0)],
            [(-1, 0.52), (0, 0.71), (1, 0.77), (0, 0.98), (-1, 1.0)],
            [(-1, 0.09), (0, 1.0)],
            [(-1, 0.21), (0, 0.29), (4, 0.58), (0, 1.0)],
        ],
        throw=False,
    )
    assert sol.certificate.failed == ("minimum principle on bang arcs",)
    tau = np.asarray(sol.switching_times) / 0.137
    np.testing.assert_allclose(tau, PUBLISHED_B_BY_RATES, atol=2e-6)
    np.testing.assert_allclose(sol.objective, 0.02025696, atol=1e-8)
    assert sol.switching_function[0, 3] < 0.0
    np.testing.assert_allclose(sol.u[0, 3], -SLOW["B"], rtol=1e-12)


def assert_rate_arc(sol, rate):
    """The slow drive rises at its limit on one arc, where its costate is negative inside."""
    rising = np.any(sol.structure.kinds == 4, axis=0)
    assert rising.tolist() == [False, False, False, True]
    moving = np.flatnonzero(sol.structure.kinds[:, 3] == 4)
    edges = np.array([0.0, *np.asarray(sol.switching_times), float(sol.final_time)])
    begin, end = edges[moving[0]], edges[moving[-1] + 1]
    t, costate = np.asarray(sol.t), np.asarray(sol.rate_costate)[:, 3]
    inside = (t > begin) & (t < end)
    assert np.all(costate[inside] < 0.0)
    size = np.max(np.abs(costate))
    for edge in (begin, end):
        near = np.abs(t - edge) < 1e-12
        np.testing.assert_allclose(costate[near], 0.0, atol=1e-10 * size)
    u = np.asarray(sol.u)[:, 3]
    np.testing.assert_allclose(np.polyfit(t[inside], u[inside], 1)[0], rate, rtol=1e-9)
