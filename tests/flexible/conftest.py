import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

SIDE = 7.5e-5**0.5


def elastic_body(
    length, side=(SIDE, SIDE), cells=(8, 2, 2), E=7.22e10, nu=0.34, rho=2700.0, damping=(0.0, 0.0)
):
    return jg.fem.Body(
        jg.fem.box_mesh(length, *side, *cells),
        jg.fem.Isotropic(E, nu, rho),
        clamp="x0",
        damping=jg.fem.Rayleigh(*damping),
    )


def elastic_link(body, modes, attachment=(), faces=("x1",), **options):
    shapes = jg.flexible.shapes(body, modes, attachment)
    return jg.flexible.elastic_link(body, shapes, faces, **options)


@pytest.fixture(scope="session")
def finger():
    return jg.models.gripper_finger("A")


@pytest.fixture(scope="session")
def gripper(finger):
    """Finger A with the published damping, links 2 and 3 elastic, 3 modes each."""
    links = {
        f"link{i + 1}": elastic_link(
            elastic_body(float(finger.link_lengths[i]), damping=(1.0, 8e-5)), 3
        )
        for i in (1, 2)
    }
    return jg.flexible.FlexibleTree(finger.tree, links)


@pytest.fixture(scope="session")
def branched():
    """Every kind of joint, on rigid and elastic parents, on several faces, stiffened or not."""
    rng = np.random.default_rng(3)

    def placement(name, parent, joint, at):
        return jg.rigid.Placement(
            name=name,
            parent=parent,
            translation=at,
            rotation=np.linalg.qr(rng.normal(size=(3, 3)))[0] * [[1.0, 1.0, 1.0]],
            axis=rng.normal(size=3),
            mass=1.0,
            com=rng.uniform(-0.1, 0.1, 3),
            inertia=rng.uniform(0.02, 0.03, 3),
            joint=joint,
        )

    def proper(body):
        turn = np.asarray(body.rotation)
        return body._replace(rotation=turn * np.sign(np.linalg.det(turn)))

    bodies = [
        placement("root", None, "revolute", (0.0, 0.0, 0.1)),
        placement("arm", "root", "revolute", (0.1, 0.0, 0.0)),
        placement("slider", "arm", "prismatic", (0.3, 0.02, 0.01)),
        placement("side", "arm", "revolute", (0.15, 0.02, 0.0)),
        placement("tip", "slider", "fixed", (0.2, 0.0, 0.0)),
    ]
    tree = jg.rigid.from_placements([proper(body) for body in bodies])
    arm = elastic_link(
        elastic_body(0.3, (0.04, 0.02), rho=500.0, damping=(2.0, 1e-4)),
        3,
        faces=("x1", "y1"),
    )
    slider = elastic_link(elastic_body(0.2, (0.03, 0.02), rho=500.0), 2, stiffening=False)
    return jg.flexible.FlexibleTree(
        tree, {"slider": slider, "arm": arm}, {"slider": "x1", "side": "y1"}
    )


def random_state(model, seed=0, bend=1e-3):
    rng = np.random.default_rng(seed)
    q, qd, qdd, tau = rng.normal(size=(4, model.n))
    eta, etad, etadd = rng.normal(size=(3, model.k)) * np.array([[bend], [1.0], [1.0]])
    return tuple(map(jnp.asarray, (q, eta, qd, etad, qdd, etadd, tau)))
