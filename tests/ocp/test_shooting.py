"""Shooting: starts from known motions, and events that change places on the way."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.models import ocp_problems
from jaxgrip.ocp import Free, Problem, Solver
from jaxgrip.ocp.indirect import evaluate, pose, residuals, start_arcs
from jaxgrip.ocp.pipeline import Search, run
from jaxgrip.ocp.pipeline._shooting import Aim, aim, shoot
from jaxgrip.ocp.structure import (
    lay_out,
    order_of_events,
    parts_of,
    read_constraint,
)

DISTANCES, SPEEDS = np.array([1.0, 1.1]), np.array([1.0, 1.09])


@pytest.fixture(scope="module")
def search():
    return Search(
        Problem(
            lambda x, u: jnp.concatenate([x[2:], u]),
            running_cost=lambda x, u: 1.0 + 0.05 * jnp.sum(u**2),
            initial_state=np.zeros(4),
            final_state=np.concatenate([DISTANCES, np.zeros(2)]),
            final_time=Free(1.4),
            control_bounds=(-30.0 * np.ones(2), 30.0 * np.ones(2)),
            state_bounds=(np.full(4, -np.inf), np.concatenate([np.full(2, np.inf), SPEEDS])),
        ),
        Solver(starts=1),
    )


@pytest.fixture(scope="module")
def certified(search):
    found = run(search).certified
    assert found.certificate.passed
    return found


def entries(extremal):
    """Times at which the speeds reach their limits, by hand: the forces fall linearly to zero."""
    time = float(extremal.shot.arcs.times[-1])
    return 1.5 * (time - DISTANCES / SPEEDS)


def entered(structure):
    order = np.argsort([each.index for each in structure.active])
    return np.array([structure.constraints[i][0].end for i in order])


def test_speed_limits_are_reached_when_the_forces_have_fallen_to_zero(certified):
    structure = certified.candidate.structure
    np.testing.assert_allclose(entered(structure), entries(certified.extremal), rtol=1e-9)


def test_events_in_the_wrong_order_change_places(search, certified):
    candidate = certified.candidate
    wrong = list(candidate.structure.constraints)
    (first, *rest), (second, *others) = wrong
    wrong = [[second._replace(kind=first.kind), *rest], [first._replace(kind=second.kind), *others]]
    structure = candidate.structure._replace(constraints=wrong)
    start = aim(search, candidate._replace(structure=structure, laid_out=None), 12)
    found, extremal = shoot(search, start, candidate.reading)
    assert extremal.shot.converged
    assert np.all(np.diff(np.asarray(extremal.shot.arcs.times), prepend=0.0) > 0.0)
    assert order_of_events(found.structure) != order_of_events(structure)
    np.testing.assert_allclose(
        extremal.shot.arcs.times[-1], certified.extremal.shot.arcs.times[-1], rtol=1e-12
    )


def test_an_arc_that_the_motion_lacks_is_lost_on_the_way(search, certified):
    """The first speed would not exceed this limit anyway."""
    candidate = certified.candidate
    upper = search.problem.state_upper.at[2].set(1.5 * DISTANCES[0])
    faster = Search(eqx.tree_at(lambda p: p.state_upper, search.problem, upper), search.solver)
    start = aim(faster, candidate, 12)
    found, extremal = shoot(faster, start, candidate.reading)
    assert extremal.shot.converged
    (row,) = [i for i, each in enumerate(found.structure.active) if each.index == 0]
    assert len(found.structure.constraints[row]) == 1
    imposed, _ = shoot(faster, start, candidate.reading, is_imposed=True)
    assert imposed.structure.kinds == candidate.structure.kinds


@pytest.mark.parametrize(
    "make",
    [None, pytest.param(lambda: ocp_problems.bryson_denham(0.2), marks=pytest.mark.long)],
)
def test_a_known_motion_is_a_start_near_itself(make, certified):
    """Costates jump where a constraint becomes active or touches: each side keeps its value."""
    if make is not None:
        certified = run(Search(make(), Solver(starts=1))).certified
    bvp, shot = certified.extremal
    assert np.any(np.asarray(shot.arcs.jump) != 0.0)
    size = shot.arcs.stage.shape[1:3]
    start = start_arcs(bvp, certified.extremal.trajectory(), np.asarray(shot.arcs.times), *size)
    left = residuals(bvp, evaluate(bvp, start, with_jacobian=False))
    # The jumps themselves enter linearly, and are not known of touch points.
    assert jnp.max(jnp.abs(left.stage)) < 1e-3
    assert jnp.max(jnp.abs(left.law)) < 1e-3


def test_parts_between_events_are_kept(certified):
    structure = certified.candidate.structure
    layout = lay_out(structure, 12)
    parts = parts_of(layout)
    assert sum(parts) == 12
    again = lay_out(structure, 12, parts)
    assert parts_of(again) == parts
    ends = np.flatnonzero(again.plan.is_switch)
    np.testing.assert_array_equal(ends, np.flatnonzero(layout.plan.is_switch))
    np.testing.assert_array_equal(again.times[ends], layout.times[ends])
    for lengths in np.split(np.diff(again.times, prepend=0.0), ends + 1):
        np.testing.assert_allclose(lengths, lengths[0])


@pytest.mark.parametrize("barrier", [1e-4, 1e-6, 1e-8])
def test_an_arc_does_not_include_the_approach(barrier):
    """On the central path distance times multiplier is the barrier parameter.

    The distance grows with the square of the time before the arc and after it.
    """
    t = np.linspace(0.0, 1.0, 401)
    t = 0.5 * (t[1:] + t[:-1])
    away = 5.0 * (np.clip(0.3 - t, 0.0, None) + np.clip(t - 0.7, 0.0, None)) ** 2
    # With multiplier one along the arc.
    value = np.maximum(away, barrier)
    multiplier = barrier / value
    ((first, last, at),) = read_constraint(value, multiplier, 1)
    assert at is None
    # Where the multiplier of the approach is a tenth.
    reach = np.sqrt(10.0 * barrier / 5.0) + 1.0 / 400.0
    assert 0.3 - reach <= t[first] <= 0.3 + 1.0 / 400.0
    assert 0.7 - 1.0 / 400.0 <= t[last - 1] <= 0.7 + reach


def test_an_aim_keeps_the_arcs_of_a_motion(search, certified):
    start = aim(search, certified.candidate, 12)
    assert isinstance(start, Aim)
    bvp = pose(search.problem, start.layout.plan, certified.candidate.reading.sizes)
    left = residuals(bvp, evaluate(bvp, start.arcs, with_jacobian=False))
    assert max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(left) if x.size) < 1e-12
