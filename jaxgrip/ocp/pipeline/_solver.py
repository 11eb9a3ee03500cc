"""Configuration of the whole way from a problem to a solution."""

import equinox as eqx

from jaxgrip.checks import brief
from jaxgrip.ocp.direct import Transcription
from jaxgrip.ocp.indirect import Shooting


class Solver(eqx.Module):
    """How [`solve`][] works: a transcription finds the structure, multiple shooting the solution.

    **Arguments:** `transcription`, `shooting`: their configurations; `starts`: number of guesses
    that are transcribed, the straight line and bent ones, of which the best is kept, since a motion
    may have several local optima; `arcs`: arcs of the compiled shooting code, doubled as far as
    `max_arcs` where a structure has more or the accuracy asks for more; `max_rounds`: how often a
    structure may be shot and mended; `max_transcriptions` and `max_shootings`: the most that are
    spent in all before the solver gives up.

    **Raises:** `ValueError` for a number below one.
    """

    transcription: Transcription = Transcription()
    shooting: Shooting = Shooting()
    starts: int = 4
    arcs: int = 12
    max_arcs: int = 96
    max_rounds: int = 15
    max_transcriptions: int = 60
    max_shootings: int = 40

    def __check_init__(self):
        counts = "starts", "arcs", "max_arcs", "max_rounds", "max_transcriptions", "max_shootings"
        for name in counts:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"{name} of a Solver must be a positive integer, not {brief(value)}."
                )
