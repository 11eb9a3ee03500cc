"""Direct."""

from jaxgrip.ocp.direct._transcription import Guess as Guess
from jaxgrip.ocp.direct._transcription import Transcribed as Transcribed
from jaxgrip.ocp.direct._transcription import Transcription as Transcription
from jaxgrip.ocp.direct._transcription import bent_line as bent_line
from jaxgrip.ocp.direct._transcription import solve_transcription as solve_transcription
from jaxgrip.ocp.direct._transcription import straight_line as straight_line
