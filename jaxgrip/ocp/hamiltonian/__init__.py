"""Hamiltonian."""

from jaxgrip.ocp.hamiltonian._constraints import MAX_ORDER as MAX_ORDER
from jaxgrip.ocp.hamiltonian._constraints import ActiveConstraint as ActiveConstraint
from jaxgrip.ocp.hamiltonian._constraints import ActiveRows as ActiveRows
from jaxgrip.ocp.hamiltonian._constraints import arrange as arrange
from jaxgrip.ocp.hamiltonian._constraints import boundary_sizes as boundary_sizes
from jaxgrip.ocp.hamiltonian._constraints import constraint_sizes as constraint_sizes
from jaxgrip.ocp.hamiltonian._constraints import expand_constrained as expand_constrained
from jaxgrip.ocp.hamiltonian._constraints import find_order as find_order
from jaxgrip.ocp.hamiltonian._constraints import hamiltonian as hamiltonian
from jaxgrip.ocp.hamiltonian._constraints import lower_derivatives as lower_derivatives
from jaxgrip.ocp.hamiltonian._constraints import spread as spread
from jaxgrip.ocp.hamiltonian._constraints import total_derivative as total_derivative
from jaxgrip.ocp.hamiltonian._hamiltonian import Expansion as Expansion
from jaxgrip.ocp.hamiltonian._hamiltonian import expand as expand
from jaxgrip.ocp.hamiltonian._hamiltonian import hamiltonian_flow as hamiltonian_flow
from jaxgrip.ocp.hamiltonian._hamiltonian import kelley as kelley
from jaxgrip.ocp.hamiltonian._hamiltonian import switching_derivative as switching_derivative
from jaxgrip.ocp.hamiltonian._hamiltonian import switching_rate as switching_rate
from jaxgrip.ocp.hamiltonian._hamiltonian import with_hessian as with_hessian
