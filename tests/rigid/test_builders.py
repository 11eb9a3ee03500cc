import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

from .conftest import random_placements, random_state

ROW = jg.rigid.DHRow("arm", None, 0.1, 0.2, 1.0, (0.1, 0.0, 0.0), (0.02, 0.03, 0.025))
TIP = ROW._replace(name="tip", parent="arm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mass": -1.0}, "mass of body 'arm' is -1 kg; it must be positive"),
        ({"mass": 0.0}, "mass of body 'arm' is 0 kg, and so is that of all it carries"),
        ({"mass": 0.0, "joint": "fixed"}, "mass of body 'arm' is 0 kg, but its inertia is not"),
        ({"mass": float("nan")}, "mass of body 'arm' is not finite: nan"),
        ({"mass": "heavy"}, "mass of body 'arm' is 'heavy'; it must be a number"),
        ({"com": (0.1, 0.2)}, r"com of body 'arm' has the shape \(2,\)"),
        ({"com": (0.1, 0.2, float("inf"))}, "com of body 'arm' is not finite"),
        ({"inertia": (0.02, 0.03, -0.01)}, "'arm' has an inertia that is not positive definite"),
        ({"inertia": (0.02, 0.03, 0.06)}, "'arm' has an inertia that no body can have"),
        ({"inertia": [[1, 2], [3]]}, r"inertia of body 'arm' is .*; it must be a number"),
        (
            {"inertia": np.eye(2)},
            r"inertia of body 'arm' has the shape \(2, 2\); it must be \(3,\) or \(3, 3\)",
        ),
        ({"inertia": [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]]}, "not symmetric"),
        ({"joint": "ball"}, "'arm' has the unknown joint type 'ball'"),
        ({"parent": "leg"}, "'arm' has the parent 'leg', which is no body"),
        ({"alpha": (1.0, 2.0)}, r"alpha of body 'arm' has the shape \(2,\); it must be \(\)"),
    ],
)
def test_impossible_rows_name_the_body(change, message):
    with pytest.raises(ValueError, match=message):
        jg.rigid.from_dh([ROW._replace(**change)])


def test_bodies_without_mass():
    """The cross of a universal joint, and a frame at the tip, change nothing but the order."""
    none = {"mass": 0.0, "inertia": (0.0, 0.0, 0.0)}
    cross = jg.rigid.Placement("cross", None, (0.0, 0, 0), com=(0.0, 0, 0), **none)
    turned = jg.rigid.Placement(
        "rod", "cross", (0.0, 0, 0), 1.0, (0.2, 0, 0), (0.001, 0.014, 0.014), (0.0, 1, 0)
    )
    frame = jg.rigid.Placement("tip", "rod", (0.4, 0, 0), com=(0.0, 0, 0), joint="fixed", **none)
    bare = jg.rigid.from_placements([cross, turned])
    q, qd, tau = jnp.array([[0.3, 0.4], [1.0, -2.0], [0.1, 0.2]])
    # Lagrange's equations of a rod on a universal joint, theta downwards.
    a, across = 0.001, 0.014 + 1.0 * 0.2**2
    s, c = np.sin(0.4), np.cos(0.4)
    about = a * s**2 + across * c**2
    first = (0.1 - 2 * (a - across) * s * c * 1.0 * -2.0) / about
    second = (0.2 + (a - across) * s * c * 1.0**2 + 9.81 * 0.2 * c) / across
    for tree in (bare, jg.rigid.from_placements([cross, turned, frame])):
        for dynamics in (jg.rigid.forward_dynamics, jg.rigid.aba):
            np.testing.assert_allclose(dynamics(tree, q, qd, tau), [first, second], rtol=1e-12)
    with pytest.raises(ValueError, match="mass of body 'rod' is 0 kg, and so is that of all it"):
        jg.rigid.from_placements([cross._replace(joint="fixed"), turned._replace(**none), frame])


def test_impossible_trees():
    with pytest.raises(ValueError, match="parent must come before"):
        jg.rigid.from_dh([TIP, ROW])
    with pytest.raises(ValueError, match="parent must come before"):
        jg.rigid.from_dh([ROW._replace(parent="arm")])
    with pytest.raises(ValueError, match="Two bodies are called 'arm'"):
        jg.rigid.from_dh([ROW, ROW])
    with pytest.raises(ValueError, match="at least one body"):
        jg.rigid.from_dh([])
    with pytest.raises(ValueError, match="gravity of the tree has the shape"):
        jg.rigid.from_dh([ROW], gravity=(9.81,))
    with pytest.raises(ValueError, match="No body is called 'leg'"):
        jg.rigid.from_dh([ROW]).body("leg")
    placement = jg.rigid.Placement("arm", None, (0.0, 0, 0), 1.0, (0.0, 0, 0), (1.0, 1, 1))
    with pytest.raises(ValueError, match="'arm' has a joint axis of length zero"):
        jg.rigid.from_placements([placement._replace(axis=(0.0, 0, 0))])
    with pytest.raises(ValueError, match="rotation of body 'arm' is no rotation matrix"):
        jg.rigid.from_placements([placement._replace(rotation=2 * np.eye(3))])


def test_bodies_without_mass_in_a_row_carry_one_with_a_mass():
    none = {"mass": 0.0, "com": (0.0,) * 3, "inertia": (0.0,) * 3}
    rows = [
        ROW._replace(name="first", **none),
        ROW._replace(name="second", parent="first", **none),
        ROW._replace(name="third", parent="second"),
    ]
    np.testing.assert_array_equal(jg.rigid.from_dh(rows).mass, [0.0, 0.0, ROW.mass])
    with pytest.raises(ValueError, match="mass of body 'fourth' is 0 kg"):
        jg.rigid.from_dh([*rows, ROW._replace(name="fourth", parent="third", **none)])


def test_tree_with_numbers_of_another_body():
    tree = jg.rigid.from_dh([ROW, TIP])
    sentence = r"rotation of the tree has the shape \(2, 3, 3\); it must be \(1, 3, 3\)"
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(tree, parents=(-1,), joint_types=("fixed",), names=("arm",))


def test_numbers_may_be_traced():
    def potential(mass, a):
        tree = jg.rigid.from_dh([ROW._replace(mass=mass, a=a), TIP])
        return jg.rigid.potential_energy(tree, jnp.array([0.3, 0.4]))

    gradient = jax.jit(jax.grad(potential, argnums=(0, 1)))(1.0, 0.1)
    assert all(bool(jnp.isfinite(g)) for g in gradient)


def test_craig_transform():
    """Schanzer 2007, eq. 2.2, written out."""
    a, alpha, d, theta = 0.3, -0.7, 0.2, 0.4
    row = ROW._replace(a=a, alpha=alpha, d=d, theta=0.1)
    pose = jg.rigid.forward_kinematics(jg.rigid.from_dh([row]), jnp.array([theta - 0.1]))
    ca, sa, ct, st = np.cos(alpha), np.sin(alpha), np.cos(theta), np.sin(theta)
    rotation = [[ct, -st, 0], [ca * st, ca * ct, -sa], [sa * st, sa * ct, ca]]
    np.testing.assert_allclose(pose.rotation[0], rotation, atol=1e-15)
    np.testing.assert_allclose(pose.translation[0], (a, -d * sa, d * ca), atol=1e-15)


def test_prismatic_joint_moves_along_its_axis():
    row = ROW._replace(joint="prismatic", d=0.2)
    tree = jg.rigid.from_dh([row])
    moved = jg.rigid.forward_kinematics(tree, jnp.array([0.5])).translation[0]
    np.testing.assert_allclose(moved, (0.1, -0.7 * np.sin(0.2), 0.7 * np.cos(0.2)), atol=1e-15)
    np.testing.assert_allclose(jg.rigid.crba(tree, jnp.array([0.5])), [[1.0]], rtol=1e-15)


def test_placements_with_turned_axes_describe_the_same_mechanism():
    """Turning every body frame, axes included, changes no torque."""
    bodies = random_placements(np.random.default_rng(4), 5)
    turned = []
    turn, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))
    turn *= np.linalg.det(turn)
    for b in bodies:
        parent = turn if b.parent else np.eye(3)
        turned.append(
            b._replace(
                translation=parent.T @ b.translation,
                rotation=parent.T @ b.rotation @ turn,
                axis=turn.T @ b.axis,
                com=turn.T @ b.com,
                inertia=turn.T @ b.inertia @ turn,
            )
        )
    one, other = (jg.rigid.from_placements(x) for x in (bodies, turned))
    q, qd, qdd, _ = random_state(4, one.n)
    np.testing.assert_allclose(
        jg.rigid.rnea(one, q, qd, qdd), jg.rigid.rnea(other, q, qd, qdd), rtol=1e-11
    )
