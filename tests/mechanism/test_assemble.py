import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.mechanism import Poses, assemble, move, sweep
from jaxgrip.spatial import quaternions

from .conftest import CRANK, ROCKER, four_bar, slider_crank, turned

MAST_FOOT, BOOM_FOOT, FRAME_FOOT = (np.array(x) for x in ([0.5, 1.0], [1.5, 1.0], [-3.0, 1.0]))


def boom_angle(frame_angle, rope):
    """Closed form by the intersection of circles."""
    tip = FRAME_FOOT + 7.0 * jnp.stack([jnp.cos(frame_angle), jnp.sin(frame_angle)])
    way = tip - MAST_FOOT
    far = jnp.sqrt(way @ way)
    inner = (30.0**2 + far**2 - jg.models.crane.RODS**2) / (60.0 * far)
    mast = jnp.arctan2(way[1], way[0]) - jnp.arccos(inner)
    across = MAST_FOOT + 30.0 * jnp.stack([jnp.cos(mast), jnp.sin(mast)]) - BOOM_FOOT
    c = jnp.sqrt(across @ across)
    cosine = (48.0**2 + c**2 - rope**2) / (96.0 * c)
    return jnp.arctan2(across[1], across[0]) - jnp.arccos(cosine), mast


@pytest.mark.long
@pytest.mark.parametrize(
    ("rope", "boom"),
    [
        (57.603284965, 30.0),
        (50.571567121, 45.0),
        (42.930175867, 60.0),
        (34.976836600, 75.0),
        (31.287212201, 82.0),
    ],
)
def test_crane_takes_the_angles_of_the_table(crane, rope, boom):
    """Independent values (NumPy) of the closed form."""
    there = assemble(crane.system, {"luffing rope": rope}, start=crane)
    assert np.rad2deg(there.coordinate("boom hinge")) == pytest.approx(boom, abs=1e-8)
    assert np.rad2deg(there.coordinate("mast hinge")) == pytest.approx(120.0, abs=1e-8)
    assert np.abs(there.residual).max() < 1e-12
    assert not there.warnings()
    tip = there.point("boom.tip")
    expected = [1.5 + 48 * np.cos(np.deg2rad(boom)), 0, 2.5 + 48 * np.sin(np.deg2rad(boom))]
    np.testing.assert_allclose(tip, expected, atol=1e-7)


@pytest.mark.long
def test_crane_moves_to_other_angles(crane):
    """Independent values (NumPy): slew 40°, A-frame 140°, boom 35°."""
    drives = {
        "slew": np.deg2rad(40),
        "a-frame angle": np.deg2rad(140),
        "luffing rope": 52.589005825,
    }
    there = move(crane, drives)
    assert np.rad2deg(there.coordinate("mast hinge")) == pytest.approx(114.140939512, abs=1e-8)
    assert np.rad2deg(there.coordinate("boom hinge")) == pytest.approx(35.0, abs=1e-8)
    tip = there.point("boom.tip")
    assert np.rad2deg(np.arctan2(tip[1], tip[0])) == pytest.approx(40.0)


def angle_of(crane):
    def angle(drives):
        return assemble(crane.system, drives, start=crane).coordinate("boom hinge")

    return angle


@pytest.mark.long
def test_crane_sensitivities(crane):
    """Published at 45°, forward, reverse and against the closed form."""
    drives = {"slew": 0.0, "a-frame angle": 5 * np.pi / 6, "luffing rope": 50.571567121}
    drives = jax.tree.map(jnp.asarray, drives)
    reverse = jax.jit(jax.grad(angle_of(crane)))(drives)
    forward = jax.jit(jax.jacfwd(angle_of(crane)))(drives)
    closed = jax.grad(lambda d: boom_angle(d["a-frame angle"], d["luffing rope"])[0])(drives)
    published = {"slew": 0.0, "a-frame angle": 0.59507666, "luffing rope": -0.03549195}
    for name, value in published.items():
        assert float(reverse[name]) == pytest.approx(value, abs=1e-8)
        assert float(reverse[name]) == pytest.approx(float(closed[name]), abs=1e-11)
        assert float(forward[name]) == pytest.approx(float(closed[name]), abs=1e-11)


@pytest.mark.long
def test_crane_sensitivities_to_geometry(crane):
    """Closed form of the boom's length, central differences for all others."""

    def height(lengths):
        system = jg.models.reference_crane(**lengths)
        return assemble(system, start=crane).point("boom.tip")[2]

    lengths = {"boom": 48.0, "mast": 30.0, "a_frame": 7.0, "rods": jg.models.crane.RODS}
    lengths = jax.tree.map(jnp.asarray, lengths)
    slopes = jax.jit(jax.grad(height))(lengths)
    for name in lengths:
        h = 1e-2
        low, below, above, high = (
            height({**lengths, name: lengths[name] + k * h}) for k in (-2, -1, 1, 2)
        )
        central = (8 * (above - below) - (high - low)) / (12 * h)
        assert float(slopes[name]) == pytest.approx(float(central), abs=1e-8)


@pytest.mark.soak
def test_second_derivative_is_that_of_the_closed_form(crane):
    def angle(rope):
        return angle_of(crane)({"luffing rope": rope})

    rope = jnp.asarray(50.571567121)
    closed = jax.grad(jax.grad(lambda r: boom_angle(5 * np.pi / 6, r)[0]))(rope)
    assert float(jax.jit(jax.jacfwd(jax.grad(angle)))(rope)) == pytest.approx(
        float(closed), abs=1e-10
    )


@pytest.mark.long
def test_batches_do_not_recompile_and_agree_with_the_closed_form(crane):
    frame = np.deg2rad(np.linspace(140, 152, 40))
    rope = np.linspace(33.0, 55.0, 40)
    drives = {"a-frame angle": frame, "luffing rope": rope}
    there = sweep(crane, drives, along="independent")
    assert bool(jnp.all(there.succeeded))
    found = jax.vmap(lambda a: a.coordinate("boom hinge"))(there)
    closed = jax.vmap(lambda f, r: boom_angle(f, r)[0])(jnp.asarray(frame), jnp.asarray(rope))
    np.testing.assert_allclose(found, closed, atol=1e-12)


OPEN = [
    (60.0, 32.046511404, 100.536323137),
    (90.0, 26.950666885, 109.288411224),
    (150.0, 26.671275730, 132.383858392),
]


def bars(assembly):
    x, y = np.asarray(assembly.poses.rotation)[1:, :2, 0].T
    return np.rad2deg(np.arctan2(y, x))


@pytest.mark.long
@pytest.mark.parametrize(("theta", "coupler", "rocker"), OPEN)
def test_four_bar_of_the_table(linkage, theta, coupler, rocker):
    """Independent values (NumPy) of the closed form."""
    there = move(linkage, {"drive": np.deg2rad(theta)})
    np.testing.assert_allclose(bars(there), [coupler, rocker], atol=1e-8)


@pytest.mark.long
def test_redundant_four_bar_agrees():
    """Four hinges have three equations more than a planar linkage needs."""
    there = assemble(four_bar("HHHH"))
    np.testing.assert_allclose(bars(there), OPEN[0][1:], atol=1e-8)
    assert there.least_squares

    def rocker(angle):
        return assemble(four_bar("HHHH"), {"drive": angle}, start=there).coordinate("D")

    theta, coupler, follower = np.deg2rad(OPEN[0])
    slope = CRANK * np.sin(coupler - theta) / (ROCKER * np.sin(coupler - follower))
    assert float(jax.grad(rocker)(theta)) == pytest.approx(slope, abs=1e-9)


@pytest.mark.long
def test_slider_crank_of_the_table():
    """The closed form s = r cos θ + √(l² - r² sin² θ) and its derivative."""
    start = assemble(slider_crank())
    angles = jnp.deg2rad(jnp.array([0.0, 30, 60, 90, 120, 180]))
    ways = [4, 3.824065295, 3.372281323, 2.828427125, 2.372281323, 2]
    slopes = [0, -0.646385011, -1.016781076, -1, -0.715269731, 0]

    @jax.jit
    def path(angles):
        found = sweep(start, {"drive": angles})
        return jax.vmap(lambda a: a.coordinate("guide"))(found)

    found, slope = jax.jvp(path, (angles,), (jnp.ones(6),))
    np.testing.assert_allclose(found, ways, atol=1e-9)
    np.testing.assert_allclose(slope, slopes, atol=1e-9)
    reverse = jax.grad(lambda angles: path(angles).sum())(angles)
    np.testing.assert_allclose(reverse, slope, atol=1e-12)


def test_whole_model_turned_and_shifted_has_the_same_relative_poses(linkage):
    turn = turned(50.0, (0.6, 0.0, 0.8))
    matrix, shift = quaternions.to_matrix(turn), jnp.array([1.0, -2.0, 3.0])
    system = linkage.system
    ground = {name: points @ matrix.T + shift[None] for name, points in system.ground.items()}
    moved = jg.mechanism.System(system.parts, system.connections, ground)
    start = Poses(
        linkage.poses.position @ matrix.T + shift[None],
        jax.vmap(lambda q: quaternions.product(turn, q))(linkage.poses.quaternion),
    )
    there = assemble(moved, {"drive": np.deg2rad(65)}, start=start)
    here = assemble(system, {"drive": np.deg2rad(65)}, start=linkage)
    np.testing.assert_allclose(
        there.poses.position, here.poses.position @ matrix.T + shift[None], atol=1e-12
    )
    signs = Poses(linkage.poses.position, -linkage.poses.quaternion)
    other = assemble(system, {"drive": np.deg2rad(65)}, start=signs)
    np.testing.assert_allclose(other.poses.rotation, here.poses.rotation, atol=1e-12)


def test_order_of_parts_and_connections_does_not_matter(linkage):
    system = linkage.system
    other = jg.mechanism.System(system.parts[::-1], system.connections[::-1], system.ground)
    there = assemble(other)
    np.testing.assert_allclose(there.poses.position[::-1], linkage.poses.position, atol=1e-12)


def test_start_ten_degrees_off_takes_few_iterations():
    """Four iterations from random starts 10° off, as in an independent program (NumPy)."""
    system = four_bar()
    at = assemble(system).poses
    rng = np.random.default_rng(3)
    for _ in range(5):
        axes = rng.normal(size=(3, 3))
        axes /= np.linalg.norm(axes, axis=1)[:, None]
        step = np.concatenate([np.zeros((3, 3)), np.deg2rad(10) * axes], axis=1)
        there = assemble(system, start=jg.mechanism.moved(at, jnp.asarray(step)))
        assert int(there.iterations) <= 6
        np.testing.assert_allclose(there.poses.position, at.position, atol=1e-12)
