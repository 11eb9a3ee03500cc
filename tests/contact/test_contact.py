"""Bodies that touch: distances, rest without creep, sliding, bouncing, balances, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxgrip import contact, rigid

ZERO = np.zeros(3)
SIZE = np.array([0.1, 0.08, 0.06])
STILL = jnp.zeros(6)
CUBE = 2 * np.ones(3)


def body(name="block", gravity=(0.0, 0.0, -9.81), count=1):
    """Free bodies of one kilogram."""
    inertia = 1e-3 * np.eye(3)
    names = [name] if count == 1 else [f"{name} {k + 1}" for k in range(count)]
    bodies = [rigid.Placement(x, None, ZERO, 1.0, ZERO, inertia, joint="free") for x in names]
    return rigid.from_placements(bodies, gravity=gravity)


def sloping(tilt):
    return 9.81 * np.array([np.sin(tilt), 0.0, -np.cos(tilt)])


def on_ground(tree, shape, material, name="block"):
    pair = (contact.Attached(shape, name), contact.Attached(contact.half_space()), material)
    return contact.contacts(tree, [pair])


@pytest.mark.parametrize(
    ("make", "point", "distance", "slope"),
    [
        (lambda: contact.sphere(0.5), (0.0, 2.0, 0.0), 1.5, (0, 1, 0)),
        (lambda: contact.sphere(0.5), (0.0, 0.0, 0.2), -0.3, (0, 0, 1)),
        (lambda: contact.capsule(0.2, 1.0), (0.6, 0.0, 0.1), 0.4, (1, 0, 0)),
        (lambda: contact.capsule(0.2, 1.0), (0.0, 0.3, 0.9), 0.3, (0, 0.6, 0.8)),
        (lambda: contact.box(CUBE), (0.0, 0.0, 3.0), 2.0, (0, 0, 1)),
        (lambda: contact.box(CUBE), (4.0, 5.0, 0.0), 5.0, (0.6, 0.8, 0)),
        (lambda: contact.box(CUBE), (0.9, 0.3, 0.0), -0.1, (1, 0, 0)),
        (lambda: contact.box(CUBE, 0.3), (0.0, 0.0, 3.0), 2.0, (0, 0, 1)),
    ],
)
def test_distances_are_exact(make, point, distance, slope):
    shape = make()
    found = jax.value_and_grad(lambda x: contact.signed_distance(shape, x))(jnp.asarray(point))
    np.testing.assert_allclose(found[0], distance, atol=1e-12)
    np.testing.assert_allclose(found[1], slope, atol=1e-12)


def test_slopes_are_finite_everywhere():
    for shape in (contact.sphere(0.5), contact.capsule(0.2, 1.0), contact.box(SIZE)):
        for point in (ZERO, (0, 0, 0.5), 0.5 * SIZE, (0.05, 0.0, 0.0)):
            x = jnp.asarray(point, float)
            assert np.all(np.isfinite(jax.grad(contact.signed_distance, 1)(shape, x)))
            assert np.all(np.isfinite(jax.hessian(contact.signed_distance, 1)(shape, x)))


@pytest.mark.long
def test_a_block_on_a_slope_does_not_creep():
    """For 1,000 s, at two fifths of the sliding limit."""
    tree = body(gravity=sloping(0.2))
    touching = on_ground(tree, contact.box(SIZE), contact.Material(1e4))
    q = rigid.neutral(tree).at[2].set(0.0301)
    times = jnp.concatenate([jnp.linspace(0.0, 2.0, 401), jnp.linspace(2.0, 1000.0, 999)[1:]])
    found = contact.simulate(tree, touching, q, STILL, times)
    moved = np.abs(np.asarray(found.q[-1] - found.q[400]))
    assert np.max(moved) < 1e-9
    forces = contact.forces(tree, touching, found.q[-1], found.qd[-1], found.bristles[-1])
    np.testing.assert_allclose(forces.pressed.sum(), 9.81 * np.cos(0.2), rtol=1e-6)
    np.testing.assert_allclose(forces.force[:, 0].sum(), -9.81 * np.sin(0.2), rtol=1e-6)
    # A slope beyond the limit of friction, tan 0.6 > 0.5.
    steep = body(gravity=sloping(0.6))
    down = contact.simulate(steep, touching, found.q[-1], STILL, jnp.linspace(0.0, 0.3, 301))
    assert down.q[-1, 0] > 0.05


@pytest.mark.long
def test_a_block_slides_as_coulomb_says():
    """But for the millisecond in which the bristles bend."""
    tree = body()
    touching = on_ground(tree, contact.box(SIZE), contact.Material(1e4, friction=0.3))
    q = rigid.neutral(tree).at[2].set(0.03 - 9.81 / 4e4)
    start = STILL.at[0].set(0.5)
    found = contact.simulate(tree, touching, q, start, jnp.linspace(0.0, 0.1, 201))
    np.testing.assert_allclose(found.q[-1, 0], 0.05 - 0.5 * 0.3 * 9.81 * 0.01, rtol=0.02)


@pytest.mark.long
def test_motions_have_derivatives_in_both_modes():
    """A ball that slides on the ground, on two slides."""
    along = {"joint": "prismatic", "axis": (1, 0, 0)}
    up = {"joint": "prismatic", "axis": (0, 0, 1)}
    slides = [
        rigid.Placement("slide", None, ZERO, 0.0, ZERO, np.zeros((3, 3)), **along),
        rigid.Placement("ball", "slide", ZERO, 1.0, ZERO, 1e-3 * np.eye(3), **up),
    ]
    tree = rigid.from_placements(slides)
    q = jnp.array([0.0, 0.05 - 9.81 / 1e4])
    times = jnp.linspace(0.0, 0.02, 21)

    def way(friction):
        material = contact.Material(1e4, friction=friction)
        touching = on_ground(tree, contact.sphere(0.05), material, "ball")
        found = contact.simulate(tree, touching, q, jnp.array([0.5, 0.0]), times, throw=False)
        return found.q[-1, 0]

    forward, reverse = jax.jacfwd(way)(0.3), jax.grad(way)(0.3)
    np.testing.assert_allclose(forward, reverse, rtol=1e-6)
    step = 1e-4
    differences = (way(0.3 + step) - way(0.3 - step)) / (2 * step)
    np.testing.assert_allclose(forward, differences, rtol=1e-3)
    # With full friction from the start it would be -g t² / 2.
    np.testing.assert_allclose(forward, -0.5 * 9.81 * 0.02**2, rtol=0.2)


def energies(tree, touching, found):
    def at(q, qd, bristles):
        springs = contact.forces(tree, touching, q, qd, bristles).energy
        return rigid.kinetic_energy(tree, q, qd) + rigid.potential_energy(tree, q) + springs

    return jax.jit(jax.vmap(at))(found.q, found.qd, found.bristles)


@pytest.mark.long
def test_a_ball_bounces_with_its_energy():
    """Without damping at second order; with it the balance has what is lost."""
    tree = body("ball")
    q = rigid.neutral(tree).at[2].set(0.1)
    free = on_ground(tree, contact.sphere(0.05), contact.Material(2e3, 0.0, 0.0), "ball")
    errors = []
    for steps in (400, 800):
        found = contact.simulate(tree, free, q, STILL, jnp.linspace(0.0, 0.4, steps + 1))
        energy = energies(tree, free, found)
        errors.append(float(jnp.max(jnp.abs(energy + found.lost - energy[0]))))
    assert errors[1] < 0.4 * errors[0]
    assert errors[1] < 0.01 * 9.81 * 0.05
    damped = on_ground(tree, contact.sphere(0.05), contact.Material(2e3, 30.0, 0.0), "ball")
    found = contact.simulate(tree, damped, q, STILL, jnp.linspace(0.0, 0.4, 801))
    assert found.lost[-1] > 0.3 * 9.81 * 0.05
    energy = energies(tree, damped, found)
    np.testing.assert_allclose(energy + found.lost, energy[0], rtol=0.01)


@pytest.mark.long
def test_momentum_is_kept_in_a_collision():
    """Two balls off centre, with friction, without gravity."""
    tree = body("ball", gravity=(0.0, 0.0, 0.0), count=2)
    ball = contact.sphere(0.05)
    touching = contact.contacts(
        tree,
        [
            (
                contact.Attached(ball, "ball 1"),
                contact.Attached(ball, "ball 2"),
                contact.Material(1e4, 10.0, 0.5),
            )
        ],
    )
    assert len(touching.first) == 1
    q = rigid.neutral(tree).at[7].set(0.15).at[8].set(0.03)
    qd = jnp.zeros(12).at[0].set(1.0)
    found = contact.simulate(tree, touching, q, qd, jnp.linspace(0.0, 0.1, 401))
    momenta = [rigid.centroidal_momentum(tree, found.q[k], found.qd[k]) for k in (0, -1)]
    assert abs(found.qd[-1, 6]) > 0.1
    np.testing.assert_allclose(momenta[1], momenta[0], atol=1e-4)

    def torque(shift):
        here = q.at[7].set(0.09 + shift)
        return contact.forces(tree, touching, here, qd, jnp.zeros((1, 3))).torque

    check_grads(torque, (1e-3,), order=1, rtol=1e-4)


def test_pairs_that_are_none_get_a_sentence():
    tree = body()
    material = contact.Material(1e4)
    ground, box = contact.half_space(), contact.box(SIZE)
    with pytest.raises(ValueError, match="Both shapes of a pair are on block"):
        contact.contacts(
            tree, [(contact.Attached(box, "block"), contact.Attached(box, "block"), material)]
        )
    with pytest.raises(ValueError, match="are half spaces"):
        contact.contacts(
            tree, [(contact.Attached(ground, "block"), contact.Attached(ground), material)]
        )
    with pytest.raises(ValueError, match="blok"):
        on_ground(tree, box, material, "blok")
    with pytest.raises(ValueError, match="no pairs"):
        contact.contacts(tree, [])
    with pytest.raises(ValueError, match="stiffness of a material"):
        contact.Material(-1.0)
    touching = on_ground(tree, box, material)
    with pytest.raises(ValueError, match="substeps is 0"):
        contact.simulate(tree, touching, rigid.neutral(tree), STILL, jnp.arange(2.0), substeps=0)
