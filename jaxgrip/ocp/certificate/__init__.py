"""Certificate."""

from jaxgrip.ocp.certificate._certificate import Certificate as Certificate
from jaxgrip.ocp.certificate._certificate import Check as Check
from jaxgrip.ocp.certificate._certificate import begin_to_compile as begin_to_compile
from jaxgrip.ocp.certificate._certificate import certify as certify
from jaxgrip.ocp.certificate._measurements import measure as measure
