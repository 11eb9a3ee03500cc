"""Mechanisms from MJCF files, read by MuJoCo."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from jaxgrip.joints import Ball, Fixed, Frame, Gear
from jaxgrip.mechanism.loops._urdf import Robot
from jaxgrip.mechanism.loops.model import Coupling, Loop, Mechanism
from jaxgrip.rigid import Import, mjcf


def read_mjcf(path: str | Path, robot: str | None = None) -> Robot:
    """Mechanism of an MJCF file: hinges and slides as its tree, equalities as its loops.

    `connect` becomes a ball joint, `weld` a fixed one, `joint` a coupling. They are exact here and
    soft springs in MuJoCo. Coordinates are those of MuJoCo.

    **Arguments:** as `rigid.read_mjcf`.

    **Returns:** `Robot`, whose `file.ignored` names what is not used.

    **Raises:** as `rigid.read_mjcf`; also `ValueError` that names the file for free and ball joints
    and for equalities of joints that are not linear.
    """
    file = mjcf.read(path, robot)
    try:
        return _robot(file)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _robot(file: mjcf.File) -> Robot:
    robot = file.robot
    for name, kind in file.kinds.items():
        if kind in ("free", "spherical"):
            word = "free" if kind == "free" else "ball"
            raise ValueError(
                f"joint {name!r} is {word}; only hinges and slides are supported in a mechanism "
                "with loops."
            )
    carried = dict(zip(robot.joints, (robot.tree.names[i] for i in robot.tree.moving), strict=True))
    loops, couplings, said = [], [], []
    for each in file.equalities:
        if isinstance(each, mjcf.Closure):
            ends = [robot.body(link) for link in each.links]
            poses = zip(each.links, each.places, each.rotations, strict=True)
            frames = [_frame(robot, *pose) for pose in poses]
            loops.append(Loop(each.name, Fixed() if each.is_weld else Ball(), *ends, *frames))
            continue
        if not each.linear:
            raise ValueError(
                f"the equality {each.name!r} of joint {each.follower!r} is not linear in "
                "another joint."
            )
        # A constant is a gear of ratio zero with any other joint.
        others = [name for name in robot.joints if name != each.follower]
        leader = each.leader or next(iter(others), None)
        if leader is None:
            said.append(f"The equality {each.name!r} holds the only joint and is not used.")
            continue
        gear = Gear(each.ratio, each.offset)
        couplings.append(Coupling(each.name, gear, carried[leader], carried[each.follower]))
    robot = dataclasses.replace(robot, ignored=(*robot.ignored, *said))
    return Robot(Mechanism(robot.tree, loops, couplings), robot)


def _frame(robot: Import, link: str, place: np.ndarray, rotation: np.ndarray) -> Frame:
    """Frame on a link, relative to its body in the tree."""
    axes, origin = robot.place(link)
    return Frame(origin + axes @ jnp.asarray(place), axes @ jnp.asarray(rotation))
