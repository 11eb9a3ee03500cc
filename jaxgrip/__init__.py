"""Differentiable, batched simulation and certified optimal control of mechanisms."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxgrip import actuators as actuators
    from jaxgrip import contact as contact
    from jaxgrip import fem as fem
    from jaxgrip import fitting as fitting
    from jaxgrip import flexible as flexible
    from jaxgrip import joints as joints
    from jaxgrip import mechanism as mechanism
    from jaxgrip import models as models
    from jaxgrip import ocp as ocp
    from jaxgrip import orbits as orbits
    from jaxgrip import rigid as rigid
    from jaxgrip import shapes as shapes
    from jaxgrip import spatial as spatial
    from jaxgrip.precision import enable_x64 as enable_x64

_ROOMS = (
    *("actuators", "contact", "fem", "fitting", "flexible", "joints", "mechanism"),
    *("models", "ocp", "orbits", "rigid", "shapes", "spatial"),
)
# Rooms that have moved.
_MOVED = {
    "assembly": "mechanism",
    "mechanisms": "mechanism.loops",
    "structures": "fem.structures",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: the command line must set flags of XLA and listen to signals
    # before jax is imported, which takes seconds.
    if name in _ROOMS:
        return importlib.import_module(f"jaxgrip.{name}")
    if name in _MOVED:
        warnings.warn(
            f"jaxgrip.{name} is jaxgrip.{_MOVED[name]} now.", DeprecationWarning, stacklevel=2
        )
        return importlib.import_module(f"jaxgrip.{_MOVED[name]}")
    if name == "enable_x64":
        from jaxgrip.precision import enable_x64

        return enable_x64
    raise AttributeError(f"module 'jaxgrip' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_ROOMS, "enable_x64"]
