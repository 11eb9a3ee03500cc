from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

REFERENCE = Path(__file__).parents[1] / "reference" / "pinocchio.npz"


def random_rotation(rng):
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return q if np.linalg.det(q) > 0 else -q


def random_placements(rng, size):
    bodies = []
    for i in range(size):
        parent = int(rng.integers(max(-1, i - 3), i)) if i else -1
        masses = rng.uniform(0.1, 0.5, 3)
        turn = random_rotation(rng)
        kind = rng.choice(["revolute", "prismatic", "fixed"], p=[0.6, 0.25, 0.15])
        bodies.append(
            jg.rigid.Placement(
                name=f"body{i}",
                parent=None if parent < 0 else f"body{parent}",
                translation=rng.uniform(-0.3, 0.3, 3),
                rotation=random_rotation(rng),
                axis=rng.normal(size=3),
                mass=rng.uniform(0.2, 3.0),
                com=rng.uniform(-0.2, 0.2, 3),
                inertia=turn @ np.diag(0.02 * (masses.sum() - masses)) @ turn.T,
                joint="revolute" if i == 0 else str(kind),
            )
        )
    return bodies


def random_tree(seed, size):
    return jg.rigid.from_placements(random_placements(np.random.default_rng(seed), size))


def random_state(seed, n):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(4, n)))


def pinocchio_tree(stored, k):
    return jg.rigid.Tree(
        parents=tuple(int(p) for p in stored[f"parents_{k}"]),
        joint_types=tuple(str(s) for s in stored[f"kinds_{k}"]),
        names=tuple(f"body{i}" for i in range(len(stored[f"parents_{k}"]))),
        **{
            key: jnp.asarray(stored[f"{key}_{k}"])
            for key in ("rotation", "translation", "mass", "com", "inertia", "gravity")
        },
    )


@pytest.fixture(scope="session")
def stored():
    with np.load(REFERENCE) as file:
        return dict(file)
