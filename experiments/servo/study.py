"""Servo AX-12: friction, soft gear, test rigs, and identification of its parameters.

The servo: Kubisch 2008. It prints the parameters it identified but neither measured data nor
curves; reference values are those of an independent program for these parameters, and the
identification is a twin experiment.

Takes up to nine minutes on two cores, most of them to fit 20 noisy experiments and an exact one.
"""

from typing import Annotated

from pydantic import Field

from experiments.servo import rigs, twin
from jaxgrip import config
from jaxgrip.config import Real
from jaxgrip.report import Run

Positive = Annotated[Real, Field(gt=0.0)]


class Config(config.Config):
    """All rigs, and the twin identification."""

    starts: int = Field(16, ge=1, le=1024, description="starts of the fit, all in one batch")
    resolution_deg: Positive = Field(0.35, description="of the angle sensor [deg]")
    noise_deg: Positive = Field(
        0.35,
        description="standard deviation of the sensor's noise before the angle is rounded [deg]",
    )
    seeds: int = Field(20, ge=1, le=1000, description="noisy experiments")
    exact: bool = Field(
        True, description="whether to identify with the exact model as well as in fixed steps"
    )
    baselines: bool = Field(
        True, description="whether to compare with evolutionary searches of as many simulations"
    )


def run(settings: Config, run: Run) -> None:
    """Simulate every rig, identify the parameters, and record numbers and pictures."""
    for what, measure in (
        ("Friction: steady, hysteresis, break-away, stick-slip", rigs.friction),
        ("Gear: creep and recovery", rigs.gear),
        ("Pendulum: exact and in the source's steps", rigs.pendulum),
        ("Run-up and estimate of the inertia", rigs.run_up),
        ("Source's algorithm: error over the step", rigs.algorithms),
    ):
        with run.stage(what):
            measure(run)
    twin.identify(settings, run)
    run.note(
        "Kubisch 2008 prints no measured data and no curves; values beside ours are those of an "
        "independent program for the parameters it prints, or the true ones of a twin experiment."
    )
