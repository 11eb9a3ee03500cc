import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.joints import Angle, Ball, Clamp, Guide, Hinge, Sleeve
from jaxgrip.mechanism import Connection, Part, System
from jaxgrip.spatial import quaternions

GROUND, COUPLER, ROCKER, CRANK = 3.5, 3.0, 2.5, 1.0


def upright(x=0.0):
    """Axis along z through (x, 0, 0) and a direction along x."""
    return np.array([x, 0.0, 0.0]) + np.array([[0.0, 0, 0], [0, 0, 1], [1, 0, 0]])


def turned(degrees, axis=(0.0, 0.0, 1.0)):
    return quaternions.exponential(jnp.deg2rad(degrees) * jnp.asarray(axis, dtype=float))


def bar(name, length, foot, degrees):
    return Part(name, {"in": upright(), "out": upright(length)}, foot, turned(degrees))


def four_bar(kinds="HHBS", drive=60.0, *, driven="crank", lengths=(CRANK, COUPLER, ROCKER)):
    """Four-bar of 1, 3, 2.5 and 3.5 m near its open branch at 60°; `kinds`: joints at A to D."""
    make = {"H": Hinge, "B": Ball, "S": Sleeve}
    a, b, c, d = (make[kind]() for kind in kinds)
    crank, coupler, rocker = lengths
    theta = np.deg2rad(60.0)
    parts = [
        bar("crank", crank, (0, 0, 0), 60.0),
        bar("coupler", coupler, (crank * np.cos(theta), crank * np.sin(theta), 0), 30.0),
        bar("rocker", rocker, (GROUND, 0, 0), 100.0),
    ]
    connections = [
        Connection("A", a, "ground.A", "crank.in"),
        Connection("B", b, "crank.out", "coupler.in"),
        Connection("C", c, "coupler.out", "rocker.out"),
        Connection("D", d, "ground.D", "rocker.in"),
    ]
    if drive is not None:
        end = {"crank": "A", "rocker": "D"}[driven]
        connections.append(
            Connection("drive", Angle(np.deg2rad(drive)), f"ground.{end}", f"{driven}.in")
        )
    return System(parts, connections, {"A": upright(), "D": upright(GROUND)})


def slider_crank(theta=0.5):
    """Slider-crank: radius 1, rod 3, slider along x."""
    along = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 1]])
    parts = [
        bar("crank", 1.0, (0, 0, 0), 30.0),
        bar("rod", 3.0, (0.9, 0.5, 0), -10.0),
        Part("slider", {"pin": upright(), "way": along}, (3.8, 0, 0)),
    ]
    connections = [
        Connection("crank pin", Hinge(), "ground.main", "crank.in"),
        Connection("big end", Ball(), "crank.out", "rod.in"),
        Connection("small end", Sleeve(), "rod.out", "slider.pin"),
        Connection("guide", Guide(), "ground.way", "slider.way"),
        Connection("drive", Angle(theta), "ground.main", "crank.in"),
    ]
    return System(parts, connections, {"main": upright(), "way": along})


def superlift(low, high, *, angles=1):
    """Closed chain of Webhofer 2005, fig. 7.5; without `high` the rods end free."""
    crane = jg.models.reference_crane()
    parts = [
        Part("superstructure", crane.parts[1].attachments, crane.parts[1].position),
        Part("a-frame", {"foot": _at(0.0), "tip": _at(7.0)}, *_pose(crane, "a-frame")),
        Part(
            "rods",
            {"a-frame end": _at(0.0), "mast end": _at(jg.models.crane.RODS)},
            *_pose(crane, "rods"),
        ),
        Part("mast", {"foot": _at(0.0), "tip": _at(30.0)}, *_pose(crane, "mast")),
    ]
    feet = {"a-frame": "a-frame foot", "mast": "mast foot"}
    connections = [
        Connection("clamp", Clamp(), "superstructure"),
        Connection("a-frame hinge", Hinge(), "superstructure.a-frame foot", "a-frame.foot"),
        Connection("mast hinge", Hinge(), "superstructure.mast foot", "mast.foot"),
    ]
    connections += [
        Connection(f"{name} angle", Angle(angle), f"superstructure.{feet[name]}", f"{name}.foot")
        for name, angle in (("a-frame", 5 * np.pi / 6), ("mast", 2 * np.pi / 3))[:angles]
    ]
    connections.append(Connection("low", low, "a-frame.tip", "rods.a-frame end"))
    if high is not None:
        connections.append(Connection("high", high, "mast.tip", "rods.mast end"))
    return System(parts, connections)


def _at(x):
    return np.array([x, 0.0, 0.0]) + np.array([[0.0, 1, 0], [0, -1, 0], [1, 1, 0]])


def _pose(system, name):
    """Position of a part when the A-frame is at 150° and the mast at 120°."""
    part = system.parts[system.part(name)]
    if name != "rods":
        return part.position, part.quaternion
    tip = np.array([0.5 - 15.0, 0.0, 2.5 + 15.0 * np.sqrt(3)]) - np.asarray(part.position)
    return part.position, turned(np.rad2deg(np.arctan2(tip[2], tip[0])), (0.0, -1.0, 0.0))


@pytest.fixture(scope="session")
def crane():
    return jg.mechanism.assemble(jg.models.reference_crane())


@pytest.fixture(scope="session")
def linkage():
    return jg.mechanism.assemble(four_bar())
