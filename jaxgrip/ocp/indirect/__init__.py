"""Indirect."""

from jaxgrip.ocp.indirect._boundary_value_problem import Arcs as Arcs
from jaxgrip.ocp.indirect._boundary_value_problem import (
    BoundaryValueProblem as BoundaryValueProblem,
)
from jaxgrip.ocp.indirect._boundary_value_problem import pose as pose
from jaxgrip.ocp.indirect._boundary_value_problem import start_arcs as start_arcs
from jaxgrip.ocp.indirect._collocation import radau as radau
from jaxgrip.ocp.indirect._collocation import stage_times as stage_times
from jaxgrip.ocp.indirect._collocation import to_monomials as to_monomials
from jaxgrip.ocp.indirect._conditions import EndGradients as EndGradients
from jaxgrip.ocp.indirect._conditions import Evaluation as Evaluation
from jaxgrip.ocp.indirect._conditions import end_gradients as end_gradients
from jaxgrip.ocp.indirect._conditions import evaluate as evaluate
from jaxgrip.ocp.indirect._conditions import residuals as residuals
from jaxgrip.ocp.indirect._extremal import Extremal as Extremal
from jaxgrip.ocp.indirect._extremal import Output as Output
from jaxgrip.ocp.indirect._extremal import as_trajectory as as_trajectory
from jaxgrip.ocp.indirect._extremal import control_rates as control_rates
from jaxgrip.ocp.indirect._extremal import dense_output as dense_output
from jaxgrip.ocp.indirect._extremal import tangent_output as tangent_output
from jaxgrip.ocp.indirect._extremal import without_derivatives as without_derivatives
from jaxgrip.ocp.indirect._nearby import corrector as corrector
from jaxgrip.ocp.indirect._nearby import solve_nearby as solve_nearby
from jaxgrip.ocp.indirect._shooting import Shooting as Shooting
from jaxgrip.ocp.indirect._shooting import Shot as Shot
from jaxgrip.ocp.indirect._shooting import iterate as iterate
from jaxgrip.ocp.indirect._shooting import overtaken as overtaken
from jaxgrip.ocp.indirect._shooting import solve_shooting as solve_shooting
