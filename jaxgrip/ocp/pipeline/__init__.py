"""Pipeline."""

from jaxgrip.ocp.pipeline._batch import solve_batch as solve_batch
from jaxgrip.ocp.pipeline._diagnosis import find_kink as find_kink
from jaxgrip.ocp.pipeline._outcome import Certified as Certified
from jaxgrip.ocp.pipeline._outcome import Search as Search
from jaxgrip.ocp.pipeline._phases import Phase as Phase
from jaxgrip.ocp.pipeline._phases import join as join
from jaxgrip.ocp.pipeline._phases import split as split
from jaxgrip.ocp.pipeline._results import RESULTS as RESULTS
from jaxgrip.ocp.pipeline._results import SolveError as SolveError
from jaxgrip.ocp.pipeline._solution import Solution as Solution
from jaxgrip.ocp.pipeline._solution import Structure as Structure
from jaxgrip.ocp.pipeline._solve import run as run
from jaxgrip.ocp.pipeline._solve import solve as solve
from jaxgrip.ocp.pipeline._solver import Solver as Solver
