"""Hamiltonian."""

from jaxgrip.ocp.hamiltonian._constraints import MAX_ORDER as MAX_ORDER
from jaxgrip.ocp.hamiltonian._constraints import Active as Active
from jaxgrip.ocp.hamiltonian._constraints import boundary_reach as boundary_reach
from jaxgrip.ocp.hamiltonian._constraints import expand_constrained as expand_constrained
from jaxgrip.ocp.hamiltonian._constraints import find_order as find_order
from jaxgrip.ocp.hamiltonian._constraints import hamiltonian as hamiltonian
from jaxgrip.ocp.hamiltonian._constraints import levels as levels
from jaxgrip.ocp.hamiltonian._constraints import reach as reach
from jaxgrip.ocp.hamiltonian._constraints import total_derivative as total_derivative
from jaxgrip.ocp.hamiltonian._hamiltonian import Expansion as Expansion
from jaxgrip.ocp.hamiltonian._hamiltonian import expand as expand
from jaxgrip.ocp.hamiltonian._hamiltonian import hamiltonian_flow as hamiltonian_flow
from jaxgrip.ocp.hamiltonian._hamiltonian import switching_bend as switching_bend
from jaxgrip.ocp.hamiltonian._hamiltonian import switching_share as switching_share
from jaxgrip.ocp.hamiltonian._hamiltonian import switching_slope as switching_slope
from jaxgrip.ocp.hamiltonian._hamiltonian import with_hessian as with_hessian
