import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.mechanism.loops import kinematics

me = jg.mechanism.loops


def branched_tree():
    rng = np.random.default_rng(3)
    kinds = ("revolute", "prismatic", "fixed", "revolute", "prismatic", "revolute", "revolute")
    parents = (None, "b0", "b1", "b1", "b3", None, "b5")
    return jg.rigid.from_placements(
        [
            jg.rigid.Placement(
                name=f"b{k}",
                parent=parent,
                translation=rng.uniform(-0.3, 0.3, 3),
                axis=rng.normal(size=3),
                mass=rng.uniform(0.2, 3.0),
                com=rng.uniform(-0.2, 0.2, 3),
                inertia=np.array([0.02, 0.03, 0.04]) * rng.uniform(0.5, 1.5),
                joint=kind,
            )
            for k, (kind, parent) in enumerate(zip(kinds, parents, strict=True))
        ]
    )


def tangled():
    tree = branched_tree()
    rng = np.random.default_rng(5)

    def seat():
        return jg.joints.Frame(jnp.asarray(rng.normal(size=3)), jnp.eye(3))

    joints = jg.joints
    loops = [
        me.Loop("hinge", joints.Hinge(), "b2", "b6", seat(), seat()),
        me.Loop("rod", joints.Distance(0.7), None, "b4", seat(), seat()),
        me.Loop("pin", joints.Hinge(), "b4", None, seat(), seat()),
    ]
    return me.Mechanism(tree, loops, [me.Coupling("mimic", joints.Gear(0.3, 0.1), "b0", "b5")])


@pytest.mark.long
def test_matrices_agree_with_recursions_and_with_automatic_derivatives():
    mechanism = tangled()
    q, qd = jnp.asarray(np.random.default_rng(1).normal(size=(2, mechanism.n)))

    @jax.jit
    def matrices(mechanism, q, qd):
        now = kinematics.state(mechanism.tree, q, qd)
        return (
            kinematics.mass_matrix(mechanism.tree, now),
            kinematics.bias(mechanism.tree, now),
            kinematics.constraint_matrix(mechanism, now),
            kinematics.constraint_bend(lambda _: mechanism, mechanism, now),
        )

    def gap(q):
        return me.constraints(mechanism, q)

    def rate(q):
        return jax.jvp(gap, (q,), (qd,))[1]

    exact = (
        jg.rigid.crba(mechanism.tree, q),
        jg.rigid.bias_forces(mechanism.tree, q, qd),
        jax.jit(jax.jacfwd(gap))(q),
        jax.jit(lambda q: jax.jvp(rate, (q,), (qd,))[1])(q),
    )
    for mine, other in zip(matrices(mechanism, q, qd), exact, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-13)


@pytest.mark.long
def test_programs_do_not_grow_with_the_number_of_loops():
    def row(count):
        """Bodies side by side, each tied to the next and geared to it."""
        at_rest = ((0.1, 0.0, 0.0), (0.1, 0.1, 0.1))
        names = [f"b{k}" for k in range(count + 1)]
        tree = jg.rigid.from_placements(
            [jg.rigid.Placement(n, None, (k, 0.0, 0.0), 1.0, *at_rest) for k, n in enumerate(names)]
        )
        pairs = [*itertools.pairwise(names)]
        point, gear = np.zeros((1, 3)), jg.joints.Gear(1.0)
        loops = [me.Loop(f"{a}{b}", jg.joints.Ball(), a, b, point, point) for a, b in pairs]
        return me.Mechanism(tree, loops, [me.Coupling(f"{a}={b}", gear, a, b) for a, b in pairs])

    def size(mechanism):
        q = jnp.zeros(mechanism.n)
        program = jax.make_jaxpr(me.reaction_forces.__wrapped__)(mechanism, q, q, q)
        return str(program).count(" = ")

    assert size(row(16)) <= size(row(8))


def test_constraints_of_a_four_bar_are_the_way_between_the_pins():
    link = jg.models.four_bar()
    crank, coupler, rocker = q = np.array([0.3, 0.4, 1.1])
    tip = 0.1 * np.exp(1j * crank) + 0.35 * np.exp(1j * (crank + coupler))
    way = (tip - 0.4 - 0.3 * np.exp(1j * rocker)) * np.exp(-1j * rocker)
    missed = me.constraints(link.mechanism, jnp.asarray(q))
    np.testing.assert_allclose(missed, [way.real, way.imag, 0, 0, 0], atol=1e-15)


def test_closed_at_makes_a_loop_that_is_closed_there():
    mechanism = tangled()
    q = jnp.asarray(np.random.default_rng(2).normal(size=mechanism.n))
    points = np.array([[0.1, 0.2, 0.3], [0.5, -0.2, 0.4], [0.0, 0.0, 1.0]])
    for first, second in (("b2", "b6"), (None, "b4"), ("b6", None)):
        loop = me.closed_at(mechanism.tree, q, "weld", jg.joints.Fixed(), first, second, points)
        gap = me.constraints(me.Mechanism(mechanism.tree, [loop]), q)
        np.testing.assert_allclose(gap, np.zeros(6), atol=1e-14)


@pytest.mark.parametrize(
    ("closure", "equations", "implied"), [(jg.joints.Hinge(), 5, 3), (jg.joints.Ball(), 3, 1)]
)
def test_mobility_goes_by_rank_and_not_by_counting(closure, equations, implied):
    link = jg.models.four_bar(closure=closure)
    found = me.mobility(link.mechanism, link.start)
    assert (found.equations, found.rank, found.degrees_of_freedom) == (equations, 2, 1)
    assert found.redundant == {"pin": implied}
    assert f"counting alone would give {3 - equations}" in str(found)


def test_mobility_of_the_squeezer():
    squeezer = jg.models.andrews_squeezer()
    found = me.mobility(squeezer.mechanism, squeezer.start)
    assert (found.coordinates, found.rank, found.degrees_of_freedom) == (7, 6, 1)


def test_a_flat_parallelogram_has_one_more_freedom():
    link = jg.models.four_bar(lengths=(0.4, 0.1, 0.4, 0.1))
    assert me.mobility(link.mechanism, link.start).degrees_of_freedom == 1
    assert me.mobility(link.mechanism, jnp.zeros(3)).degrees_of_freedom == 2


def test_sentences():
    tree = branched_tree()
    hinge, gear = jg.joints.Hinge(), jg.joints.Gear(1.0)
    axis = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])

    def loop(first="b0", second="b4", joint=hinge, points=axis):
        return me.Loop("pin", joint, first, second, points, axis)

    cases = [
        (lambda: loop(second="b0"), "Loop 'pin' joins b0 to itself"),
        (lambda: loop(joint=jg.joints.Rope(1.0)), "closed by a rope, which may hang slack"),
        (lambda: loop(points=axis[:1]), r"on 'b0' has 1 point\(s\); a Hinge needs 2"),
        (lambda: loop(points=axis * np.nan), "on 'b0' is not finite"),
        (lambda: loop(points=axis[[0, 0]]), "on 'b0' has points that coincide"),
        (
            lambda: loop(joint=jg.joints.Guide(), points=np.array([[1.0], [2.0], [4.0]]) * axis[1]),
            "on 'b0' has three points on a line",
        ),
        (
            lambda: loop(points=jg.joints.Frame(axis[0], 2 * np.eye(3))),
            "The rotation of loop 'pin' on 'b0' is no rotation matrix",
        ),
        (lambda: me.Mechanism(tree, [loop(), loop()]), "Two loops or couplings are called 'pin'"),
        (lambda: me.Mechanism(tree, [loop(second="c4")]), "Loop 'pin': there is no body 'c4'"),
        (lambda: me.Coupling("m", gear, "b0", "b0"), "couples the joint of 'b0' to itself"),
        (
            lambda: me.Mechanism(tree, [], [me.Coupling("m", gear, "b0", "b2")]),
            "no body 'b2' with a joint",
        ),
        (lambda: me.Mechanism(tree).coordinate("b9"), "no body 'b9' with a joint"),
    ]
    for make, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            make()
