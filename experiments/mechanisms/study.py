"""Linkages: kinematics from parts and joints, and motion with closed loops.

Published values: Andrews' squeezing mechanism from Mazzia 2008; linkages from Gössner 2017 and
Kracht 2017, with numbers of independent programs.
"""

from experiments.mechanisms import kinematics, motions
from jaxgrip import config
from jaxgrip.report import Run


class Config(config.Config):
    """All mechanisms."""


def run(settings: Config, run: Run) -> None:
    """Assemble and move them, and record numbers and pictures."""
    for what, look in (
        ("Four-bar, slider-crank, double four-bar", kinematics.study),
        ("Andrews' squeezer", motions.squeezer),
        ("Energy of linkages", motions.energies),
        ("Gripper with four-bar fingers", motions.finger),
        ("Rod on a universal joint", motions.rods),
    ):
        with run.stage(what):
            look(run)
