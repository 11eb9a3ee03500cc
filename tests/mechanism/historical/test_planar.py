"""The closed forms of Gössner 2017, computed independently of this package."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg

planar = jg.mechanism.historical.planar
LENGTHS = (45.0, 120.0, 130.0, 200.0)
LINKAGE = planar.FourBar(*LENGTHS)
DRAWING = planar.FourBar(*LENGTHS, point=(70.0, 50.0))
SIXTY = np.deg2rad(60.0)
TABLE = np.array(
    [
        [0, 54.64583, 131.16187, 305.35417, 228.83813],
        [60, 33.19956, 126.36897, 302.03417, 208.86476],
        [90, 23.86806, 133.97357, 310.77117, 200.66566],
        [180, 11.95341, 168.97809, 348.04659, 191.02191],
        [270, 49.22883, 159.33434, 336.13194, 226.02643],
    ]
)


def turned(degrees):
    return np.rad2deg(np.asarray(degrees)) % 360


def loop(linkage, phi, branch):
    theta, psi = planar.position(linkage, phi, branch)
    a, b, c, d = linkage.lengths
    x = a * jnp.cos(phi) + b * jnp.cos(theta) - c * jnp.cos(psi) - d
    y = a * jnp.sin(phi) + b * jnp.sin(theta) - c * jnp.sin(psi)
    return jnp.stack([x, y])


def test_angles_of_both_branches():
    phi = jnp.deg2rad(jnp.asarray(TABLE[:, 0]))
    for branch, columns in ((1, (1, 2)), (-1, (3, 4))):
        found = jax.vmap(lambda x, s=branch: jnp.stack(planar.position(LINKAGE, x, s)))(phi)
        np.testing.assert_allclose(turned(found), TABLE[:, columns], rtol=0, atol=5.1e-6)


def test_loop_closes_over_a_full_turn():
    phi = jnp.linspace(0, 2 * jnp.pi, 73)
    for branch in (1, -1):
        gap = jax.vmap(lambda x, s=branch: loop(LINKAGE, x, s))(phi)
        assert jnp.max(jnp.abs(gap)) < 1e-12 * 200


def test_limits_of_the_rocker():
    centres = planar.dead_centres(LINKAGE)
    # Law of cosines in the triangles whose side is a + b or b - a.
    phi = np.arccos([0.7625, 0.9575]) + np.array([0, np.pi])
    np.testing.assert_allclose(centres.phi, phi, rtol=0, atol=1e-14)
    np.testing.assert_allclose(turned(centres.psi), [124.79717, 170.42121], atol=5.1e-6)
    # There the rocker stands still, on either branch and also with a crank longer than the coupler.
    for lengths in (LENGTHS, (120.0, 45.0, 200.0, 170.0)):
        linkage = planar.FourBar(*lengths)
        for branch in (1, -1):
            centres = planar.dead_centres(linkage, branch)
            for phi, psi in zip(*centres, strict=True):
                at = planar.position(linkage, phi, branch)
                assert abs(np.sin((at.psi - psi) / 2)) < 1e-7
                assert abs(np.sin(at.theta - phi)) < 1e-7


def test_cognates_at_sixty_degrees():
    first, second = planar.cognates(DRAWING)
    (crank, side), (crank2, side2) = planar.cognate_cranks(DRAWING, SIXTY)
    np.testing.assert_allclose(
        planar.joints(DRAWING, SIXTY).C, [53.695958, 119.138544], rtol=0, atol=5.1e-7
    )
    one, two = planar.joints(first, crank, side), planar.joints(second, crank2, side2)
    np.testing.assert_allclose(one.B, [28.082982, 112.275568], rtol=0, atol=5.1e-7)
    np.testing.assert_allclose(one.B0, [116.666667, 83.333333], rtol=0, atol=5.1e-7)
    np.testing.assert_allclose(two.B, [142.279643, 90.196310], rtol=0, atol=5.1e-7)
    np.testing.assert_allclose(two.B0, one.B0, rtol=0, atol=1e-12 * 200)
    np.testing.assert_allclose(
        first.lengths, [86.023253, 32.258720, 93.191857, 143.372088], rtol=0, atol=5.1e-7
    )
    np.testing.assert_allclose(
        second.lengths, [70.710678, 76.603235, 26.516504, 117.851130], rtol=0, atol=5.1e-7
    )
    # C + C0 - C1 = C2
    C = planar.joints(DRAWING, SIXTY).C
    np.testing.assert_allclose(C + one.B0 - one.B, two.B, rtol=0, atol=1e-12 * 200)


def test_cognates_draw_the_same_curve():
    """The position solver of each cognate, independent of the linkage."""
    linkage = planar.FourBar(
        *LENGTHS, point=(-30.0, 80.0), origin=(12.0, -7.0), direction=np.deg2rad(25.0)
    )
    first, second = planar.cognates(linkage)

    def drawn(phi):
        (crank, side), (crank2, side2) = planar.cognate_cranks(linkage, phi)
        return jnp.stack(
            [
                planar.joints(linkage, phi).C,
                planar.joints(first, crank, side).C,
                planar.joints(second, crank2, side2).C,
            ]
        )

    points = jax.vmap(drawn)(jnp.linspace(0.01, 2 * jnp.pi, 90))
    assert jnp.max(jnp.ptp(points[:, 0], axis=0)) > 50
    np.testing.assert_allclose(points[:, 1], points[:, 0], rtol=0, atol=1e-12 * 200)
    np.testing.assert_allclose(points[:, 2], points[:, 0], rtol=0, atol=1e-12 * 200)


def test_freudenstein():
    phi = jnp.deg2rad(jnp.array([40.0, 70.0, 110.0]))
    psi = jax.vmap(lambda x: planar.position(LINKAGE, x).psi)(phi)
    np.testing.assert_allclose(turned(psi), [124.79759, 128.28535, 141.52150], rtol=0, atol=5.1e-6)
    found = planar.freudenstein(phi, psi, 200.0)
    np.testing.assert_allclose(found.linkage.lengths, LENGTHS, rtol=1e-10)
    np.testing.assert_allclose(found.condition, 101, atol=0.5)
    np.testing.assert_array_equal(found.branch, 1)
    assert found.warnings() == ()
    a, b, c, d = found.linkage.lengths
    ratios = d / a, d / c, (a**2 - b**2 + c**2 + d**2) / (2 * a * c)
    np.testing.assert_allclose(ratios, [4.4444444, 1.5384615, 3.8055556], rtol=0, atol=5.1e-8)


def test_freudenstein_on_two_branches_warns():
    phi = jnp.deg2rad(jnp.array([40.0, 70.0, 110.0]))
    branch = jnp.array([1.0, -1.0, 1.0])
    psi = jax.vmap(lambda x, s: planar.position(LINKAGE, x, s).psi)(phi, branch)
    found = planar.freudenstein(phi, psi, 200.0)
    np.testing.assert_allclose(found.linkage.lengths, LENGTHS, rtol=1e-9)
    np.testing.assert_array_equal(found.branch, branch)
    assert found.warnings() == (
        "The three positions are on the branches +1, -1, +1: the linkage reaches all of them only "
        "if it is taken apart in between.",
    )


def test_volmer():
    phi = jnp.deg2rad(jnp.array([40.0, 70.0, 110.0]))
    psi = jax.vmap(lambda x: planar.position(LINKAGE, x).psi)(phi)
    found = planar.volmer(phi, psi[1:] - psi[0], 45.0, 200.0)
    np.testing.assert_allclose(found.linkage.lengths, LENGTHS, rtol=1e-10)
    np.testing.assert_array_equal(found.branch, 1)
    np.testing.assert_allclose(
        planar.joints(found.linkage, phi[0]).B, [125.811729, 106.752520], rtol=0, atol=5.1e-7
    )


def test_inflection():
    points = planar.inflection(LINKAGE, SIXTY)
    np.testing.assert_allclose(points.pole, [87.891586, 152.232692], rtol=0, atol=5.1e-7)
    np.testing.assert_allclose(points.on_A, [-167.547089, -290.200070], rtol=0, atol=5.1e-7)
    np.testing.assert_allclose(points.on_B, [138.821945, 83.074050], rtol=0, atol=5.1e-7)
    np.testing.assert_allclose(
        points.inflection_pole, [-279.936978, -225.311738], rtol=0, atol=5.1e-7
    )
    size = jnp.linalg.norm(points.inflection_pole - points.pole)
    np.testing.assert_allclose(size, 527.103072, rtol=0, atol=5.1e-7)


@pytest.mark.parametrize("branch", [1, -1])
def test_paths_are_straight_at_inflection_points(branch):
    """Curvature by derivatives of the position solver, which the construction does not use."""
    placed = {"origin": (3.0, -4.0), "direction": 0.4}
    linkage = planar.FourBar(*LENGTHS, **placed)
    points = planar.inflection(linkage, SIXTY, branch)

    def path(point):
        at = planar.joints(linkage, SIXTY, branch)
        along = (at.B - at.A) / linkage.coupler
        left = jnp.stack([-along[1], along[0]])
        arm = jnp.stack([(point - at.A) @ along, (point - at.A) @ left])
        moved = planar.FourBar(*LENGTHS, point=arm, **placed)

        def draw(phi):
            return planar.joints(moved, phi, branch).C

        np.testing.assert_allclose(draw(SIXTY), point, rtol=0, atol=1e-10)
        return jax.jacfwd(draw), jax.jacfwd(jax.jacfwd(draw))

    for point in points[1:]:
        velocity, acceleration = (f(SIXTY) for f in path(point))
        bend = velocity[0] * acceleration[1] - velocity[1] * acceleration[0]
        assert abs(bend) / jnp.linalg.norm(velocity) ** 3 < 1e-12
    assert jnp.linalg.norm(path(points.pole)[0](SIXTY)) < 1e-11


@pytest.mark.parametrize(
    ("lengths", "kind"),
    [
        ((45.0, 120.0, 130.0, 200.0), "crank-rocker"),
        ((130.0, 120.0, 45.0, 200.0), "rocker-crank"),
        ((120.0, 130.0, 200.0, 45.0), "double-crank"),
        ((120.0, 45.0, 130.0, 200.0), "double-rocker"),
        ((100.0, 120.0, 130.0, 200.0), "triple-rocker"),
        ((100.0, 200.0, 100.0, 200.0), "change-point"),
    ],
)
def test_grashof(lengths, kind):
    """By trial: a link can rotate fully if the linkage driven by it closes at every angle."""
    linkage = planar.FourBar(*lengths)
    assert planar.grashof(linkage) == kind
    a, b, c, d = lengths
    phi = jnp.linspace(0, 2 * jnp.pi, 361) + 1e-3

    def turns(*lengths):
        # Traced numbers give NaN instead of an error.
        driven = planar.FourBar(*lengths)
        return bool(jnp.all(jnp.isfinite(jax.vmap(lambda x: planar.position(driven, x).psi)(phi))))

    full = {"crank-rocker": (1, 0), "rocker-crank": (0, 1), "double-crank": (1, 1)}
    if kind != "change-point":
        assert (turns(a, b, c, d), turns(c, b, a, d)) == full.get(kind, (0, 0))
        assert turns(b, a, c, d) == (kind in ("double-crank", "double-rocker"))


def test_transmission_angle():
    """Law of cosines in the triangle of coupler and rocker."""
    a, b, c, d = LENGTHS
    for phi in (0.3, 2.0, 4.0):
        square = a**2 + d**2 - 2 * a * d * np.cos(phi)
        np.testing.assert_allclose(
            np.cos(planar.transmission_angle(LINKAGE, phi)),
            (b**2 + c**2 - square) / (2 * b * c),
            rtol=0,
            atol=1e-14,
        )


def test_chebyshev_spacing():
    half = np.sqrt(3) / 2
    np.testing.assert_allclose(planar.chebyshev_spacing(1.0, 3.0), [2 - half, 2.0, 2 + half])


@pytest.mark.long
def test_gradients():
    lengths = jnp.array(LENGTHS)

    @jax.jit
    def path(lengths, phi):
        linkage = planar.FourBar(*lengths, point=(70.0, 50.0))
        return planar.joints(linkage, phi).C / 100

    check_grads(path, (lengths, jnp.asarray(1.1)), order=1, modes=("fwd", "rev"), rtol=1e-5)

    @jax.jit
    def synthesis(phi, psi):
        return jnp.stack(planar.freudenstein(phi, psi, 2.0).linkage.lengths)

    phi = jnp.deg2rad(jnp.array([40.0, 70.0, 110.0]))
    psi = jnp.deg2rad(jnp.array([125.0, 128.0, 142.0]))
    check_grads(synthesis, (phi, psi), order=1, modes=("fwd", "rev"), rtol=1e-6, eps=1e-6)
    check_grads(
        jax.jit(lambda phi, swing: jnp.stack(planar.volmer(phi, swing, 1.0, 2.0).linkage.lengths)),
        (phi, psi[1:] - psi[0]),
        order=1,
        modes=("fwd", "rev"),
        rtol=1e-6,
        eps=1e-6,
    )
    check_grads(
        jax.jit(lambda n: jnp.concatenate(planar.inflection(planar.FourBar(*n), SIXTY)) / 100),
        (lengths,),
        order=1,
        modes=("fwd", "rev"),
        rtol=1e-5,
    )


def test_many_lengths_without_compiling_again():
    draw = jax.jit(lambda n, phi: planar.joints(planar.FourBar(*n), phi).B)
    for scale in (1.0, 1.1, 1.2):
        draw(scale * jnp.array(LENGTHS), jnp.asarray(1.0))
    assert draw._cache_size() == 1


def test_what_does_not_close():
    def angle(phi, lengths):
        return planar.position(planar.FourBar(*lengths), phi).psi

    lengths = jnp.array([100.0, 120.0, 130.0, 200.0])
    found = jax.vmap(lambda phi: jax.value_and_grad(angle)(phi, lengths))(jnp.array([0.5, 3.1]))
    assert jnp.isfinite(found[0][0])
    assert jnp.isfinite(found[1][0])
    assert jnp.isnan(found[0][1])
    assert jnp.isnan(found[1][1])
    # The limit of the crank, coupler and rocker on a line: the slope is infinite.
    limit = jnp.arccos((100.0**2 + 200.0**2 - 250.0**2) / (2 * 100.0 * 200.0))
    assert not abs(jax.grad(angle)(limit, lengths)) < 1e6
    with pytest.raises(ValueError, match=r"not close at the crank angle 177\.617°: A and B0 are"):
        angle(3.1, lengths)
    with pytest.raises(
        ValueError, match="with the frame 500 never closes: the other lengths have the sum 295"
    ):
        planar.FourBar(45.0, 120.0, 130.0, 500.0)
    with pytest.raises(ValueError, match="The rocker of a four-bar is -1; it must be positive"):
        planar.FourBar(45.0, 120.0, -1.0, 200.0)
    with pytest.raises(ValueError, match="this double-crank four-bar has no two limits"):
        planar.dead_centres(planar.FourBar(120.0, 130.0, 200.0, 45.0))
    with pytest.raises(ValueError, match="The coupler point is at A and draws an arc"):
        planar.cognates(LINKAGE)
    with pytest.raises(ValueError, match="The coupler point is at B and draws an arc"):
        planar.cognates(planar.FourBar(*LENGTHS, point=(120.0, 0.0)))
    with pytest.raises(ValueError, match="Crank and rocker are parallel"):
        planar.inflection(planar.FourBar(100.0, 200.0, 100.0, 200.0), 1.0)


def test_synthesis_that_fails():
    phi = jnp.deg2rad(jnp.array([40.0, 70.0, 110.0]))
    with pytest.raises(ValueError, match="Two of the three positions are the same"):
        planar.freudenstein(phi[jnp.array([0, 1, 1])], phi[jnp.array([0, 2, 2])])
    psi = jax.vmap(lambda x: planar.position(LINKAGE, x).psi)(phi)
    with pytest.raises(ValueError, match="The crank has the length -45: it points away"):
        planar.freudenstein(phi + np.pi, psi, 200.0)
    with pytest.raises(ValueError, match="The rocker has the length -130: it points away"):
        planar.freudenstein(phi, psi + np.pi, 200.0)
    with pytest.raises(ValueError, match="The crank pins, seen from the rocker, are on a line"):
        planar.volmer(phi[jnp.array([0, 1, 1])], jnp.array([0.3, 0.3]), 45.0, 200.0)
