"""Outcomes of a solve, in words."""

import equinox as eqx


class RESULTS(eqx.Enumeration):
    """Outcomes of [`solve`][]; each message says which step failed and what to try."""

    successful = ""
    unreachable = (
        "Transcription found no motion from initial_state to final_state within the control bounds "
        "and the bounds on final_time: try another guess of final_time or more starts in Solver, "
        "raise final_time's upper bound or the control bounds, or check that the final state can "
        "be reached and held."
    )
    transcription_failed = (
        "Transcription did not converge: try another guess of final_time or more max_steps in "
        "Transcription."
    )
    shooting_failed = (
        "Multiple shooting did not converge from the structure that the transcription shows: try "
        "more intervals in Transcription or a smaller barrier."
    )
    structure_failed = (
        "No switching structure satisfied the minimum principle within the allowed rounds: try "
        "more intervals in Transcription or another guess of final_time."
    )
    undetermined = (
        "A control or a design variable that does not influence the optimum is not determined by "
        "the problem: add a small cost of it, or remove what it moves."
    )
    not_finite = (
        "The dynamics or the cost returned NaN or infinity: check the numbers of the model, and "
        "that the straight line from initial_state to final_state avoids singularities."
    )
    imposed_failed = (
        "Multiple shooting did not converge from the imposed structure: perhaps no motion has it; "
        "try other times or fewer segments."
    )
    continuation_failed = (
        "The motion of an easier problem could not be followed to this one: try one that is closer."
    )
    not_smooth = (
        "The dynamics, the cost or a constraint has a kink or a jump where the motion passes: "
        "round it off, or make the motions before and after it two phases, see join."
    )
    too_many_arcs = (
        "The structure has more arcs than max_arcs of the solver: raise it, or look for a control "
        "that chatters."
    )
    steep_edge = (
        "The dynamics, the cost or their slope are infinite at an end of the motion or at a "
        "control bound, like a square root at zero: begin or end a little beside it, keep the "
        "control a little off its bound, or choose other states."
    )
    chattering = (
        "The optimum chatters, its switches or contact points accumulate, so that no finite "
        "structure is optimal: take the motion that the solution holds, whose cost is close to the "
        "least, or add a small cost of the control that chatters."
    )
    not_certified = (
        "A solution was found but the certificate is not met: see the failed checks; try more "
        "intervals in Shooting."
    )


class SolveError(RuntimeError):
    """Raised by [`solve`][] with `throw=True`; the message is one sentence.

    `solution` holds the last result, or None.
    """

    def __init__(self, message: str, solution=None):
        super().__init__(message)
        self.solution = solution
