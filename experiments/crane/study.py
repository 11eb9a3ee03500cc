"""Crawler crane: assembled over its luffing range, equipment variants, load chart.

The system: M. Webhofer, dissertation, Technische Universität München, 2004. It prints no numbers;
the geometry and the reference values are those of an independent program, and sections and masses
are examples.
"""

from pydantic import Field

from experiments.crane import luffing
from jaxgrip import config
from jaxgrip.report import Run


class Config(config.Config):
    """Positions of the reference crane."""

    positions: int = Field(5000, ge=2, le=100_000, description="positions over the luffing range")


def run(settings: Config, run: Run) -> None:
    """Assemble, and hand over numbers and pictures."""
    with run.stage(f"{settings.positions} positions"):
        base, _ = luffing.positions(run, settings.positions)
    with run.stage("Sensitivities"):
        luffing.sensitivities(run, base)
