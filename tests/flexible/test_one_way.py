import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip import fem, flexible


def swing(t):
    q = jnp.array([0.3, -0.5, -0.4]) + jnp.array([1.0, 2.0, -1.5]) * t**2
    return flexible.JointMotion(q, jnp.array([2.0, 4.0, -3.0]) * t, jnp.array([2.0, 4.0, -3.0]))


def test_loads_on_a_link_are_in_balance_with_its_inertia():
    """Newton and Euler about the link's origin, with the load its own joint transmits."""
    tree = jg.models.gripper_finger("A").tree
    link = flexible.LinkMotion(tree, "link2", swing)
    frame, wrench = link.frame(0.4), link.wrenches(0.4)
    loads = jg.rigid.rnea_bodies(tree, *swing(0.4))
    m, c, inertia = tree.mass[1], tree.com[1], tree.inertia[1]
    centre = frame.acceleration + frame.turning @ c
    np.testing.assert_allclose(loads.F[1] + wrench[:3], m * centre, rtol=1e-12, atol=1e-12)
    w, wd = frame.angular_velocity, frame.angular_acceleration
    spin = inertia @ wd + jnp.cross(w, inertia @ w) + m * jnp.cross(c, centre)
    moment = loads.N[1] + wrench[3:] + jnp.cross(tree.translation[2], wrench[:3])
    np.testing.assert_allclose(moment, spin, rtol=1e-12, atol=1e-12)


def test_the_last_link_has_no_children():
    tree = jg.models.gripper_finger("A").tree
    link = flexible.LinkMotion(tree, "link3", swing)
    assert link.wrenches(0.4).shape == (0,)
    mesh = fem.box_mesh(0.07, 0.01, 0.01, 2, 1, 1)
    body = fem.Body(mesh, fem.Isotropic(7e10, 0.3, 2700.0), clamp="x0")
    assert flexible.link_load(body, link, {}) is None


def test_every_child_needs_a_face():
    tree = jg.models.gripper_finger("A").tree
    mesh = fem.box_mesh(0.06, 0.01, 0.01, 2, 1, 1)
    body = fem.Body(mesh, fem.Isotropic(7e10, 0.3, 2700.0), clamp="x0")
    link = flexible.LinkMotion(tree, "link2", swing)
    with pytest.raises(ValueError, match="children of 'link2' are link3, but faces are given for"):
        flexible.link_load(body, link, {"link1": "x1"})
    load = flexible.link_load(body, link, {"link3": "x1"})
    force = jnp.tensordot(load.amount(0.4), load.patterns, 1).sum(axis=0)
    np.testing.assert_allclose(force, link.wrenches(0.4)[:3], rtol=1e-10)
    with pytest.raises(ValueError, match="No body is called 'link9'"):
        flexible.LinkMotion(tree, "link9", swing)
