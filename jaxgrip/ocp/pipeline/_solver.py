"""Configuration of the solver."""

import equinox as eqx

from jaxgrip.checks import brief
from jaxgrip.ocp.direct import Transcription
from jaxgrip.ocp.indirect import Shooting


class Solver(eqx.Module):
    """Configuration of [`solve`][]: transcription finds the structure, shooting the solution.

    **Arguments:** `transcription`, `shooting`: their configurations; `starts`: number of guesses
    to transcribe, the straight line and bent ones, of which the best is kept, since a motion may
    have several local optima; `arcs`: number of arcs of the compiled shooting program, doubled up
    to `max_arcs` where a structure or the accuracy needs more; `max_rounds`: limit of shootings of
    one structure; `max_transcriptions` and `max_shootings`: limits for the whole search.

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
