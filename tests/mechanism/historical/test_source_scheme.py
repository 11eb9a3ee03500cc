import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.mechanism import Connection, Part, Poses, System
from jaxgrip.mechanism.historical import source_scheme
from jaxgrip.mechanism.historical.source_scheme import Options, solve
from jaxgrip.mechanism.poses import start as start_of
from jaxgrip.spatial import quaternions

STARTS = 50


def turned(axis, degrees):
    return np.asarray(quaternions.exponential(jnp.asarray(axis, float) * np.deg2rad(degrees)))


def along_z(x=0.0, y=0.0, z=0.0):
    """A point, the z axis through it, and x across."""
    return np.array([x, y, z]) + np.array([[0.0, 0, 0], [0, 0, 1], [1, 0, 0]])


def four_bar(angle=60.0, coupler=32.046511404, rocker=100.536323137):
    """Four-bar of 1, 3, 2.5 and 3.5 m with the closure it has there at 60°."""
    theta = np.deg2rad(angle)
    parts = [
        Part("crank", {"in": along_z(), "out": along_z(1.0)}, quaternion=turned([0, 0, 1], angle)),
        Part(
            "coupler",
            {"in": along_z(), "out": [[3.0, 0, 0]]},
            [np.cos(theta), np.sin(theta), 0],
            turned([0, 0, 1], coupler),
        ),
        Part(
            "rocker",
            {"in": along_z(), "out": [[2.5, 0, 0]]},
            [3.5, 0, 0],
            turned([0, 0, 1], rocker),
        ),
    ]
    connections = [
        Connection("A", jg.joints.Hinge(), "ground.A", "crank.in"),
        Connection("drive", jg.joints.Angle(theta), "ground.A", "crank.in"),
        Connection("B", jg.joints.Hinge(), "crank.out", "coupler.in"),
        Connection("C", jg.joints.Ball(), "coupler.out", "rocker.out"),
        Connection("D", jg.joints.Sleeve(), "ground.D", "rocker.in"),
    ]
    return System(parts, connections, {"A": along_z(), "D": along_z(3.5)})


def turned_whole(system, axis, degrees):
    """The system with its ground, rotated about the origin."""
    turn = jnp.asarray(turned(np.array(axis) / np.linalg.norm(axis), degrees))
    matrix = np.asarray(quaternions.to_matrix(turn))
    parts = [
        Part(p.name, p.attachments, matrix @ p.position, quaternions.product(turn, p.quaternion))
        for p in system.parts
    ]
    ground = {key: np.asarray(points) @ matrix.T for key, points in system.ground.items()}
    return System(parts, system.connections, ground)


def pin(x=0.0, z=0.0):
    """A point in the x-z plane, the axis through it that rotates +x to +z, and x across."""
    return np.array([x, 0, z]) + np.array([[0.0, 0, 0], [0, -1, 0], [1, 0, 0]])


def crane(rope, closure=("Ball", "Sleeve"), boom=60.0):
    """The reference crane at the A-frame's 150° and some angle of the boom."""
    ring, up = along_z(), np.array([0, 0, 1.5])
    feet = {"boom": [1.5, 1.0], "mast": [0.5, 1.0], "aframe": [-3.0, 1.0]}
    tip = np.array([-3 + 7 * np.cos(np.deg2rad(150)), 0, 1 + 7 * np.sin(np.deg2rad(150))])

    def bar(name, length, angle, foot):
        ends = {"foot": pin(), "tip": pin(length)}
        return Part(name, ends, foot + up, turned([0, -1, 0], angle))

    parts = [
        Part("undercarriage", {"ring": ring + up}),
        Part("superstructure", {"ring": ring, **{k: pin(*v) for k, v in feet.items()}}, up),
        bar("aframe", 7.0, 150.0, np.array([-3, 0, 1.0])),
        bar("rods", 23.129085048829175, 103.5979616788614, tip),
        bar("mast", 30.0, 120.0, np.array([0.5, 0, 1])),
        bar("boom", 48.0, boom, np.array([1.5, 0, 1])),
    ]
    low, high = (getattr(jg.joints, name)() for name in closure)
    hinge = jg.joints.Hinge()
    connections = [
        Connection("clamp", jg.joints.Clamp(), "undercarriage"),
        Connection("ring", hinge, "undercarriage.ring", "superstructure.ring"),
        Connection("slew", jg.joints.Angle(0.0), "undercarriage.ring", "superstructure.ring"),
        Connection("aframe", hinge, "superstructure.aframe", "aframe.foot"),
        Connection(
            "angle", jg.joints.Angle(np.deg2rad(150)), "superstructure.aframe", "aframe.foot"
        ),
        Connection("mast", hinge, "superstructure.mast", "mast.foot"),
        Connection("low", low, "aframe.tip", "rods.foot"),
        Connection("high", high, "rods.tip", "mast.tip"),
        Connection("boom", hinge, "superstructure.boom", "boom.foot"),
        Connection("rope", jg.joints.Distance(rope), "mast.tip", "boom.tip"),
    ]
    return System(parts, connections)


def superlift(closure):
    """Closed chain of Webhofer 2005, fig. 7.5: the crane without undercarriage and boom."""
    whole = crane(1.0, closure)
    clamp = Connection("clamp", jg.joints.Clamp(), "superstructure")
    names = ("aframe", "angle", "mast", "low", "high")
    kept = [c for c in whole.connections if c.name in names]
    return System(whole.parts[1:5], [clamp, *kept])


def starts(system, degrees, count=STARTS, scatter=0.0):
    """Poses of the parts, each rotated by an angle about its own axis."""
    rng = np.random.default_rng(2005)
    position, quaternion = start_of(system)
    for _ in range(count):
        axes = rng.normal(size=position.shape)
        turns = [turned(a / np.linalg.norm(a), degrees) for a in axes]
        yield Poses(
            position + scatter * rng.normal(size=position.shape),
            PRODUCTS(jnp.asarray(turns), quaternion),
        )


TO_MATRICES = jax.jit(jax.vmap(quaternions.to_matrix))
PRODUCTS = jax.jit(jax.vmap(quaternions.product))


def matrices(quaternion):
    return np.asarray(TO_MATRICES(jnp.asarray(quaternion)))


def right(system, solution):
    """Whether every part returned to its pose."""
    position, quaternion = start_of(system)
    return (
        solution.converged
        and np.allclose(solution.poses.position, position, atol=1e-5)
        and np.allclose(matrices(solution.poses.quaternion), matrices(quaternion), atol=1e-5)
    )


def likely(found, published, count):
    """Two counts that differ by less than three standard deviations of their difference.

    The published counts are of random starts that are not known.
    """
    p = (found + published) / (2 * count)
    return abs(found - published) <= max(3 * np.sqrt(2 * count * p * (1 - p)), 1)


FURTHER = {"marks": pytest.mark.soak}


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "pivot", "counts", "steps"),
    [
        ("all", "relative", (0, 0, 0), None),
        pytest.param(
            "all", "relative_guarded", (50, 46, 38), (6.2, 7.9, 12.0), marks=pytest.mark.soak
        ),
        pytest.param("all", "scaled", (50, 50, 46), (4.8, 6.0, 7.6), **FURTHER),
        pytest.param("all", "column", (50, 50, 39), (4.0, 5.2, 7.3), **FURTHER),
        ("all", "least_squares", (50, 50, 45), (4.0, 5.1, 7.2)),
        ("selected", "relative", (50, 50, 42), (4.0, 5.2, 7.7)),
        pytest.param("selected", "column", (50, 50, 42), (4.0, 5.2, 7.7), **FURTHER),
    ],
)
def test_the_four_bar_converges_as_often_as_in_the_table_of_pivots(rows, pivot, counts, steps):
    system = four_bar()
    assert len(source_scheme.equations(system, start_of(system)).values) == 25
    assert system_rows(system, rows) == (25 if rows == "all" else 21)
    most = 50 if any(counts) else 20
    for degrees, published in zip((10, 30, 45), counts, strict=True):
        solutions = [
            solve(system, s, Options("cross", rows, pivot, most)) for s in starts(system, degrees)
        ]
        found = [s for s in solutions if right(system, s)]
        if published == 0:
            assert not found
        else:
            assert likely(len(found), published, STARTS), (degrees, len(found))
        if steps is not None and degrees == 10:
            assert abs(np.mean([s.steps for s in found]) - steps[0]) < 0.6


def system_rows(system, rows):
    selected = source_scheme.equations(system, start_of(system)).selected
    return int(selected.sum()) if rows == "selected" else len(selected)


def test_relative_column_maximum_takes_rounding_noise_for_a_pivot():
    # At the solution 21 of 25 rows are independent; with axes that are no coordinate axes the
    # others are eliminated down to rounding noise.
    system = turned_whole(four_bar(), [1, 2, 3], 40)
    matrix = np.asarray(source_scheme.jacobian(system, start_of(system)))
    assert matrix.shape == (25, 21)
    assert np.linalg.matrix_rank(matrix, 1e-8) == 21
    x = np.random.default_rng(1).normal(size=21)
    misses = {
        pivot: np.max(np.abs(source_scheme.eliminate(matrix, matrix @ x, pivot) - x))
        for pivot in source_scheme.PIVOTS
    }
    assert misses.pop("relative") > 1e-2
    assert max(misses.values()) < 1e-8


def test_elimination_solves_square_systems_and_finds_singular_ones():
    rng = np.random.default_rng(3)
    matrix, right_side = rng.normal(size=(9, 9)), rng.normal(size=9)
    for pivot in source_scheme.PIVOTS:
        x = source_scheme.eliminate(matrix, right_side, pivot)
        np.testing.assert_allclose(matrix @ x, right_side, atol=1e-11)
    matrix[:, 4] = 0
    for pivot in source_scheme.PIVOTS[:-1]:
        assert source_scheme.eliminate(matrix, right_side, pivot) is None


def test_operations_of_elimination_are_those_of_the_printed_formula():
    def operations(m):
        # Column k: quotients, the products of the rows below, and back-substitution.
        multiply = sum((m - k) + (m - k) * (m - k + 1) + (m - k) + 1 for k in range(1, m + 1))
        add = sum((m - k) * (m - k + 1) + (m - k) for k in range(1, m + 1))
        return multiply + add

    for m in (2, 28, 35, 140):
        assert operations(m) * 6 == 4 * m**3 + 9 * m**2 - 7 * m
    # The source prints 9.3e9 for five iterations of 140 equations.
    assert operations(140) == 1_858_570
    assert 25 * operations(28) == 394_450
    assert operations(35) == 30_380


def test_newton_history_of_luffing_from_60_to_45_degrees():
    solution = solve(crane(50.571567121), options=Options(rows="selected", pivot="relative"))
    assert solution.converged
    printed = (714.5, 211.2, 5.19, 6.15e-3, 4.9e-9)
    np.testing.assert_allclose(solution.history[:4], printed[:4], rtol=1e-3)
    assert solution.history[4] < 2 * printed[4]
    boom = matrices(solution.poses.quaternion)[5][:, 0]
    assert abs(np.rad2deg(np.arctan2(boom[2], boom[0])) - 45) < 1e-8


@pytest.mark.long
@pytest.mark.parametrize("form", source_scheme.FORMS)
@pytest.mark.parametrize(("rows", "pivot"), [("selected", "relative"), ("all", "least_squares")])
def test_forms_and_variants_end_at_the_same_crane(form, rows, pivot):
    solution = solve(crane(34.976836600), options=Options(form, rows, pivot))
    boom = matrices(solution.poses.quaternion)[5][:, 0]
    assert abs(np.rad2deg(np.arctan2(boom[2], boom[0])) - 75) < 1e-8


@pytest.mark.long
@pytest.mark.parametrize(
    ("degrees", "published"),
    [
        pytest.param(5, 40, **FURTHER),
        pytest.param(15, 39, **FURTHER),
        (30, 32),
    ],
)
def test_the_crane_is_found_from_scattered_starts(degrees, published):
    system = crane(42.930175867)
    found = sum(right(system, solve(system, s)) for s in starts(system, degrees, 40, scatter=1.0))
    assert likely(found, published, 40), found


def test_rank_of_the_crane_is_42():
    system = crane(42.930175867)
    assert np.linalg.matrix_rank(source_scheme.jacobian(system, start_of(system)), 1e-6) == 42


@pytest.mark.parametrize(
    ("closure", "equations", "rank"),
    [
        pytest.param(("Ball", "Sleeve"), 24, 24, marks=pytest.mark.long),
        pytest.param(("Ball", "Ball"), 23, 23, marks=pytest.mark.long),
        pytest.param(("Hinge", "Ball"), 25, 24, marks=pytest.mark.long),
        (("Hinge", "Hinge"), 27, 24),
    ],
)
def test_ranks_of_the_closed_chain_with_unit_lengths(closure, equations, rank):
    system = superlift(closure)
    assert sum(c.joint.equations for c in system.connections) == equations
    slope = source_scheme.jacobian(system, start_of(system))
    assert np.linalg.matrix_rank(slope, 1e-6) == rank + 4


@pytest.mark.long
def test_fixed_joint_has_four_roots_and_is_found_from_25_degrees():
    plate = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    system = System(
        [Part("plate", {"at": plate})],
        [Connection("weld", jg.joints.Fixed(), "ground.at", "plate.at")],
        {"at": plate},
    )
    near = [solve(system, s) for s in starts(system, 25, 100)]
    assert all(right(system, s) and s.steps == 4 for s in near)

    # Rotations by 0 to 180°, about any axis.
    rng = np.random.default_rng(5)
    axes = rng.normal(size=(200, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    turns = [turned(a, angle) for a, angle in zip(axes, rng.uniform(0, 180, 200), strict=True)]
    far = [solve(system, Poses(np.zeros((1, 3)), q[None])) for q in turns]
    roots = np.array([matrices(s.poses.quaternion)[0] for s in far if s.converged])
    assert np.allclose(roots, np.round(roots), atol=1e-5)
    diagonals = {tuple(np.diag(np.round(r)).astype(int)) for r in roots}
    assert diagonals == {(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)}
    assert likely(sum(right(system, s) for s in far), 111, 200)


def hinged(form, start, target):
    """A bar on a hinge about z, with its angle to the ground's x axis prescribed in a form."""
    bar = Part(
        "bar",
        {"pin": along_z(), "line": [[0.0, 0, 0], [1, 0, 0]]},
        quaternion=turned([0, 0, 1], start),
    )
    angle = jg.joints.Angle(np.deg2rad(target), form)
    ends = ("ground.pin", "bar.pin") if form == "signed" else ("ground.line", "bar.line")
    connections = [
        Connection("pin", jg.joints.Hinge(), "ground.pin", "bar.pin"),
        Connection("angle", angle, *ends),
    ]
    system = System([bar], connections, {"pin": along_z(), "line": [[0.0, 0, 0], [1, 0, 0]]})
    x = matrices(solve(system).poses.quaternion)[0][:, 0]
    return np.rad2deg(np.arctan2(x[1], x[0]))


@pytest.mark.parametrize(
    ("form", "start", "target", "ends"),
    [
        ("cross", 10, 100, (80, -80)),
        ("cross", 10, 150, (30, -30)),
        ("dot", 40, -40, (40,)),
        ("dot", 10, 200, (160,)),
    ],
)
def test_angles_without_sign_end_at_another_one(form, start, target, ends):
    assert min(abs(hinged(form, start, target) - end) for end in ends) < 1e-4


def test_signed_angle_ends_at_the_one_asked_for():
    assert abs(hinged("signed", 10, 40) - 40) < 1e-4


@pytest.mark.parametrize(
    ("form", "counts"),
    [
        ("cross", (3, 3, 4, 4, 4, 4, 4, 5, None, 4, 4, 3, 3)),
        ("dot", (None, 4, 4, 4, 4, 4, 3, 3, 3, 4, 4, 4, None)),
        ("signed", (3,) * 13),
    ],
)
def test_steps_from_ten_degrees_off_as_in_the_table_of_forms(form, counts):
    targets = (0, 15, 30, 44, 45, 46, 60, 75, 90, 120, 135, 150, 180)
    x = jnp.array([1.0, 0, 0])

    def missing(angle, target):
        if form == "signed":
            return jnp.sin(angle - target)
        other = jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros(())])
        return source_scheme.included_angle(x, other, target, form)

    both = jax.jit(jax.value_and_grad(missing))
    for target, published in zip(np.deg2rad(targets), counts, strict=True):
        angle, steps = target + np.deg2rad(-10 if target > 3 else 10), 0
        while abs(angle - target) >= 1e-10 and steps <= 60:
            value, slope = both(angle, target)
            angle, steps = angle - float(value / slope), steps + 1
        assert steps == published if published else steps > 30, (np.rad2deg(target), steps)


def test_curvature_of_the_cross_form_at_no_angle():
    # Webhofer 2005, eq. 5.96, p. 86, for |a||b| = 5.
    printed = {0: 0, 10: -0.0068, 30: -0.0285, 60: -0.2218, 90: -5.0}
    a = jnp.array([2.0, 0, 0])

    def missing(angle):
        b = 2.5 * jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros(())])
        return source_scheme.included_angle(a, b, jnp.zeros(()), "cross")

    for degrees, curvature in printed.items():
        # At zero the norm has no derivative; its limit is taken.
        angle = jnp.deg2rad(max(float(degrees), 1e-6))
        first, second = jax.grad(missing)(angle), jax.grad(jax.grad(missing))(angle)
        assert abs(second / (1 + first**2) ** 1.5 - curvature) < 6e-5


def test_printed_coupling_of_the_screw_fails_where_the_pose_is_right():
    # A pose advanced as for 190°.
    angle = np.deg2rad(190.0)
    n1 = jnp.array([1.0, 0, 0])
    n2 = jnp.array([np.cos(angle), np.sin(angle), 0])
    cross, dot = (source_scheme.screw_turn(n1, n2, jnp.asarray(angle), f) for f in ("cross", "dot"))
    assert abs(cross - 0.347) < 5e-4
    assert abs(dot - 1.97) < 5e-3
    lead = 2 * np.pi * 0.1
    place = jg.joints.Frame(
        jnp.array([0.0, 0, 0.1 * angle]),
        quaternions.to_matrix(jnp.asarray(turned([0, 0, 1], 190.0))),
    )
    np.testing.assert_allclose(jg.joints.Screw(lead).residual(place), 0, atol=1e-12)


def test_quaternion_with_sine_and_cosine_exchanged_turns_by_the_supplement():
    half = np.deg2rad(15.0)
    printed = quaternions.to_matrix(jnp.array([np.sin(half), 0, 0, np.cos(half)]))
    supplement = quaternions.to_matrix(jnp.asarray(turned([0, 0, 1], 150.0)))
    np.testing.assert_allclose(printed, supplement, atol=1e-15)


def test_selection_takes_absolute_values_and_the_lowest_of_equals():
    x = jnp.array([-1.0, 0, 0])
    assert source_scheme.selection(x, x).tolist() == [False, True, True]
    assert source_scheme.selection(x, -x).tolist() == [False, True, True]
    ones = jnp.array([1.0, 1.0, 1.0])
    assert source_scheme.selection(ones, ones).tolist() == [False, True, True]


def printed_matrices(e):
    e0, e1, e2, e3 = e
    return [
        np.array([[4 * e0, -2 * e3, 2 * e2], [2 * e3, 4 * e0, -2 * e1], [-2 * e2, 2 * e1, 4 * e0]]),
        np.array([[4 * e1, 2 * e2, 2 * e3], [2 * e2, 0, -2 * e0], [2 * e3, 2 * e0, 0]]),
        np.array([[0, 2 * e1, 2 * e0], [2 * e1, 4 * e2, 2 * e3], [-2 * e0, 2 * e3, 0]]),
        np.array([[0, -2 * e0, 2 * e1], [2 * e0, 0, 2 * e2], [2 * e1, 2 * e2, 4 * e3]]),
    ]


@pytest.mark.parametrize("equation", ["E1", "E2", "E3", "E4", "E5"])
@pytest.mark.parametrize("form", source_scheme.FORMS)
def test_derivatives_are_the_printed_ones_off_the_unit_sphere(equation, form):
    rng = np.random.default_rng(11)
    points = rng.normal(size=(2, 2, 3))
    angle = 0.7
    joint = {
        "E1": jg.joints.Ball(),
        "E2": jg.joints.Distance(1.3),
        "E3": jg.joints.Sleeve(),
        "E4": jg.joints.Sleeve(),
        "E5": jg.joints.Angle(angle, form),
    }[equation]
    system = System(
        [Part("one", {"at": points[0]}), Part("two", {"at": points[1]})],
        [Connection("joint", joint, "one.at", "two.at")],
    )
    v, e = rng.normal(size=(2, 3)), rng.normal(size=(2, 4))
    slope = np.asarray(source_scheme.jacobian(system, Poses(v, e), form))

    T = matrices(e)
    p = [T[i] @ points[i, 0] for i in range(2)]
    a, b = (T[i] @ (points[i, 1] - points[i, 0]) for i in range(2))
    d = v[1] + p[1] - v[0] - p[0]
    dp = [np.array([D @ points[i, 0] for D in printed_matrices(e[i])]) for i in range(2)]
    da, db = (
        np.array([D @ (points[i, 1] - points[i, 0]) for D in printed_matrices(e[i])])
        for i in range(2)
    )
    unit, none = np.eye(3), np.zeros((3, 3))
    A, B = np.linalg.norm(a), np.linalg.norm(b)
    k = np.cross(a, b)
    # Rows: v1, e1, v2, e2; each entry is the derivative of the vector of equations.
    printed = {
        ("E1", "cross"): (unit, dp[0], -unit, -dp[1]),
        ("E2", "cross"): (-2 * d, -2 * dp[0] @ d, 2 * d, 2 * dp[1] @ d),
        ("E3", "cross"): (none, np.cross(da, b), none, np.cross(a, db)),
        ("E3", "dot"): (
            none,
            np.outer(da @ b, b) / B**2 - da,
            none,
            np.outer(db @ a, b) / B**2
            - 2 * (a @ b) * np.outer(db @ b, b) / B**4
            + (a @ b) / B**2 * db,
        ),
        # With the sign that A.1.4.1 lacks in the first product of e1.
        ("E4", "cross"): (
            -np.cross(unit, a),
            -np.cross(dp[0], a) + np.cross(d, da),
            np.cross(unit, a),
            np.cross(dp[1], a),
        ),
        ("E4", "dot"): (
            A**2 * unit - np.outer(a, a),
            np.outer(-dp[0] @ a + da @ d, a)
            + (d @ a) * da
            - 2 * np.outer(da @ a, d)
            + A**2 * dp[0],
            np.outer(a, a) - A**2 * unit,
            np.outer(dp[1] @ a, a) - A**2 * dp[1],
        ),
        ("E5", "cross"): (
            np.zeros(3),
            np.cross(da, b) @ k / np.linalg.norm(k) - da @ a * B / A * np.sin(angle),
            np.zeros(3),
            np.cross(a, db) @ k / np.linalg.norm(k) - db @ b * A / B * np.sin(angle),
        ),
        ("E5", "dot"): (
            np.zeros(3),
            da @ b - da @ a * B / A * np.cos(angle),
            np.zeros(3),
            db @ a - db @ b * A / B * np.cos(angle),
        ),
    }
    blocks = printed.get((equation, form), printed[equation, "cross"])
    rows = (
        slice(3, 6)
        if equation == "E4"
        else slice(0, len(np.concatenate(blocks).T.reshape(-1)) // 14)
    )
    expected = np.concatenate(blocks).T.reshape(-1, 14)
    np.testing.assert_allclose(slope[rows], expected, atol=1e-13 * np.abs(expected).max())


def test_joints_the_source_does_not_have_are_named():
    system = System(
        [Part("one", {"at": along_z()})],
        [Connection("table", jg.joints.Planar(), "ground.at", "one.at")],
        {"at": along_z()},
    )
    with pytest.raises(ValueError, match=r"no joint such as 'table', a Planar\."):
        solve(system)
    with pytest.raises(ValueError, match=r"The option pivot is 'total'; it must be one of column,"):
        solve(system, options=Options(pivot="total"))
