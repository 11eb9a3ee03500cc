import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.joints import Angle, Distance, Gear, Guide, Hinge, Travel
from jaxgrip.mechanism import (
    RESULTS,
    Connection,
    Part,
    StepFailed,
    System,
    acceleration,
    assemble,
    closures,
    move,
    sweep,
    velocity,
)

from .conftest import COUPLER, CRANK, GROUND, ROCKER, four_bar, slider_crank, upright


@pytest.mark.long
def test_sweep_keeps_the_branch_over_a_whole_turn(linkage):
    """Closed form of the open branch, ten degrees a step."""
    angles = np.deg2rad(60 + np.arange(0, 361, 10.0))
    path = sweep(linkage, {"drive": angles})
    assert bool(jnp.all(path.succeeded))
    assert np.all(np.asarray(path.orientation) == float(linkage.orientation))
    way = np.array([GROUND, 0]) - CRANK * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    far = np.linalg.norm(way, axis=1)
    inner = (ROCKER**2 + far**2 - COUPLER**2) / (2 * ROCKER * far)
    rocker = np.arctan2(way[:, 1], way[:, 0]) + np.pi - np.arccos(inner)
    x, y = np.asarray(path.poses.quaternion)[:, 2, 0], np.asarray(path.poses.quaternion)[:, 2, 3]
    np.testing.assert_allclose(np.cos(2 * np.arctan2(y, x)), np.cos(rocker), atol=1e-11)
    np.testing.assert_allclose(np.cos(path.coordinate("D")), np.cos(rocker), atol=1e-11)
    tip = CRANK * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    np.testing.assert_allclose(path.point("crank.out"), tip, atol=1e-11)
    assert path.warnings() == []
    once = sweep(linkage, {"drive": angles[:4]}, along="independent")
    np.testing.assert_allclose(once.poses.position, path.poses.position[:4], atol=1e-11)


@pytest.mark.long
def test_gears_count_full_turns():
    """A wheel drives another at 0.3 of its angle, a rack at 50 mm per radian, for three turns."""
    axis = [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    shifted = [[3.0, 0.0, 0.0], [3.0, 0.0, 1.0], [4.0, 0.0, 0.0]]
    start = assemble(
        System(
            [Part(name, {"axle": axis}) for name in ("pinion", "wheel", "rack")],
            [
                Connection("pinion hinge", Hinge(), "ground.near", "pinion.axle"),
                Connection("wheel hinge", Hinge(), "ground.far", "wheel.axle"),
                Connection("guide", Guide(), "ground.near", "rack.axle"),
                Connection("drive", Angle(0.0), "ground.near", "pinion.axle"),
                Connection("teeth", Gear(0.3), "pinion hinge", "wheel hinge"),
                Connection("rack", Gear(0.05, 0.1), "pinion hinge", "guide"),
            ],
            {"near": axis, "far": shifted},
        )
    )

    def there(drive):
        end = move(start, {"drive": drive}, throw=False)
        return jnp.stack([end.coordinate("wheel hinge"), end.coordinate("guide")])

    drives = jnp.array([20.0, -3.0])
    along = jax.jit(jax.vmap(lambda drive: jax.jvp(there, (drive,), (jnp.ones(()),))))
    found, slopes = along(drives)
    wheel = [6.0 - 2 * np.pi, -0.9]
    np.testing.assert_allclose(found, np.transpose([wheel, [1.1, -0.05]]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(slopes, [[0.3, 0.05]] * 2, rtol=0, atol=1e-13)


@pytest.mark.long
def test_dead_point_ends_the_way():
    """A four-bar driven by the rocker stops where crank and coupler are folded in line."""
    start = assemble(four_bar(drive=100.536323137, driven="rocker"))
    cosine = (GROUND**2 + ROCKER**2 - (COUPLER - CRANK) ** 2) / (2 * GROUND * ROCKER)
    limit = np.pi - np.arccos(cosine)
    with pytest.raises(StepFailed, match=r"'drive' stops at .*° before .*asks for") as caught:
        move(start, {"drive": limit + 0.2})
    last = caught.value.assembly
    reached = float(last.system.parameters["drive"])
    assert limit - 0.01 < reached < limit
    np.testing.assert_allclose(last.residual, 0, atol=1e-10)
    path = sweep(start, {"drive": np.array([1.8, limit + 0.2, 1.9])})
    assert path.succeeded.tolist() == [True, False, True]
    assert path.orientation.tolist() == [float(start.orientation)] * 3
    near = move(start, {"drive": limit - 1e-9})
    assert float(near.smallest_singular_value) < 1e-4


@pytest.mark.long
def test_a_way_that_ends_is_told_in_degrees():
    """A crank of 1 m on a rod of 0.5 m to a slider on its line stops at 30 degrees."""
    along = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 1]])
    parts = [
        Part("crank", {"in": upright(), "out": upright(1.0)}),
        Part("slider", {"way": along}, (1.5, 0, 0)),
    ]
    connections = [
        Connection("pin", Hinge(), "ground.main", "crank.in"),
        Connection("guide", Guide(), "ground.way", "slider.way"),
        Connection("rod", Distance(0.5), "crank.out", "slider.way"),
        Connection("drive", Angle(0.0), "ground.main", "crank.in"),
    ]
    start = assemble(System(parts, connections, {"main": upright(), "way": along}))
    with pytest.raises(StepFailed, match=r"stops at 30° before 60°"):
        move(start, {"drive": np.pi / 3})


@pytest.mark.long
def test_warning_in_a_dead_point():
    """At the end of its stroke a slider cannot rotate the crank."""
    system = slider_crank()
    free = [c for c in system.connections if c.name != "drive"]
    push = Connection("drive", Travel(3.99999), "ground.way", "slider.way")
    driven = System(system.parts, [*free, push], system.ground)
    middle = assemble(driven, {"drive": 3.6})
    assert not middle.warnings()
    end = move(middle, {"drive": 4 - 1e-11})
    assert any("dead point" in text for text in end.warnings())


@pytest.mark.long
def test_closures_of_the_four_bar(linkage):
    """Open and crossed."""
    found = closures(linkage.system, key=jax.random.key(1), starts=32)
    assert len(found) == 2
    np.testing.assert_allclose(found[0].poses.position, linkage.poses.position, atol=1e-9)
    assert float(found[0].orientation) == -float(found[1].orientation)
    path = sweep(found[1], {"drive": np.deg2rad([70.0, 80, 90])})
    assert bool(jnp.all(path.succeeded))
    with pytest.raises(ValueError, match="leave 1 degree of freedom"):
        closures(four_bar(drive=None), key=jax.random.key(1), starts=4)


@pytest.mark.long
def test_other_branch_is_no_success(linkage):
    crossed = closures(linkage.system, key=jax.random.key(1), starts=32)[1]
    strange = eqx.tree_at(lambda a: a.orientation, crossed, linkage.orientation)
    found = sweep(strange, {"drive": np.deg2rad([61.0])}, along="independent")
    assert (found.result == RESULTS.other_branch).tolist() == [True]


@pytest.mark.long
def test_velocity_and_acceleration_of_the_slider():
    """Closed form s = r cos θ + sqrt(l² - r² sin² θ)."""
    here = assemble(slider_crank(0.7))

    def way(t):
        theta = 0.7 + 2.0 * t + 1.5 * t**2
        return jnp.cos(theta) + jnp.sqrt(9 - jnp.sin(theta) ** 2)

    speed = velocity(here, {"drive": 2.0})
    assert float(speed.linear[2, 0]) == pytest.approx(float(jax.grad(way)(0.0)), abs=1e-11)
    np.testing.assert_allclose(speed.angular[0], [0, 0, 2.0], atol=1e-12)
    change = acceleration(here, {"drive": 2.0}, {"drive": 3.0})
    expected = float(jax.grad(jax.grad(way))(0.0))
    assert float(change.linear[2, 0]) == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(change.angular[0], [0, 0, 3.0], atol=1e-11)


@pytest.mark.long
def test_slewing_is_a_circle(crane):
    change = acceleration(crane, {"slew": 0.5})
    inward = -0.25 * np.asarray(crane.poses.position) * np.array([1.0, 1.0, 0.0])
    np.testing.assert_allclose(change.linear, inward, atol=1e-10)


def test_acceleration_of_a_crank():
    """Its origin is on a circle about the pin: r α across and r ω² inwards."""
    crank = Part("crank", {"in": upright(-0.8)}, (0.8, 0.0, 0.0))
    connections = [
        Connection("pin", Hinge(), "ground.main", "crank.in"),
        Connection("drive", Angle(0.3), "ground.main", "crank.in"),
    ]
    here = assemble(System([crank], connections, {"main": upright()}))
    change = acceleration(here, {"drive": 2.0}, {"drive": 3.0})
    along, across = ((np.cos(x), np.sin(x), 0.0) for x in (0.3, 0.3 + np.pi / 2))
    expected = 0.8 * (3.0 * np.array(across) - 2.0**2 * np.array(along))
    np.testing.assert_allclose(change.linear[0], expected, atol=1e-13)
    np.testing.assert_allclose(change.angular[0], [0, 0, 3.0], atol=1e-13)
