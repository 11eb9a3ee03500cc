"""Large displacements, against closed forms and the differential equations of rods."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, fsolve, minimize_scalar
from scipy.special import ellipeinc, ellipkinc

import jaxgrip as jg
from jaxgrip.fem.structures import _balance as balance
from jaxgrip.fem.structures import _corotational as corotational
from jaxgrip.fem.structures import _deflected as deflected
from jaxgrip.fem.structures import _members as members
from jaxgrip.models import reference_crane
from tests.fem.structures.models import BOX, STEEL, crane_poses, crane_structure, two_frames

js = jg.fem.structures
J = jg.joints


def alone(nodes, elements, supports, named=None, **options):
    """One part, with the attachment "n3" for node 3 and so on."""
    named = {f"n{k}": (k,) for k in range(len(nodes))} if named is None else named
    frame = js.FramePart(nodes, elements, named)
    ground = options.pop("ground", {})
    system = jg.mechanism.System([frame.part("f")], [], ground)
    supports = {f"f.n{k}": held for k, held in supports.items()}
    structure = js.Structure(system, {"f": frame}, supports=supports, **options)
    return structure, jg.mechanism.start(system)


def in_plane(count, ends):
    """Supports that leave motions in the plane xz, with those of the ends."""
    return dict.fromkeys(range(count), ("y", "rx", "rz")) | ends


YOUNG, AREA, RISE = 200e9, 1e-4, 0.05


def truss(young=YOUNG, rise=RISE):
    """Two bars of span 2 m, loaded at their apex, node 1."""
    bar = js.Bar(jg.fem.Isotropic(young, 0.3, 7850.0), AREA)
    nodes = jnp.array([[-1.0, 0, 0], [0, 0, 0], [1, 0, 0]]).at[1, 2].set(rise)
    held = {0: "pinned", 2: "pinned", 1: ("y",)}
    return alone(nodes, [js.Bars([(0, 1), (1, 2)], bar)], held)


def down(force, node=1):
    return js.NodalForce(("f", node), (0.0, 0.0, -force))


def truss_force(w, young=YOUNG, rise=RISE):
    """Closed form: force at which the apex has sunk by w."""
    length, now = np.hypot(1.0, rise), np.hypot(1.0, rise - w)
    return 2 * young * AREA * (length / now - 1) * (rise - w) / length


@functools.cache
def truss_limit():
    found = minimize_scalar(
        lambda w: -truss_force(w), bounds=(0, RISE), method="bounded", options={"xatol": 1e-12}
    )
    return -found.fun, found.x


@pytest.mark.long
@pytest.mark.parametrize("part", [0.01, 0.5, 0.9, 0.9999])
def test_shallow_truss_below_its_limit_load(part):
    limit, at = truss_limit()
    solution = js.second_order(*truss(), down(part * limit))
    w = brentq(lambda w: truss_force(w) - part * limit, 0, at, xtol=1e-15)
    np.testing.assert_allclose(-solution.part("f").displacements[1, 2], w, rtol=1e-8)
    length, now = np.hypot(1.0, RISE), np.hypot(1.0, RISE - w)
    tension = YOUNG * AREA * (now / length - 1)
    np.testing.assert_allclose(solution.part("f").bar_forces, tension, rtol=1e-8)
    # The bars push along themselves where they are now.
    place = solution.reactions()["f.n0"]
    np.testing.assert_allclose(place.force[2], part * limit / 2, rtol=1e-8)
    np.testing.assert_allclose(place.force[0], -tension / now, rtol=1e-8)
    assert solution.margin > 0
    assert solution.load_factor == 1


@pytest.mark.parametrize("part", [1.0001, 1.01, 1.2, 20.0])
def test_shallow_truss_above_its_limit_load(part):
    limit, _ = truss_limit()
    with pytest.raises(
        js.StructureError, match=r"limit load is .* or 959\.8.* node 1 of"
    ) as caught:
        js.second_order(*truss(), down(part * limit))
    np.testing.assert_allclose(caught.value.solution.load_factor * part, 1.0, rtol=1e-8)
    found = js.second_order(*truss(), down(part * limit), throw=False)
    assert found.result == js.RESULTS.limit


@pytest.mark.long
def test_path_through_the_limit_points_of_a_truss():
    limit, at = truss_limit()
    path = js.equilibrium_path(*truss(), down(1.5 * limit), step=2e-3)
    w = -np.asarray(path.displacements[:, 1, 2])
    np.testing.assert_allclose(1.5 * path.load_factors, truss_force(w) / limit, atol=1e-7)
    turns = np.flatnonzero(path.limit)
    np.testing.assert_allclose(1.5 * path.load_factors[turns], [1.0, -1.0], rtol=1e-8)
    np.testing.assert_allclose(w[turns], [at, 2 * RISE - at], rtol=1e-4)
    np.testing.assert_allclose(path.load_factors[-1], 1.0, rtol=1e-12)
    assert path.result == js.RESULTS.successful
    # Unstable where it falls, and nowhere else.
    clear = np.minimum(np.abs(w - at), np.abs(w - 2 * RISE + at)) > 1e-4
    falling = (w > at) & (w < 2 * RISE - at)
    np.testing.assert_array_equal(path.stable[clear], ~falling[clear])
    short = js.equilibrium_path(*truss(), down(1.5 * limit), step=2e-3, points=7)
    assert len(short.load_factors) == 7
    assert short.result == js.RESULTS.unfinished
    with pytest.raises(TypeError, match="equilibrium_path has no derivatives"):
        jax.grad(lambda f: js.equilibrium_path(*truss(), down(f)).load_factors[-1])(limit)


@pytest.mark.long
def test_truss_has_derivatives_and_batches_and_one_program():
    """Of the closed form, by the implicit function theorem."""

    def sinks(force, young, rise):
        solution = js.second_order(*truss(young, rise), down(force), throw=False)
        return -solution.part("f").displacements[1, 2]

    def sunk(force, young, rise):
        _, at = truss_limit()
        return brentq(lambda w: truss_force(w, young, rise) - force, 0, at, xtol=1e-16)

    at = (600.0, YOUNG, RISE)
    expected = []
    for k, x in enumerate(at):
        step = 1e-4 * x
        sides = [sunk(*at[:k], x + h * step, *at[k + 1 :]) for h in (-2, -1, 1, 2)]
        expected.append((sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * step))
    at = tuple(map(jnp.asarray, at))
    by_grad = jax.jit(jax.grad(sinks, argnums=(0, 1, 2)))(*at)
    np.testing.assert_allclose(by_grad, expected, rtol=1e-6)
    by_jvp = jax.jit(lambda *x: jax.jvp(sinks, x, (jnp.ones(()), jnp.zeros(()), jnp.zeros(()))))
    np.testing.assert_allclose(by_jvp(*at)[1], expected[0], rtol=1e-6)
    forces = jnp.array([100.0, 400.0, 900.0, 1200.0])
    many = jax.jit(jax.vmap(lambda force: sinks(force, YOUNG, RISE)))(forces)
    alone_ = [sunk(float(force), YOUNG, RISE) for force in forces[:3]]
    np.testing.assert_allclose(many[:3], alone_, rtol=1e-8)
    # Beyond the limit load there is no equilibrium.
    assert np.isnan(many[3])

    count = deflected.follow._cached._cache_size
    js.second_order(*truss(), down(100.0))
    before = count()
    js.second_order(*truss(1.1 * YOUNG, 0.04), down(321.0))
    assert count() == before


@pytest.mark.soak
def test_truss_has_second_derivatives_and_those_of_its_margin():
    """The margin is the slope F' of the force by that of the undeformed truss."""

    @jax.jit
    def found(force):
        def both(force):
            solution = js.second_order(*truss(), down(force), throw=False)
            return jnp.stack([-solution.displacements[1, 2], solution.margin])

        return both(force), jax.jacfwd(both)(force), jax.hessian(both)(force)

    def force(w):
        length, now = jnp.hypot(1.0, RISE), jnp.hypot(1.0, RISE - w)
        return 2 * YOUNG * AREA * (length / now - 1) * (RISE - w) / length

    _, at = truss_limit()
    w = brentq(lambda w: truss_force(w) - 600.0, 0, at, xtol=1e-16)
    slopes = [jax.grad(force), jax.grad(jax.grad(force)), jax.grad(jax.grad(jax.grad(force)))]
    first, second, third = (float(slope(w)) for slope in slopes)
    start = float(slopes[0](0.0))
    value, by_force, twice = found(jnp.asarray(600.0))
    np.testing.assert_allclose(value, [w, first / start], rtol=1e-7)
    np.testing.assert_allclose(by_force, [1 / first, second / first / start], rtol=1e-6)
    bent = (third / first - (second / first) ** 2) / first / start
    np.testing.assert_allclose(twice, [-second / first**3, bent], rtol=1e-6)


@pytest.mark.soak
def test_no_numbers_where_there_is_no_equilibrium():
    """Of loads that are no numbers, too many, and some that are carried, in one batch."""
    limit, _ = truss_limit()
    loads = jnp.array([jnp.nan, jnp.inf, 1.5 * limit, 600.0])

    def bent(force):
        return js.second_order(*truss(), down(force), throw=False)

    def shown(force):
        solution = bent(force)
        held = solution.reactions()["f.n0"].force
        return solution.displacements, solution.bar_forces, held, solution.places

    @jax.jit
    @jax.vmap
    def many(force):
        solution = bent(force)
        ways = jax.jacfwd(lambda f: (shown(f), bent(f).load_factor, bent(f).margin))(force)
        return shown(force), ways, solution.load_factor, solution.result

    shown_, ways, shares, results = many(loads)
    for x in jax.tree.leaves((shown_, ways)):
        assert np.isfinite(x[3]).all()
        assert np.isnan(np.asarray(x[:3])[np.asarray(x[:3]) != 0]).all()
    for x in jax.tree.leaves(shown_):
        assert np.isnan(x[:3]).any(axis=tuple(range(1, x.ndim))).all()
    for x in ways[1:]:
        assert np.isnan(x[:3]).all()
    np.testing.assert_allclose(shares, [0.0, 0.0, 1 / 1.5, 1.0], rtol=1e-8)
    expected = [js.RESULTS.diverged, js.RESULTS.diverged, js.RESULTS.limit, js.RESULTS.successful]
    assert [int(x) for x in results._value] == [int(x._value) for x in expected]

    linear = jax.jit(lambda f: js.solve(*truss(), down(f), throw=False))(jnp.nan)
    assert linear.result == js.RESULTS.diverged
    assert np.isnan(linear.displacements).all()


def test_margin_of_the_linear_stiffness_has_a_derivative():
    @jax.jit
    def margin(rise):
        return js.solve(*truss(rise=rise), down(1.0), throw=False).margin

    sides = [float(margin(RISE + h * 1e-3)) for h in (-2, -1, 1, 2)]
    expected = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / 12e-3
    np.testing.assert_allclose(jax.grad(margin)(RISE), expected, rtol=1e-5, atol=1e-9)


def said_of(caught):
    return float(str(caught[0].message).split("about ")[1].split(" %")[0]) / 100


@pytest.mark.long
def test_linear_analyses_say_where_they_mislead():
    limit, _ = truss_limit()
    js.solve(*truss(), down(0.02 * limit))
    w = brentq(lambda w: truss_force(w) - 0.2 * limit, 0, 0.02)
    off = w / (0.2 * limit / (2 * YOUNG * AREA * RISE**2 / np.hypot(1, RISE) ** 3)) - 1
    with pytest.warns(
        UserWarning, match="off by about .* % of the largest, most at node 1 of"
    ) as caught:
        js.solve(*truss(), down(0.2 * limit))
    np.testing.assert_allclose(said_of(caught), off, rtol=0.2)
    with pytest.warns(UserWarning, match="off by about"):
        js.solve(*truss(), down(0.2 * limit), throw=False)
    with pytest.raises(js.StructureError, match=r"which is too high since.*limit load is 0\.9"):
        js.buckling(*truss(), down(limit / 0.9))
    # The linear stress says 5.2 times as much.
    factor = js.buckling(*truss(), down(limit), throw=False).factors[0]
    np.testing.assert_allclose(factor, 5.2, rtol=0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        js.Rope(1e6),
        pytest.param(js.Bar(jg.fem.Isotropic(1e9, 0.3, 1.0), 1e-3), marks=pytest.mark.soak),
    ],
)
def test_straight_line_loaded_across(kind):
    """2 EA (L / l - 1) w / L = F with L² = l² + w²; its linear stiffness is none."""
    nodes = [[-1.0, 0, 0], [0, 0, 0], [1, 0, 0]]
    structure, poses = alone(nodes, [js.Bars([(0, 1), (1, 2)], kind)], {0: "pinned", 2: "pinned"})
    with pytest.raises(js.StructureError, match="Node 1 of part 'f' can move by itself along"):
        js.solve(structure, poses, down(10.0))
    solution = js.second_order(structure, poses, down(10.0))
    w = brentq(lambda w: 2e6 * (np.hypot(1, w) - 1) * w / np.hypot(1, w) - 10, 1e-3, 1)
    np.testing.assert_allclose(
        solution.displacements[1], [0, 0, -w, 0, 0, 0], rtol=1e-8, atol=1e-12
    )
    np.testing.assert_allclose(w, 0.02154, atol=1e-5)
    tension = 1e6 * (np.hypot(1, w) - 1)
    np.testing.assert_allclose(solution.bar_forces, tension, rtol=1e-8)


def hanging(stiffness, mass, lengths, span, rise):
    """Places (n + 1, 2) of a chain of elastic links with half of their weight on either end."""
    weight = 9.81 * mass * lengths

    def places(h, v):
        x = [np.zeros(2)]
        for k, length in enumerate(lengths):
            v_here = v + weight[:k].sum() + weight[k] / 2
            pull = np.hypot(h, v_here)
            x.append(x[-1] + length * (1 + pull / stiffness) * np.array([h, v_here]) / pull)
        return np.array(x)

    start = [weight.sum() / 2, -weight.sum() / 2]
    end = fsolve(lambda f: places(*f)[-1] - [span, rise], start, xtol=1e-13)
    return places(*end)


SPAN, LINKS, STIFF, HEAVY = 10.0, 20, 1e6, 10.0


@pytest.mark.long
@pytest.mark.parametrize("shape", ["vee", "arch", "zigzag"])
def test_cable_settles_from_any_shape(shape):
    x = np.linspace(0, SPAN, LINKS + 1)
    z = {
        "vee": -3.0 * (1 - np.abs(2 * x / SPAN - 1)),
        "arch": 2.0 * np.sin(np.pi * x / SPAN),
        "zigzag": 0.8 * (np.arange(LINKS + 1) % 2),
    }[shape]
    nodes = np.stack([x, 0 * x, z], axis=1)
    rope = js.Bars([(k, k + 1) for k in range(LINKS)], js.Rope(STIFF, HEAVY))
    structure, poses = alone(nodes, [rope], {0: "pinned", LINKS: "pinned"})
    solution = js.second_order(structure, poses, js.Inertia((0, 0, -9.81)))
    lengths = np.hypot(np.diff(x), np.diff(z))
    exact = hanging(STIFF, HEAVY, lengths, SPAN, z[-1])
    found = np.asarray(solution.places)[: LINKS + 1]
    np.testing.assert_allclose(found[:, [0, 2]], exact, atol=1e-8 * SPAN)
    np.testing.assert_allclose(found[:, 1], 0.0, atol=1e-8)
    reactions = solution.reactions()
    total = sum(np.asarray(r.force) for r in reactions.values())
    np.testing.assert_allclose(total, [0, 0, 9.81 * HEAVY * lengths.sum()], atol=1e-4)
    if shape == "vee":
        # The elastic catenary, whose weight is spread evenly.
        length, weight = lengths.sum(), 9.81 * HEAVY
        pull = brentq(
            lambda h: (
                h * length / STIFF + 2 * h / weight * np.arcsinh(weight * length / 2 / h) - SPAN
            ),
            1e-3,
            1e6,
        )
        down_ = weight * length / 2
        sag = down_ * length / 4 / STIFF + (np.hypot(pull, down_) - pull) / weight
        np.testing.assert_allclose(-found[LINKS // 2, 1 + 1], sag, rtol=2e-3)


@pytest.mark.long
def test_ropes_swing_and_go_slack():
    """A mast on a ball with four ropes: those that would be pushed carry nothing."""
    height, reach = 10.0, 7.3
    feet = reach * np.array([[1.0, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])
    ground = {f"g{k}": [foot] for k, foot in enumerate(feet)}
    ties = {f"g{k}": js.Tie(js.Rope(1e7), f"ground.g{k}", ("f", 1)) for k in range(4)}
    nodes = [[0, 0, 0], [0, 0, height]]
    held = {0: ("x", "y", "z", "rz")}
    mast = alone(nodes, js.Beams([(0, 1)], BOX), held, ground=ground, ties=ties)
    push = np.array([1.9e5, 0.6e5, 0])
    solution = js.second_order(*mast, js.NodalForce(("f", 1), push))
    tensions = np.array([solution.tie(f"g{k}") for k in range(4)])
    assert np.all(tensions[:2] == 0)
    assert np.all(tensions[2:] > 0)
    top = np.asarray(solution.places)[1]
    # Moments about the foot, at the place where the top is now.
    pulls = [t * (f - top) / np.linalg.norm(f - top) for t, f in zip(tensions, feet, strict=True)]
    moment = np.cross(top, np.sum(pulls, axis=0) + push)
    np.testing.assert_allclose(moment[:2], 0.0, atol=1e-6 * 2e6)
    stretched = np.linalg.norm(feet - top, axis=1) - np.hypot(height, reach)
    stiff = 1e7 / np.hypot(height, reach)
    np.testing.assert_allclose(tensions, np.maximum(stiff * stretched, 0.0), atol=1e-3)


# Nearly without stretch, as the closed forms have it.
SLENDER = jg.fem.BeamSection(STEEL, A=10.0, Iy=1e-5, Iz=2e-5, J=1e-5, orientation=(0, 1.0, 0))
EI, LENGTH, PIECES = 210e9 * 1e-5, 3.0, 20


def cantilever(force, moment=0.0):
    """Second-order places (k, 3) of a cantilever along x, in the plane xz."""
    nodes = np.zeros((PIECES + 1, 3))
    nodes[:, 0] = np.linspace(0, LENGTH, PIECES + 1)
    beams = js.Beams([(k, k + 1) for k in range(PIECES)], SLENDER)
    structure, poses = alone(nodes, [beams], in_plane(PIECES + 1, {0: "all"}))
    load = js.NodalForce(("f", PIECES), force, (0.0, moment, 0.0))
    return js.second_order(structure, poses, load)


@pytest.mark.long
@pytest.mark.parametrize("turns", [0.25, 1.0, 2.0])
def test_end_moment_rolls_a_beam_into_a_circle(turns):
    angle = 2 * np.pi * turns
    solution = cantilever((0.0, 0, 0), -EI * angle / LENGTH)
    s = np.linspace(0, angle, PIECES + 1)
    circle = LENGTH / angle * np.stack([np.sin(s), 0 * s, 1 - np.cos(s)], axis=1)
    # Chords stand for the arcs; that of an angle a is short by a⁴ / 1920.
    short = (angle / PIECES) ** 4 / 1920
    found = np.asarray(solution.places)[: PIECES + 1]
    np.testing.assert_allclose(found, circle, atol=(1.2 * short + 1e-9) * LENGTH)
    bends = np.asarray(solution.beam_forces)[:, :, 4]
    np.testing.assert_allclose(np.abs(bends), EI * angle / LENGTH, rtol=1e-8)


def elastica(push, across):
    """Tip (x, z) of a cantilever under a force (-push, across), by elliptic integrals."""
    force, start = np.hypot(push, across), np.arctan2(across, push)
    rate = np.sqrt(force / EI)

    def along(k):
        at = np.arcsin(np.sin(start / 2) / k)
        return at, ellipkinc(np.pi / 2, k**2) - ellipkinc(at, k**2)

    least = np.sin(start / 2)
    k = brentq(lambda k: along(k)[1] - rate * LENGTH, least * (1 + 1e-13), 1 - 1e-12, xtol=1e-15)
    at, whole = along(k)
    x = (2 * (ellipeinc(np.pi / 2, k**2) - ellipeinc(at, k**2)) - whole) / rate
    z = 2 * k * np.cos(at) / rate
    c, s = np.cos(start), np.sin(start)
    return np.array([c * x + s * z, -s * x + c * z])


EULER = np.pi**2 * EI / 4 / LENGTH**2


@pytest.mark.parametrize(
    ("push", "across"), [(0.0, 0.5), (0.0, 4.0), (0.6, 0.05), (1.2, 1e-4), (3.0, 0.2)]
)
def test_cantilever_is_the_elastica(push, across):
    """Under a force across, and far beyond Euler's load with hardly any force across."""
    load = EULER * np.array([push, across])
    solution = cantilever((-load[0], 0, load[1]))
    np.testing.assert_allclose(
        np.asarray(solution.places)[PIECES, [0, 2]], elastica(*load), rtol=0, atol=2e-5 * LENGTH
    )


def bent_rod(force):
    """Tip of a rod of 45° of a circle of 100 in, by the equations of a rod with six strains."""
    stiff, shear, radius = 1e7, 0.5e7, 100.0
    bend = np.diag([shear / 6, stiff / 12, stiff / 12])
    stretch = np.diag([stiff, shear, shear])

    def rates(s, y):
        turn, moment = y[3:12].reshape(3, 3), y[12:]
        strain = np.linalg.solve(stretch, turn.T @ force) + np.array([1.0, 0, 0])
        bent = np.linalg.solve(bend, turn.T @ moment) + np.array([0, 0, 1 / radius])
        spin = np.array([[0, -bent[2], bent[1]], [bent[2], 0, -bent[0]], [-bent[1], bent[0], 0]])
        way = turn @ strain
        return np.concatenate([way, (turn @ spin).ravel(), -np.cross(way, force)])

    def end(moment):
        start = np.concatenate([np.zeros(3), np.eye(3).ravel(), moment])
        length = radius * np.pi / 4
        return solve_ivp(rates, (0, length), start, rtol=1e-10, atol=1e-9, method="DOP853").y[:, -1]

    tip = radius * np.array([np.sin(np.pi / 4), 1 - np.cos(np.pi / 4), 0.6])
    moment = np.zeros(3)
    for part in np.linspace(0.1, 1.0, 10):
        scaled = part * np.asarray(force)
        force_, force = force, scaled
        moment = fsolve(lambda m: end(m)[12:], moment if part > 0.1 else np.cross(tip, force))
        tip_now = end(moment)[:3]
        force = force_
    return tip_now


@pytest.mark.long
def test_bathe_bolourchi_bend():
    """Published tips: 15.9 47.2 53.4 (Bathe, Bolourchi), 15.79 47.23 53.37 (Simo, Vu-Quoc)."""
    count = 16
    angle = np.linspace(0, np.pi / 4, count + 1)
    nodes = 100 * np.stack([np.sin(angle), 1 - np.cos(angle), 0 * angle], axis=1)
    material = jg.fem.Isotropic(1e7, 0.0, 1.0)
    section = jg.fem.BeamSection(
        material, A=1.0, Iy=1 / 12, Iz=1 / 12, J=1 / 6, orientation=(0, 0, 1.0)
    )
    element = jg.fem.elements.Timoshenko()
    beams = js.Beams([(k, k + 1) for k in range(count)], section, element)
    structure, poses = alone(nodes, [beams], {0: "all"})
    published = {300.0: (59.0, 22.4, 39.8), 600.0: (47.2, 15.8, 53.4)}
    for force, place in published.items():
        solution = js.second_order(structure, poses, js.NodalForce(("f", count), (0, 0, force)))
        tip = np.asarray(solution.places)[count]
        np.testing.assert_allclose(tip, place, atol=0.6)
        np.testing.assert_allclose(tip, bent_rod(np.array([0, 0, force])), atol=0.05)
    # Reactions hold the load where its place is now.
    held = solution.reactions()["f.n0"]
    np.testing.assert_allclose(held.force, [0, 0, -600.0], atol=1e-5)
    np.testing.assert_allclose(held.moment, -np.cross(tip, [0, 0, 600.0]), atol=1e-3)


def rod_in_plane(stretch, bend, length, turn, state, force):
    """x, z, angle and moment at the end of a straight rod under a constant force in it."""
    h, v = force

    def rates(s, y):
        longer = 1 + (h * np.cos(y[2]) + v * np.sin(y[2])) / stretch
        return [
            longer * np.cos(y[2]),
            longer * np.sin(y[2]),
            y[3] / bend,
            longer * (h * np.sin(y[2]) - v * np.cos(y[2])),
        ]

    state = np.add(state, [0, 0, turn, 0])
    return solve_ivp(rates, (0, length), state, rtol=1e-11, atol=1e-12, method="DOP853").y[:, -1]


@pytest.mark.long
def test_williams_toggle():
    """Limit load of the rods' equations; Williams 1964 measured about 34 lb."""
    half, rise, stretch, bend, pieces = 12.943, 0.386, 1.885e6, 9.27e3, 8
    length, slope = np.hypot(half, rise), np.arctan2(rise, half)

    def force_at(w, guess):
        def misses(z):
            end = rod_in_plane(
                stretch, bend, length, slope, [0, 0, 0, 100 * z[0]], (100 * z[1], 100 * z[2])
            )
            return end[:3] - [half, rise - w, slope]

        return fsolve(misses, guess, xtol=1e-12)

    guess = np.array([0.0, -0.1, -0.01])
    for w in np.linspace(0.02, 0.24, 12):
        guess = force_at(w, guess)
    limit = minimize_scalar(
        lambda w: 200 * force_at(w, guess)[2],
        bounds=(0.2, 0.26),
        method="bounded",
        options={"xatol": 1e-6},
    )
    x = np.linspace(0, 2 * half, 2 * pieces + 1)
    nodes = np.stack([x, 0 * x, rise * (1 - np.abs(x / half - 1))], axis=1)
    material = jg.fem.Isotropic(1.03e7, 0.3, 1.0)
    inertia = bend / 1.03e7
    section = jg.fem.BeamSection(
        material, A=stretch / 1.03e7, Iy=inertia, Iz=inertia, J=2 * inertia
    )
    beams = js.Beams([(k, k + 1) for k in range(2 * pieces)], section)
    held = in_plane(len(nodes), {0: "all", 2 * pieces: "all"})
    structure, poses = alone(nodes, [beams], held)
    with pytest.raises(js.StructureError, match="limit load") as caught:
        js.second_order(structure, poses, down(40.0, pieces))
    np.testing.assert_allclose(40 * caught.value.solution.load_factor, -limit.fun, rtol=1e-4)
    np.testing.assert_allclose(-limit.fun, 33.9, atol=0.1)


@pytest.mark.long
def test_lee_frame():
    """Limit points of the rods' equations, and the load they need at points of the path."""
    young, area, second, side, at, pieces = 7.2e6, 6.0, 2.0, 120.0, 24.0, 10
    stretch, bend, top = young * area, young * second, 20e3

    def load_at(w, guess):
        def misses(z):
            h, v, turn, load = z * [1e4, 1e4, 1.0, 1e4]
            end = rod_in_plane(stretch, bend, side, np.pi / 2 + turn, np.zeros(4), (h, v))
            here = rod_in_plane(stretch, bend, at, -np.pi / 2, end, (h, v))
            end = rod_in_plane(stretch, bend, side - at, 0.0, here, (h, v + load))
            return [end[0] - side, end[1] - side, end[3] / 1e4, here[1] - side + w]

        return fsolve(misses, guess, xtol=1e-12)

    up = np.linspace(0, side, pieces + 1)
    nodes = [[0, 0, z] for z in up] + [[x, 0, side] for x in up[1:]]
    section = jg.fem.BeamSection(
        jg.fem.Isotropic(young, 0.3, 1.0), A=area, Iy=second, Iz=second, J=2 * second
    )
    beams = js.Beams([(k, k + 1) for k in range(2 * pieces)], section)
    pin = ("x", "y", "z", "rx", "rz")
    held = in_plane(len(nodes), {0: pin, 2 * pieces: pin})
    structure, poses = alone(nodes, [beams], held)
    node = pieces + round(at / side * pieces)
    path = js.equilibrium_path(structure, poses, down(top, node), step=0.04)
    assert path.result == js.RESULTS.successful
    w = -np.asarray(path.displacements[:, node, 2])
    loads = top * np.asarray(path.load_factors)
    guess = np.array([0.01, -0.03, -0.01, 0.04])
    for k in range(1, np.argmax(path.limit) + 1):
        guess = load_at(w[k], guess)
        np.testing.assert_allclose(loads[k], 1e4 * guess[3], rtol=2e-4, atol=0.1)
    limit = minimize_scalar(
        lambda w: -1e4 * load_at(w, guess)[3],
        bounds=(46.0, 51.0),
        method="bounded",
        options={"xatol": 1e-5},
    )
    np.testing.assert_allclose(loads[path.limit][0], -limit.fun, rtol=1e-4)
    # Snap-back: beyond the limit point the loaded node rises for a while, and the load is negative.
    assert np.any(np.diff(w) < 0)
    assert len(loads[path.limit]) == 2
    assert loads[path.limit][1] < -9e3


@pytest.mark.soak
def test_released_beams_are_bars():
    """At their far ends they turn by any angle without bending."""
    section = jg.fem.BeamSection(
        jg.fem.Isotropic(YOUNG, 0.3, 1.0), A=AREA, Iy=1e-8, Iz=1e-8, J=1e-8
    )
    bends = ("My", "Mz")
    elements = [
        js.Beams([(0, 1)], section, released=(bends, bends)),
        js.Beams([(1, 2)], section, released=((), bends)),
    ]
    nodes = [[-1.0, 0, 0], [0, 0, RISE], [1, 0, 0]]
    structure, poses = alone(nodes, elements, {0: "all", 2: "all", 1: ("y", "rx", "rz")})
    limit, at = truss_limit()
    path = js.equilibrium_path(structure, poses, down(1.5 * limit), step=0.01)
    w = -np.asarray(path.displacements[:, 1, 2])
    np.testing.assert_allclose(1.5 * path.load_factors, truss_force(w) / limit, atol=1e-6)
    assert w[-1] > 2 * RISE
    solution = js.second_order(structure, poses, down(0.9 * limit))
    w = brentq(lambda w: truss_force(w) - 0.9 * limit, 0, at, xtol=1e-15)
    np.testing.assert_allclose(-solution.displacements[1, 2], w, rtol=1e-7)
    tension = YOUNG * AREA * (np.hypot(1, RISE - w) / np.hypot(1, RISE) - 1)
    np.testing.assert_allclose(solution.beam_forces[:, :, 0], tension, rtol=1e-7)


def test_released_ends_are_pushed_by_the_slope_of_the_energy():
    released = ("My", "Mz"), ("N", "Mz")
    beams = js.Beams([(0, 1)], BOX, released=released)
    structure, poses = alone([[0, 0, 0], [1.2, 0.5, -0.7]], [beams], {0: "all", 1: "all"})
    which = np.flatnonzero(beams.mask)

    @jax.jit
    def both(structure, poses, loose):
        problem = members.problem(structure, poses, ())
        (group,) = problem.beams
        (beam,) = (jax.tree.map(lambda x: x[0], group.data),)

        def energy(loose):
            own = jnp.zeros(12).at[which].set(loose).reshape(2, 6)
            turns = jax.vmap(jg.spatial.quaternions.exponential)(own[:, 3:])
            sections = beam.axes @ jax.vmap(jg.spatial.quaternions.to_matrix)(turns)
            frame = corotational.beam_frame(own[:, :3] @ beam.axes.T, sections, beam.span)
            return corotational.beam_energy(beam.law, frame.deformation)

        at = problem.start()._replace(releases=loose)
        found = balance.exerted(problem, at, group, jnp.zeros(0, dtype=bool))
        return found.releases[0, which], jax.grad(energy)(loose)

    found, slope = both(structure, poses, jnp.array([0.2, -0.3, 0.01, 0.4]))
    np.testing.assert_allclose(found, slope, rtol=0, atol=1e-12 * np.abs(slope).max())


def test_mass_of_a_slewing_bar_pulls_at_both_ends():
    """At the axis a sixth, at the far end a third of m ω² L: the shares of linear shapes."""
    bar = js.Bar(jg.fem.Isotropic(YOUNG, 0.3, 7850.0), AREA)
    structure, poses = alone([[0, 0, 0], [2.0, 0, 0]], [js.Bars([(0, 1)], bar)], {0: "pinned"})

    @jax.jit
    def forces(structure, poses, rate):
        problem = members.problem(structure, poses, (js.Inertia((0.0, 0, 0), rate=rate),))
        at = problem.start()._replace(load_factor=jnp.ones(()))
        return balance.exerted(problem, at, problem.lines, jnp.ones(1, dtype=bool)).forces[0]

    whole = 7850.0 * AREA * 2.0 * 3.0**2 * 2.0
    expected = np.zeros((2, 6))
    expected[:, 0] = -whole / 6, -whole / 3
    np.testing.assert_allclose(forces(structure, poses, 3.0), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.soak
def test_guide_slides_far():
    """A ring on a rod, held by a spring at its side: k (l - a) s / l = F, l² = a² + s²."""
    frame = [[0, 0, 0], [0, 0, 1.0], [1.0, 0, 0]]
    links = js.RigidLinks([(3, 0), (3, 1), (3, 2)])
    ring = js.FramePart([*frame, [0, 0, 0.5]], links, {"pins": (0, 1, 2)})
    system = jg.mechanism.System(
        [ring.part("ring")],
        [jg.mechanism.Connection("rod", J.Guide(), "ground.rod", "ring.pins")],
        {"rod": frame, "side": [[1.5, 0, 0.5]]},
    )
    ties = {"spring": js.Tie(js.Spring(1e3), "ground.side", ("ring", 3))}
    structure = js.Structure(system, {"ring": ring}, ties=ties)
    load = js.NodalForce(("ring", 3), (0, 0, 800.0))
    solution = js.second_order(structure, jg.mechanism.start(system), load)
    pull = brentq(lambda s: 1e3 * (np.hypot(1.5, s) - 1.5) * s / np.hypot(1.5, s) - 800, 0.1, 10)
    np.testing.assert_allclose(solution.displacements[3, :3], [0, 0, pull], atol=1e-8)
    np.testing.assert_allclose(solution.tie("spring"), 1e3 * (np.hypot(1.5, pull) - 1.5), rtol=1e-8)
    # The rod holds what the spring pulls aside.
    aside = 1e3 * (np.hypot(1.5, pull) - 1.5) * 1.5 / np.hypot(1.5, pull)
    np.testing.assert_allclose(solution.connection("rod").force, [-aside, 0, 0], atol=1e-5)


@pytest.mark.long
def test_rigid_motion_leaves_no_force_and_forces_are_the_slope_of_the_energy():
    """Of single beams of both theories, turned far and bent much."""
    rng = np.random.default_rng(3)
    span = jnp.array([1.7, 0, 0])
    turn = jg.spatial.quaternions.to_matrix(
        jg.spatial.quaternions.exponential(jnp.array([0.4, 2.0, -1.0]))
    )

    @functools.partial(jax.jit, static_argnums=0)
    def forces(element, way, axes):
        law = corotational.beam_law(element, jnp.asarray(1.7), BOX)

        def energy(step):
            steps = step.reshape(2, 6)
            turns = jax.vmap(jg.spatial.quaternions.exponential)(steps[:, 3:])
            turned = jax.vmap(jg.spatial.quaternions.to_matrix)(turns) @ axes
            frame = corotational.beam_frame(way + steps[:, :3], turned, span)
            return corotational.beam_energy(law, frame.deformation)

        frame = corotational.beam_frame(way, axes, span)
        stress = corotational.beam_stress(law, frame.deformation)
        exerted = corotational.beam_forces(frame, stress, jnp.zeros(3))
        return exerted.reshape(12), jax.grad(energy)(jnp.zeros(12))

    for element in (jg.fem.elements.EulerBernoulli(), jg.fem.elements.Timoshenko()):
        middle = jnp.array([3.0, 2, 1])
        way = jnp.stack([middle, middle + turn @ span - span])
        rigid, _ = forces(element, way, jnp.stack([turn, turn]))
        bent = [jnp.asarray(0.2 * rng.standard_normal(3)) for _ in range(2)]
        bent = [
            jg.spatial.quaternions.to_matrix(jg.spatial.quaternions.exponential(b)) for b in bent
        ]
        moved = way.at[1].add(jnp.asarray(0.01 * rng.standard_normal(3)))
        found, slope = forces(element, moved, jnp.stack([turn @ b for b in bent]))
        np.testing.assert_allclose(found, slope, rtol=0, atol=1e-12 * np.abs(slope).max())
        np.testing.assert_allclose(rigid, 0.0, atol=1e-13 * np.abs(slope).max())


def crane_case():
    return crane_structure(reference_crane()), crane_poses(60, 0.3), "boom.tip"


def sprung_case():
    return *two_frames(J.Angle(0.7), transfer={"joint": js.Spring(1e4)}), "lower.tip"


@pytest.mark.long
@pytest.mark.parametrize("make", [sprung_case, pytest.param(crane_case, marks=pytest.mark.soak)])
def test_tangent_is_the_derivative_of_what_is_out_of_balance(make):
    """At random places, turned far; symmetric where nothing has been loaded yet."""
    structure, poses, place = make()
    loads = (
        js.NodalForce(place, (0, 1e3, -1e5), (1.0, 2, 3)),
        js.Inertia(rate=0.2, acceleration=0.05),
    )

    @jax.jit
    def both(structure, poses, key):
        problem = members.problem(structure, poses, loads)
        keys = jax.random.split(key, 3)
        count = problem.dofs + problem.releases
        step, direction = (0.3 * jax.random.normal(k, (count,)) for k in keys[:2])
        held = 1e5 * jax.random.normal(keys[2], (problem.rows,))
        taut = jnp.ones(len(problem.tension_only), dtype=bool)

        def at(size):
            moved = problem.moved(problem.start(), size * step)
            return moved._replace(load_factor=0.7 * size, multipliers=size * held)

        def out(size):
            return balance.residual(
                problem, problem.moved(at(jnp.ones(())), size * direction), taut
            )

        def tangents(size):
            here = balance.balance(problem, at(size), taut)
            return here.stiffness, here.slope

        stiffness, slope = jax.lax.map(tangents, jnp.array([0.0, 1.0]))
        by_size = jax.jvp(out, (0.0,), (1.0,))[1]
        return stiffness[0], (stiffness[1] @ direction, slope[1] @ direction), by_size

    first, found, expected = both(structure, poses, jax.random.key(1))
    for a, b in zip(found, expected, strict=True):
        if len(b):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())
    np.testing.assert_allclose(first, first.T, rtol=0, atol=1e-12 * np.abs(first).max())


def crane_loads(force, moment=(0.0, 0, 0), gravity=(0.0, 0, 0), **slewing):
    return [js.NodalForce("boom.tip", force, moment), js.Inertia(gravity, **slewing)]


@pytest.mark.soak
def test_turned_structure_has_the_same_forces():
    structure, loads = crane_structure(reference_crane()), crane_loads((0, 0, -2e4))
    forces = [
        js.second_order(structure, crane_poses(60, slew), loads).beam_forces for slew in (0.0, 1.1)
    ]
    np.testing.assert_allclose(*forces, rtol=0, atol=1e-7 * np.abs(forces[0]).max())


@pytest.mark.long
def test_crane_under_small_loads_is_the_linear_one():
    """Weight and slewing of masses, those of beams and of ropes, too."""
    structure, poses = crane_structure(reference_crane()), crane_poses(60, 0.3)
    loads = crane_loads(
        (0, 1e-3, -1.0), (0.1, 0.2, 0.3), (0, 0, -1e-4), rate=2e-4, acceleration=1e-7
    )
    linear = js.solve(structure, poses, loads)
    second = js.second_order(structure, poses, loads)
    for name in ("displacements", "beam_forces", "spring_forces", "multipliers"):
        a, b = (np.asarray(getattr(s, name)) for s in (second, linear))
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())
    for name, held in linear.reactions().items():
        np.testing.assert_allclose(second.reactions()[name].force, held.force, rtol=0, atol=1e-3)


@pytest.mark.long
def test_warning_of_linear_statics_of_the_crane():
    """By what second order changes: 1.7 % under a tenth of the load that must be warned of."""
    structure, poses = crane_structure(reference_crane()), crane_poses(60, 0.3)
    js.solve(structure, poses, crane_loads((0, -1e2, -1e3)))
    loads = crane_loads((0, -1e3, -1e4))
    with pytest.warns(UserWarning, match="most at node 4 of part 'boom'") as caught:
        linear = js.solve(structure, poses, loads).displacements[:, :3]
    second = js.second_order(structure, poses, loads).displacements[:, :3]
    off, largest = (jnp.linalg.norm(x, axis=1).max() for x in (second - linear, linear))
    np.testing.assert_allclose(said_of(caught), off / largest, rtol=0.25)
    with pytest.warns(UserWarning, match="most at node 4 of part 'boom'"):
        js.solve(js.condense(structure, loads), poses, loads)
