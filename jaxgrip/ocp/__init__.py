"""Optimal control: from a plain problem statement to a certified solution."""

from jaxgrip.ocp.certificate import Certificate as Certificate
from jaxgrip.ocp.certificate import Check as Check
from jaxgrip.ocp.direct import Transcription as Transcription
from jaxgrip.ocp.indirect import Shooting as Shooting
from jaxgrip.ocp.pipeline import RESULTS as RESULTS
from jaxgrip.ocp.pipeline import Phase as Phase
from jaxgrip.ocp.pipeline import Solution as Solution
from jaxgrip.ocp.pipeline import SolveError as SolveError
from jaxgrip.ocp.pipeline import Solver as Solver
from jaxgrip.ocp.pipeline import Structure as Structure
from jaxgrip.ocp.pipeline import join as join
from jaxgrip.ocp.pipeline import solve as solve
from jaxgrip.ocp.pipeline import solve_batch as solve_batch
from jaxgrip.ocp.pipeline import split as split
from jaxgrip.ocp.statement import Free as Free
from jaxgrip.ocp.statement import Problem as Problem
from jaxgrip.ocp.structure import Kind as Kind
