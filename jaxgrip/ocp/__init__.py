"""Optimal control: from a plain problem statement to a certified solution."""

from jaxgrip.ocp.batch import solve_batch as solve_batch
from jaxgrip.ocp.certificate import Certificate as Certificate
from jaxgrip.ocp.certificate import Check as Check
from jaxgrip.ocp.phases import Phase as Phase
from jaxgrip.ocp.phases import join as join
from jaxgrip.ocp.phases import split as split
from jaxgrip.ocp.pipeline import solve as solve
from jaxgrip.ocp.problem import Problem as Problem
from jaxgrip.ocp.results import RESULTS as RESULTS
from jaxgrip.ocp.results import SolveError as SolveError
from jaxgrip.ocp.shooting import Shooting as Shooting
from jaxgrip.ocp.solution import Solution as Solution
from jaxgrip.ocp.solution import Structure as Structure
from jaxgrip.ocp.solver import Solver as Solver
from jaxgrip.ocp.statement import Free as Free
from jaxgrip.ocp.transcription import Transcription as Transcription
