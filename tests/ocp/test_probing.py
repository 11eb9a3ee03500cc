"""A function of a problem that cannot mean what it says is refused with a sentence."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.ocp import Free, Problem

TABLE = [0.0, 1.0, 2.0]
KEYS = jax.random.split(jax.random.key(1), 2)


def state(dynamics=lambda x, u: jnp.stack([x[1], u[0]]), **changes):
    given = {
        "initial_state": (0.0, 0.0),
        "final_state": (1.0, 0.0),
        "final_time": Free(1.0),
        "control_bounds": ([-1.0], [1.0]),
    }
    return Problem(dynamics, **{**given, **changes})


def refused(sentence, *args, **kwargs):
    with pytest.raises(ValueError, match=sentence) as caught:
        state(*args, **kwargs)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message


class Gain(eqx.Module):
    gain: jax.Array

    def __call__(self, x, u):
        return jnp.stack([x[1], self.gain * u[1]])


@jax.jit
def compiled(x, u):
    return jnp.stack([x[1], u[1]])


def repeated(x, u):
    total, _ = jax.lax.scan(lambda c, _: (c + x[2], None), u[0], None, length=2)
    return jnp.stack([x[1], total])


@pytest.mark.parametrize(
    ("index", "dynamics"),
    [
        (1, lambda x, u: jnp.stack([x[1], u[1]])),
        (-2, lambda x, u: jnp.stack([x[1], u[-2]])),
        (1, Gain(jnp.ones(()))),
        (1, compiled),
        (1, functools.partial(lambda k, x, u: jnp.stack([x[1], k * u[1]]), 2.0)),
        (1, lambda x, u: jnp.stack([x[1], jax.vmap(lambda a: a * u[1])(x).sum()])),
    ],
)
def test_a_control_that_is_not_there(index, dynamics):
    """JAX takes the nearest one in its place."""
    refused(rf"dynamics uses entry {index} of the controls, .* numbered 0 to 0", dynamics)


@pytest.mark.parametrize(
    "dynamics",
    [
        lambda x, u: jnp.stack([x[2], u[0]]),
        lambda x, u: x[jnp.array([1, 2])],
        lambda x, u: x[np.array([1, 2])],
        lambda x, u: x[jnp.arange(2) + 1],
        lambda x, u: x.at[2].set(u[0]),
        lambda x, u: jnp.take(x, 2) * x,
        lambda x, u: x.at[2].set(u[0], mode="promise_in_bounds"),
        lambda x, u: jax.lax.cond(x[0] > 0.0, lambda x: x[2], lambda x: x[0], x) * x,
        lambda x, u: jax.lax.cond(True, lambda x: x[2], lambda x: x[0], x) * x,
        lambda x, u: jax.lax.switch(7, [lambda x: x[0], lambda x: x[2]], x) * x,
    ],
)
def test_a_state_that_is_not_there(dynamics):
    refused("dynamics uses entry 2 of the states, whose entries are numbered 0 to 1", dynamics)


@pytest.mark.parametrize(
    "dynamics",
    [
        repeated,
        lambda x, u: jnp.stack([x.reshape(1, 2)[0, 2], u[0]]),
        lambda x, u: jnp.zeros(2).at[2].set(u[0]),
        lambda x, u: jnp.zeros(2).at[jnp.array([0, 2])].set(u[0], mode="promise_in_bounds"),
        lambda x, u: jnp.stack([x[1], jnp.concatenate([x, x])[:2][2]]),
    ],
)
def test_an_entry_of_something_made_from_the_states(dynamics):
    refused("dynamics uses entry 2 of an array, whose entries are numbered 0 to 1", dynamics)


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("running_cost uses entry 1 of the controls", {"running_cost": lambda x, u: u[1] ** 2}),
        ("terminal_cost uses entry 2 of the final states", {"terminal_cost": lambda t, x: x[2]}),
        ("path_constraints uses entry 2 of the sta", {"path_constraints": lambda x, u: x[2] - u}),
        (
            "boundary_conditions uses entry 2 of the initial states",
            {"boundary_conditions": lambda start, t, end: end - start[2]},
        ),
        (
            "dynamics uses entry 1 of the design variables",
            {
                "dynamics": lambda x, u, p: jnp.stack([x[1], p[1] * u[0]]),
                "design_variables": Free([1.0]),
            },
        ),
        (
            "dynamics raises IndexError for .*, time \\(\\)",
            {"dynamics": lambda x, u, t: x * t[0], "is_time_dependent": True},
        ),
    ],
)
def test_every_function_and_argument(sentence, changes):
    refused(sentence, **changes)


def test_links_of_phases():
    phase = state(final_state=(None, None))
    with pytest.raises(ValueError, match="links uses entry 2 of the final states"):
        jg.ocp.join(phase, phase, links=lambda starts, lengths, ends: starts[1] - ends[0][2])
    with pytest.raises(ValueError, match="links uses entry 2 of the durations"):
        jg.ocp.join(phase, phase, links=lambda starts, lengths, ends: starts[1] - lengths[2])
    with pytest.raises(ValueError, match=r"links must take 3 arguments \(initial states, dur"):
        jg.ocp.join(phase, phase, links=lambda starts, ends: starts[1] - ends[0])
    with pytest.raises(ValueError, match="links raises IndexError"):
        jg.ocp.join(phase, phase, links=lambda starts, lengths, ends: starts[2] - ends[0])


@pytest.mark.parametrize(
    ("sentence", "dynamics"),
    [
        ("branches on .* jax.numpy.where", lambda x, u: x if x[0] > 0.0 else u),
        ("branches on .* jax.numpy.where", lambda x, u: x * (x[0] > 0.0 and x[1] > 0.0)),
        ("branches on .* jax.numpy.minimum", lambda x, u: jnp.stack([min(x[1], 1.0), u[0]])),
        ("hands .* to NumPy", lambda x, u: jnp.stack([x[1], u[0] - np.sin(x[0])])),
        ("hands .* to NumPy", lambda x, u: np.array([x[1], u[0]])),
        ("makes a Python number", lambda x, u: jnp.stack([x[1], u[0] - math.sin(x[0])])),
        ("makes a Python number", lambda x, u: x * float(u[0])),
        ("picks entries by a condition", lambda x, u: x[x > 0.0]),
        ("as an index or a count", lambda x, u: x * TABLE[x[0].astype(int)]),
        ("raises TypeError for .* item assignment", lambda x, u: x.__setitem__(0, 1.0)),
        (r"raises TypeError for states \(2,\), controls \(1,\): ", lambda x, u: x + jnp.ones(3)),
        ("raises ZeroDivisionError for", lambda x, u: x * (1 / 0)),
        (r"dynamics must take 2 arguments \(states, controls\), not \(x\)", lambda x: x),
        (r"must take 2 arguments \(states, controls\), not \(x, u, t\)", lambda x, u, t: x),
        (r"must return an array of shape \(2,\), not None", lambda x, u: None),
        ("a list of 2: join them by jax.numpy.stack", lambda x, u: [x[1], u[0]]),
        (r"not an array of shape \(2, 1\)", lambda x, u: x[:, None]),
        ("64-bit floating-point numbers, not int64", lambda x, u: jnp.array([1, 2])),
    ],
)
def test_what_jax_cannot_trace(sentence, dynamics):
    refused(sentence, dynamics)


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("dynamics must take 3 arguments .*, design var", {"design_variables": Free([1.0])}),
        ("dynamics must take 3 arguments .*, time", {"is_time_dependent": True}),
        ("terminal_cost must take 2 arguments", {"terminal_cost": lambda x: x[0]}),
        ("boundary_conditions must take 3 arg", {"boundary_conditions": lambda a, b: a - b}),
    ],
)
def test_other_arguments_than_the_statement_gives(sentence, changes):
    refused(sentence, **changes)


@pytest.mark.parametrize(
    "dynamics",
    [
        lambda x, u: jnp.stack([x[-1], u[-1]]),
        lambda x, u: x.at[jnp.array([1, 5])].get(mode="fill", fill_value=0.0),
        lambda x, u: x.at[jnp.array([1, 5])].get(mode="clip"),
        lambda x, u: x.at[jnp.array([0, 2])].set(u[0], mode="drop"),
        lambda x, u: x.at[5].add(u[0], mode="clip"),
        lambda x, u: jax.lax.cond(False, lambda x: x[5], lambda x: x[1], x) * x,
        lambda x, u: jax.lax.cond(jnp.array(3) > 2, lambda: x[1], lambda: x[5]) * x,
        lambda x, u: jax.lax.switch(-1, [lambda x: x[0], lambda x: x[2]], x) * x,
        lambda x, u: x * jax.random.normal(jax.random.key(0), (2,)),
        lambda x, u: x * jax.random.normal(jax.random.PRNGKey(0), (2,)),
        lambda x, u: x[jax.random.permutation(jax.random.key(0), 2)] * jax.random.uniform(KEYS[1]),
        lambda x, u: jax.lax.fori_loop(0, 2, lambda i, c: c + x[i], u[0]) * x,
        lambda x, u: x[jnp.argmax(x)] * x,
    ],
)
def test_what_is_meant_passes(dynamics):
    state(dynamics)


def test_nothing_is_called_back_by_the_look(capfd):
    def told(x, u):
        jax.debug.print("seen {}", 3)
        return jnp.stack([x[1], u[0]])

    state(told)
    jax.effects_barrier()
    assert "seen" not in capfd.readouterr().out


def test_entries_are_counted_within_one_problem_of_a_batch():
    with pytest.raises(ValueError, match="entry 1 of the controls"):
        eqx.filter_vmap(lambda b: state(compiled, control_bounds=([-b], [b])))(jnp.ones(3))


@pytest.mark.long
def test_a_cost_that_is_a_plain_number():
    """One a second is minimum time: distance one within |u| <= 1 takes two."""
    solution = jg.ocp.solve(state(running_cost=lambda x, u: 1.0), solver=jg.ocp.Solver(starts=1))
    np.testing.assert_allclose(solution.objective, 2.0, rtol=1e-12)
