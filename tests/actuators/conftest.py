import importlib.util
from pathlib import Path

import pytest

from jaxgrip import actuators


@pytest.fixture(scope="session")
def reference():
    """The module of published numbers beside this file."""
    spec = importlib.util.spec_from_file_location(
        "reference", Path(__file__).with_name("reference.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def servo_friction(reference):
    return actuators.LuGre.from_inertia(inertia=reference.INERTIA, **reference.FRICTION)


@pytest.fixture(scope="session")
def benchmark_friction(reference):
    return actuators.LuGre(**reference.BENCHMARK)


@pytest.fixture(scope="session")
def gear(reference):
    return actuators.GeneralizedMaxwell(**reference.GEAR)
