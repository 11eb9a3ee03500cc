"""Crawler crane: assembled over its luffing range, equipment variants, load chart.

The system: Webhofer 2005, section 7.1. It prints no numbers; the geometry and the reference values
are those of an independent program, and sections and masses are examples.
"""

from pydantic import Field

from experiments.crane import charts, forces, luffing
from jaxgrip import config
from jaxgrip.report import Run


class Config(config.Config):
    """Positions of the reference crane, and the load chart of its variants."""

    positions: int = Field(5000, ge=2, le=100_000, description="positions over the luffing range")
    booms: int = Field(20, ge=1, le=200, description="lengths of the boom, from 36 to 60 m")
    masts: int = Field(25, ge=1, le=200, description="lengths of the mast, from 24 to 33 m")
    angles: int = Field(30, ge=6, le=500, description="boom angles of the load chart")


def run(settings: Config, run: Run) -> None:
    """Assemble, analyse, and record numbers and pictures."""
    with run.stage(f"{settings.positions} positions"):
        base = luffing.positions(run, settings.positions)
    with run.stage("Sensitivities"):
        luffing.sensitivities(run, base)
    with run.stage("Bar forces, deflection"):
        forces.study(run, base)
    with run.stage(f"Load chart of {settings.booms * settings.masts} variants"):
        charts.study(run, settings.booms, settings.masts, settings.angles)
    run.note(
        "Webhofer 2005 prints no numbers. Published values are those of an independent program "
        "for the geometry of the reference crane; sections, masses, limits are examples."
    )
