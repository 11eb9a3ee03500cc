"""Important calls compile nothing, not even a single operation, when only numbers change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from tests.fem.structures.models import chain
from tests.mechanism.conftest import four_bar


def dynamics(scale):
    finger = jg.models.gripper_finger("A", masses=scale * np.array([0.08, 0.16, 0.2]))
    state = scale * jnp.array([[0.1, -0.5, -0.4], [1.0, -2.0, 3.0], [0.2, 0.1, -0.3]])
    return lambda: (
        jg.rigid.rnea(finger.tree, *state),
        jg.rigid.forward_dynamics(finger.tree, *state),
    )


def assembling(scale):
    system = four_bar(drive=60.0 * scale)
    return lambda: jg.mechanism.assemble(system)


def elastic_body(scale):
    material = jg.fem.Isotropic(7e10 * scale, 0.34, 2700.0)
    body = jg.fem.Body(jg.fem.box_mesh(0.06 * scale, 0.01, 0.01, 3, 1, 1), material, clamp="x0")
    load = jg.fem.gravity(body, (0.0, 0.0, -9.81 * scale))
    return lambda: (jg.fem.solve_static(body, load), jg.fem.frequencies(body, 2))


def structure(scale):
    beams, poses = chain(scale * np.array([[0.0, 0, 0], [1.0, 0, 0.2], [2, 1, 0]]))
    load = jg.fem.structures.NodalForce("part.tip", scale * jnp.array([10.0, 20.0, 30.0]))
    return lambda: jg.fem.structures.solve(beams, poses, load)


def optimum(scale):
    problem = jg.models.ocp_problems.double_integrator_time(
        (-1.0, 0.1 * scale), bound=scale, final_time=jg.ocp.Free(scale)
    )
    return lambda: jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=1))


def torque(amplitude, t, q, qd):
    return jnp.full_like(q, amplitude * jnp.sin(3.0 * t))


def servo(scale):
    arm = jg.models.servo_ax12_arm(length=0.25 * scale)
    model = jg.models.servo_ax12(stiffness=20.0 * scale)
    command = jax.tree_util.Partial(torque, jnp.asarray(0.3 * scale))
    times = scale * jnp.linspace(0.0, 0.1, 5)
    return lambda: jg.actuators.simulate(arm, model, command, times)


@pytest.mark.parametrize(
    "made",
    [dynamics, assembling, elastic_body, structure, optimum, servo],
    ids=lambda f: f.__name__,
)
def test_other_numbers_compile_nothing(made, compilations):
    first, second = made(1.0), made(1.1)
    first()
    with compilations() as found:
        second()
    assert not found


def test_what_is_compiled_is_counted(compilations):
    with compilations() as found:
        jax.jit(lambda x: 2.5 * x - 1.25)(jnp.ones(3))
    assert found
