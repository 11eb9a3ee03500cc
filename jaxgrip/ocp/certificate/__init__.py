"""Certificate."""

from jaxgrip.ocp.certificate._certificate import Certificate as Certificate
from jaxgrip.ocp.certificate._certificate import Check as Check
from jaxgrip.ocp.certificate._certificate import certify as certify
from jaxgrip.ocp.certificate._certificate import compile_ahead as compile_ahead
from jaxgrip.ocp.certificate._measurements import measure as measure
