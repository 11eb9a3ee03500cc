"""Pictures that every motion of the gripper has."""

from collections.abc import Sequence

import jaxgrip as jg
from jaxgrip import viz
from jaxgrip.report import Run

# The running costs are pure numbers.
UNITS = {
    "control": "N m",
    "switching_function": "1/(N m)",
    "rate_costate": "s/(N m)",
    "multiplier": "s^2/rad",
}
CAPTIONS = {
    "controls": "the switching function of a torque is below zero at the upper limit, above at the "
    "lower one, and zero in between unless the torque's rate is at its limit",
    "multipliers": "multipliers of active constraints are not negative and do not grow; the "
    "costate jumps where a constraint becomes active",
    "rate_costates": "the costate of a torque is below zero while the torque rises at its largest "
    "rate, above zero while it falls at it, and zero at both ends",
    "hamiltonian": "the Hamiltonian is constant along an optimum",
    "checks": "every necessary condition, measured value over tolerance",
}


def draw_certificate(
    run: Run,
    key: str,
    solution: jg.ocp.Solution,
    title: str,
    drives: Sequence[str],
    joints: Sequence[int],
) -> None:
    """Record the pictures of a motion's certificate, with or without bounded joint rates."""
    bounded = solution.structure.active.shape[1] > 0
    sides = ("largest", "smallest") if bounded else ()
    figures = viz.certificate(
        solution,
        title,
        control_names=[f"drive {drive}" for drive in drives],
        constraint_names=[f"{side} rate of joint {joint}" for side in sides for joint in joints],
        units=UNITS,
    )
    for name, figure in figures.items():
        run.figure(f"{name}_{key}", figure, f"{title}: {CAPTIONS[name]}.")
