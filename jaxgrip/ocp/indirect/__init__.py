"""Indirect."""

from jaxgrip.ocp.indirect._arcs import Arcs as Arcs
from jaxgrip.ocp.indirect._arcs import ends_of as ends_of
from jaxgrip.ocp.indirect._arcs import interval_lengths as interval_lengths
from jaxgrip.ocp.indirect._arcs import radau as radau
from jaxgrip.ocp.indirect._arcs import sizes_of as sizes_of
from jaxgrip.ocp.indirect._arcs import to_monomials as to_monomials
from jaxgrip.ocp.indirect._conditions import EndGradients as EndGradients
from jaxgrip.ocp.indirect._conditions import end_gradients as end_gradients
from jaxgrip.ocp.indirect._conditions import evaluate_ends as evaluate_ends
from jaxgrip.ocp.indirect._conditions import evaluate_stages as evaluate_stages
from jaxgrip.ocp.indirect._conditions import residuals as residuals
from jaxgrip.ocp.indirect._nearby import Shot as Shot
from jaxgrip.ocp.indirect._nearby import corrector as corrector
from jaxgrip.ocp.indirect._nearby import solve_nearby as solve_nearby
from jaxgrip.ocp.indirect._output import Extremal as Extremal
from jaxgrip.ocp.indirect._output import Linearised as Linearised
from jaxgrip.ocp.indirect._output import Output as Output
from jaxgrip.ocp.indirect._output import assemble as assemble
from jaxgrip.ocp.indirect._output import control_rates as control_rates
from jaxgrip.ocp.indirect._output import multipliers as multipliers
from jaxgrip.ocp.indirect._output import rate_costates as rate_costates
from jaxgrip.ocp.indirect._output import tangent_output as tangent_output
from jaxgrip.ocp.indirect._output import without_derivatives as without_derivatives
from jaxgrip.ocp.indirect._shooting import Shooting as Shooting
from jaxgrip.ocp.indirect._shooting import ShootingResult as ShootingResult
from jaxgrip.ocp.indirect._shooting import solve_shooting as solve_shooting
