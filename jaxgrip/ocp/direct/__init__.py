"""Direct."""

from jaxgrip.ocp.direct._guess import Guess as Guess
from jaxgrip.ocp.direct._guess import bent_line as bent_line
from jaxgrip.ocp.direct._guess import straight_line as straight_line
from jaxgrip.ocp.direct._interior_point import DirectSolution as DirectSolution
from jaxgrip.ocp.direct._interior_point import Transcription as Transcription
from jaxgrip.ocp.direct._interior_point import solve_transcription as solve_transcription
