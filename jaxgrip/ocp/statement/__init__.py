"""Statement."""

from jaxgrip.ocp.statement._closures import capture as capture
from jaxgrip.ocp.statement._entries import Free as Free
from jaxgrip.ocp.statement._entries import is_concrete as is_concrete
from jaxgrip.ocp.statement._probing import probe as probe
from jaxgrip.ocp.statement._problem import Problem as Problem
