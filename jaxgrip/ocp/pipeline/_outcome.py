"""A search with what it has spent, and how it ended."""

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

from jaxgrip.ocp.certificate import Certificate
from jaxgrip.ocp.direct import DirectSolution
from jaxgrip.ocp.indirect import Extremal, Output
from jaxgrip.ocp.pipeline._diagnosis import describe_miss, find_kink, find_steep_edge
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._solution import Solution, as_failure, as_solution
from jaxgrip.ocp.pipeline._solver import Solver
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import Candidate


def _no_stats() -> dict:
    counts = ("transcriptions", "transcription_steps", "rounds", "shooting_steps", "unconfirmed")
    times = ("transcription_s", "shooting_s")
    return dict.fromkeys(counts, 0) | dict.fromkeys(times, 0.0) | {"history": [], "detail": ""}


@dataclasses.dataclass
class Search:
    """A search for an extremal of one problem.

    `stats`, counts, times and a history in words, are shared with the searches for easier problems.
    """

    problem: Problem
    solver: Solver
    stats: dict = dataclasses.field(default_factory=_no_stats)

    def note(self, *lines: str) -> None:
        """Add lines to the history."""
        self.stats["history"] += lines

    def timed(self, key: str, function: Callable, *args):
        """Call a function and add the time it takes."""
        began = time.perf_counter()
        out = function(*args)
        self.stats[f"{key}_s"] += time.perf_counter() - began
        return out


class Certified(NamedTuple):
    """An extremal with its certificate, and the candidate that it was shot from."""

    extremal: Extremal
    certificate: Certificate
    candidate: Candidate


class Outcome(NamedTuple):
    """How a search, or one step of it, ended.

    `result`, with a `detail` in words; `certified`, an extremal with a certificate, which need not
    be met, or None; `best`, objective and extremal of the best shot, which may break the minimum
    principle; `direct`, the last direct solution.
    """

    result: RESULTS
    certified: Certified | None = None
    detail: str = ""
    best: tuple[float, Extremal] | None = None
    direct: DirectSolution | None = None

    @property
    def is_conclusive(self) -> bool:
        """Whether the search would hardly end better from another motion."""
        return self.result in _CONCLUSIVE

    def explain(self, problem: Problem) -> "Outcome":
        """Add the cause of a failure, as far as it can be found."""
        certified, result, detail, direct = self.certified, self.result, self.detail, self.direct
        if result == RESULTS.unreachable:
            detail = describe_miss(problem, direct)
        elif certified is not None and result == RESULTS.not_certified:
            detail = f"failed: {', '.join(certified.certificate.failed)}"
        if result in (*UNEXPLAINED, RESULTS.unreachable, RESULTS.not_finite):
            place = find_steep_edge(problem, direct.x, direct.u)
            if place is not None:
                result, detail = RESULTS.steep_edge, place
        if result in UNEXPLAINED:
            if certified is None:
                t, x = (0.5 * (v[1:] + v[:-1]) for v in (direct.t, direct.x))
                motion = t, x, direct.u
            else:
                trajectory = certified.candidate.trajectory
                motion = trajectory.t, trajectory.x, trajectory.u
            kink = find_kink(problem, *motion)
            if kink is not None:
                result, detail = RESULTS.not_smooth, f"at {kink:.6g} s"
        return self._replace(result=result, detail=detail)

    def solution(self, search: Search, out: Output | None = None) -> Solution:
        """The solution object, with the extremal's dense output if that is known already."""
        search.stats["detail"] = self.detail
        if self.certified is None:
            return as_failure(search.problem, self.result, self.direct, search.stats)
        extremal, certificate, _ = self.certified
        out = out or extremal.output()
        return as_solution(out, extremal, certificate, self.result, search.stats)

    def sentence(self, search: Search) -> str:
        """The sentence of the result, with the detail and what was spent."""
        detail = f" ({self.detail})" if self.detail else ""
        stats, solver = search.stats, search.solver
        return (
            f"{RESULTS[self.result][:-1]}{detail}, after {stats['transcriptions']} of at most "
            f"{solver.max_transcriptions} transcriptions and {stats['rounds']} of at most "
            f"{solver.max_shootings} shootings."
        )


_CONCLUSIVE = (
    RESULTS.not_certified,
    RESULTS.chattering,
    RESULTS.undetermined,
    RESULTS.steep_edge,
    RESULTS.not_smooth,
)
# These name a step that failed but no property of the problem: it may have a kink or an infinite
# slope, or be reached from an easier one.
UNEXPLAINED = (
    RESULTS.transcription_failed,
    RESULTS.shooting_failed,
    RESULTS.structure_failed,
    RESULTS.too_many_arcs,
    RESULTS.not_certified,
)
