import pytest

from jaxgrip import actuators

from . import reference as published


@pytest.fixture(scope="session")
def reference():
    """The module of published numbers beside this file."""
    return published


@pytest.fixture(scope="session")
def servo_friction(reference):
    return actuators.LuGre.from_inertia(inertia=reference.INERTIA, **reference.FRICTION)


@pytest.fixture(scope="session")
def benchmark_friction(reference):
    return actuators.LuGre(**reference.BENCHMARK)


@pytest.fixture(scope="session")
def gear(reference):
    return actuators.GeneralizedMaxwell(**reference.GEAR)
