"""Minimum-time motion of a gripper finger by CasADi and IPOPT: the peer of `optimal_control`.

Needs CasADi and NumPy, not jaxgrip. Run as a script it reads a request as JSON from the standard
input and prints the answer as JSON.
"""

import json
import platform
import statistics
import sys
import time
from dataclasses import dataclass

import casadi as ca
import numpy as np

LIMITS_DEG = {
    "A": ((-90.0, 90.0), (-90.0, 10.0), (-170.0, 0.0)),
    "B": ((-270.0, -90.0), (-90.0, 10.0), (-170.0, 0.0)),
}
TORQUE = {"A": (0.25, 0.50, 0.40), "B": (0.20, 0.47, 0.35)}
LAST_MASS = 0.20
RATE_SCALE = 20.0
IPOPT = {
    "ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-10, "mu_strategy": "adaptive"},
    "print_time": False,
}


def finger(x: ca.SX, u: ca.SX, last_mass: ca.SX | float = LAST_MASS) -> ca.SX:
    """x' of one finger in closed form, x = (q, qd) [rad, rad/s], u [N m].

    `last_mass` [kg] is that of the last link with its payload.
    """
    l1, l2, l3 = 0.02, 0.06, 0.07
    m1, m2, m3 = 0.08, 0.16, last_mass
    ixx2, ixx3 = 2.0e-6, 2.5e-6
    izz1, izz2, izz3 = 19 / 6 * 1e-6, 4.9e-5, 995 / 12 * 1e-6
    g = 9.81
    _, q2, q3, w1, w2, w3 = ca.vertsplit(x)
    c2, s2, c3, s3 = ca.cos(q2), ca.sin(q2), ca.cos(q3), ca.sin(q3)
    c23, s23 = ca.cos(q2 + q3), ca.sin(q2 + q3)
    r2 = l1 + l2 / 2 * c2
    r3 = l1 + l2 * c2 + l3 / 2 * c23
    m11 = izz1 + m1 * l1**2 / 4 + m2 * r2**2 + m3 * r3**2
    m11 += ixx2 * s2**2 + izz2 * c2**2 + ixx3 * s23**2 + izz3 * c23**2
    m22 = izz2 + m2 * l2**2 / 4 + izz3 + m3 * (l2**2 + l3**2 / 4 + l2 * l3 * c3)
    m23 = izz3 + m3 * (l3**2 / 4 + l2 * l3 * c3 / 2)
    m33 = izz3 + m3 * l3**2 / 4
    a3 = -m3 * r3 * l3 * s23 + 2 * (ixx3 - izz3) * s23 * c23
    a2 = -m2 * r2 * l2 * s2 - 2 * m3 * r3 * (l2 * s2 + l3 / 2 * s23)
    a2 += 2 * (ixx2 - izz2) * s2 * c2 + 2 * (ixx3 - izz3) * s23 * c23
    b = m3 * l2 * l3 * s3 / 2
    t1 = u[0] - w1 * (a2 * w2 + a3 * w3)
    t2 = u[1] + a2 * w1**2 / 2 + b * (2 * w2 * w3 + w3**2)
    t2 += g * ((m2 * l2 / 2 + m3 * l2) * c2 + m3 * l3 / 2 * c23)
    t3 = u[2] + a3 * w1**2 / 2 - b * w2**2 + g * m3 * l3 / 2 * c23
    det = m22 * m33 - m23**2
    qdd = (t1 / m11, (m33 * t2 - m23 * t3) / det, (m22 * t3 - m23 * t2) / det)
    return ca.vertcat(w1, w2, w3, *qdd)


@dataclass(frozen=True)
class Motion:
    """A transcribed solution: nodes `tau`, states, controls, costates, switching functions.

    `x` (6, N+1), `u` (3, N), `costate` (6, N) at the ends of the intervals, `switching` (3, N)
    mean over the interval; H = 1 + costate . f.
    """

    final_time: float
    tau: np.ndarray
    x: np.ndarray
    u: np.ndarray
    costate: np.ndarray
    switching: np.ndarray
    iterations: int
    converged: bool


class Transcription:
    """Multiple shooting with one classical Runge-Kutta step and constant controls per interval."""

    def __init__(self, torque: tuple[float, ...], intervals: int):
        self.torque = np.asarray(torque)
        self.scale = np.array([1.0] * 3 + [RATE_SCALE] * 3)
        self.intervals = intervals
        z, v, h = ca.SX.sym("z", 6), ca.SX.sym("v", 3), ca.SX.sym("h")
        limits, mass = ca.SX.sym("limits", 3), ca.SX.sym("mass")

        def rate(at: ca.SX) -> ca.SX:
            return finger(at * self.scale, v * limits, mass) / self.scale

        k1 = rate(z)
        k2 = rate(z + h / 2 * k1)
        k3 = rate(z + h / 2 * k2)
        k4 = rate(z + h * k3)
        step = ca.Function(
            "step", [z, v, h, limits, mass], [z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)]
        )
        nodes = ca.MX.sym("nodes", 6, intervals + 1)
        controls = ca.MX.sym("controls", 3, intervals)
        final_time = ca.MX.sym("final_time")
        steps = ca.repmat(final_time / intervals, 1, intervals)
        numbers = ca.MX.sym("numbers", 4)
        each = [ca.repmat(part, 1, intervals) for part in (numbers[:3], numbers[3])]
        defects = nodes[:, 1:] - step.map(intervals)(nodes[:, :-1], controls, steps, *each)
        nlp = {
            "p": numbers,
            "x": ca.vertcat(ca.vec(nodes), ca.vec(controls), final_time),
            "f": final_time,
            "g": ca.vec(defects),
        }
        self.solver = ca.nlpsol("solver", "ipopt", nlp, IPOPT)

    def straight_line(self, start: np.ndarray, end: np.ndarray, final_time: float) -> np.ndarray:
        """Guess: states on the straight line with its constant rate, no torque."""
        tau = np.linspace(0.0, 1.0, self.intervals + 1)
        q = start[:, None] + np.outer(end - start, tau)
        qd = np.repeat((end - start)[:, None] / final_time, self.intervals + 1, axis=1)
        nodes = np.concatenate([q, qd]) / self.scale[:, None]
        return np.concatenate([nodes.T.ravel(), np.zeros(3 * self.intervals), [final_time]])

    def solve(
        self,
        start: np.ndarray,
        end: np.ndarray,
        guess: np.ndarray,
        torque: np.ndarray | None = None,
        last_mass: float = LAST_MASS,
    ) -> Motion:
        """Motion from rest at `start` to rest at `end` [rad]; other torque limits may be given."""
        torque = self.torque if torque is None else np.asarray(torque)
        n, split = self.intervals, 6 * (self.intervals + 1)
        lower = np.full((n + 1, 6), -np.inf)
        upper = np.full((n + 1, 6), np.inf)
        for node, pose in ((0, start), (-1, end)):
            lower[node] = upper[node] = np.concatenate([pose, np.zeros(3)])
        bound = np.ones(3 * n)
        solved = self.solver(
            x0=guess,
            p=np.append(torque, last_mass),
            lbx=np.concatenate([lower.ravel(), -bound, [1e-3]]),
            ubx=np.concatenate([upper.ravel(), bound, [10.0]]),
            lbg=0.0,
            ubg=0.0,
        )
        w, multiplier = solved["x"].full().ravel(), solved["lam_x"].full().ravel()
        stats, final_time = self.solver.stats(), w[-1]
        push = multiplier[split:-1].reshape(n, 3).T
        return Motion(
            final_time=final_time,
            tau=np.linspace(0.0, 1.0, n + 1),
            x=w[:split].reshape(n + 1, 6).T * self.scale[:, None],
            u=w[split:-1].reshape(n, 3).T * torque[:, None],
            # IPOPT adds the multipliers of the defects with the other sign than H = L + lambda f.
            costate=-solved["lam_g"].full().reshape(n, 6).T / self.scale[:, None],
            switching=-push / torque[:, None] / (final_time / n),
            iterations=stats["iter_count"],
            converged=stats["success"],
        )


class Phases:
    """Radau collocation of order nine on arcs with known bounds; their durations are unknown."""

    def __init__(self, signs: tuple[tuple[int, ...], ...], intervals: int, degree: int = 5):
        self.signs, self.intervals, self.degree = np.array(signs, dtype=float), intervals, degree
        self.scale = np.array([1.0] * 3 + [RATE_SCALE] * 3)
        count = len(signs) * intervals
        a, *_ = ca.collocation_coeff(ca.collocation_points(degree, "radau"))
        z, v, h = ca.SX.sym("z", 6), ca.SX.sym("v", 3), ca.SX.sym("h")
        limits, mass, inner = ca.SX.sym("limits", 3), ca.SX.sym("mass"), ca.SX.sym("c", 6, degree)
        values = ca.horzcat(z, inner)
        rates = [
            h * finger(inner[:, i] * self.scale, v * limits, mass) / self.scale
            for i in range(degree)
        ]
        defect = ca.Function(
            "defect", [z, inner, v, h, limits, mass], [values @ a - ca.horzcat(*rates)]
        )
        nodes = ca.MX.sym("nodes", 6, count + 1)
        stages = ca.MX.sym("stages", 6, degree * count)
        durations, numbers = ca.MX.sym("durations", len(signs)), ca.MX.sym("numbers", 4)
        controls = ca.DM(np.repeat(self.signs, intervals, axis=0).T)
        lengths = ca.vec(ca.repmat(durations.T / intervals, intervals, 1)).T
        each = [ca.repmat(part, 1, count) for part in (numbers[:3], numbers[3])]
        defects = defect.map(count)(nodes[:, :-1], stages, controls, lengths, *each)
        # The last Radau point is the end of the interval.
        ends = nodes[:, 1:] - stages[:, degree - 1 :: degree]
        nlp = {
            "x": ca.vertcat(ca.vec(nodes), ca.vec(stages), durations),
            "p": numbers,
            "f": ca.sum1(durations),
            "g": ca.vertcat(ca.vec(defects), ca.vec(ends)),
        }
        self.solver = ca.nlpsol("solver", "ipopt", nlp, IPOPT)

    def guess(self, motion: Motion, durations: np.ndarray) -> np.ndarray:
        """States of a transcribed motion at the points of these arcs."""
        ends = np.cumsum(durations)
        h = durations / self.intervals
        starts = (ends - durations)[:, None] + h[:, None] * np.arange(self.intervals)
        points = np.array(ca.collocation_points(self.degree, "radau"))
        t = starts[..., None] + h[:, None, None] * points
        grid = motion.tau * motion.final_time

        def at(t):
            x = [np.interp(t, grid, row) for row in motion.x]
            return (np.array(x) / self.scale[:, None]).T.ravel()

        return np.concatenate([at(np.append(starts, ends[-1])), at(t.ravel()), durations])

    def solve(self, start, end, guess, torque, last_mass) -> tuple[float, np.ndarray, bool]:
        """Final time [s], all unknowns and whether it converged."""
        count = len(self.signs) * self.intervals
        lower, upper = np.full((count + 1, 6), -np.inf), np.full((count + 1, 6), np.inf)
        for node, pose in ((0, start), (-1, end)):
            lower[node] = upper[node] = np.concatenate([pose, np.zeros(3)])
        free = np.full(6 * self.degree * count, np.inf)
        solved = self.solver(
            x0=guess,
            p=np.append(torque, last_mass),
            lbx=np.concatenate([lower.ravel(), -free, np.zeros(len(self.signs))]),
            ubx=np.concatenate([upper.ravel(), free, np.full(len(self.signs), 10.0)]),
            lbg=0.0,
            ubg=0.0,
        )
        unknowns, converged = solved["x"].full().ravel(), self.solver.stats()["success"]
        return float(solved["f"]), unknowns, converged


def arcs_of(motion: Motion) -> tuple[tuple[tuple[int, ...], ...], np.ndarray]:
    """Signs of the controls on the arcs of a transcribed bang-bang motion and their durations.

    A switch lies inside the interval where a control is between its bounds, at the share that its
    mean value tells.
    """
    largest = np.max(np.abs(motion.u), axis=1)
    u, h = motion.u / largest[:, None], np.diff(motion.tau) * motion.final_time
    switches, sides = [], []
    for j, row in enumerate(u):
        sign = np.where(row >= 0.0, 1, -1)
        sides.append(sign)
        for i in np.flatnonzero(np.diff(sign)):
            inside = i if abs(row[i]) < abs(row[i + 1]) else i + 1
            before = sign[i]
            share = 0.5 * (1.0 + before * row[inside])
            switches.append((h[:inside].sum() + share * h[inside], j))
    switches.sort()
    signs = [[int(sign[0]) for sign in sides]]
    for _, j in switches:
        signs.append([-s if i == j else s for i, s in enumerate(signs[-1])])
    ends = [*(t for t, _ in switches), motion.final_time]
    return tuple(map(tuple, signs)), np.diff(ends, prepend=0.0)


def answer(request: dict) -> dict:
    """Solve each task on each grid; one solver, built once, serves all tasks of a finger.

    A task is {"name", "finger", "start_deg", "end_deg"}. A result has the final time, the median
    wall time of `repeats` solves and, for the first task of a finger, the time to build the solver.
    """
    results = []
    for intervals in request["intervals"]:
        solvers: dict[str, Transcription] = {}
        for task in request["tasks"]:
            name, setup = task["finger"], None
            if name not in solvers:
                began = time.perf_counter()
                solvers[name] = Transcription(TORQUE[name], intervals)
                setup = time.perf_counter() - began
            start, end = np.deg2rad(task["start_deg"]), np.deg2rad(task["end_deg"])
            guess = solvers[name].straight_line(start, end, request["guess"])
            times = []
            for _ in range(request["repeats"]):
                began = time.perf_counter()
                motion = solvers[name].solve(start, end, guess)
                times.append(time.perf_counter() - began)
            results.append(
                {
                    "intervals": intervals,
                    "task": task["name"],
                    "setup_s": setup,
                    "run_s": statistics.median(times),
                    "final_time": motion.final_time,
                    "iterations": motion.iterations,
                    "converged": motion.converged,
                }
            )
    return {"results": results, "casadi": ca.__version__, "python": platform.python_version()}


def answer_batch(request: dict) -> dict:
    """Loop over variants of a finger's motion, each started from the solution of the first.

    Three methods: a fixed grid for each of `intervals`; the grid of `coarse` intervals, whose arcs
    are then solved for by [`Phases`][]; and the arcs of the first alone. A variant is {"end",
    "torque", "last_mass"}. A result has `way`, the wall time and final time of each variant after
    the first, whether it converged, and the time to build all solvers.
    """
    start, variants = np.array(request["start"]), request["variants"]

    def arguments(variant):
        return variant["torque"], variant["last_mass"]

    def timed(function, *args):
        began = time.perf_counter()
        return function(*args), time.perf_counter() - began

    results, known = [], {}
    phase_intervals = request["phase_intervals"]

    def phases_for(signs):
        setup = 0.0
        if signs not in known:
            known[signs], setup = timed(Phases, signs, phase_intervals)
        return known[signs], setup

    first, coarse = variants[0], None
    for intervals in (*request["intervals"], request["coarse"]):
        torque, end = np.array(first["torque"]), np.array(first["end"])
        direct, setup = timed(Transcription, torque, intervals)
        guess = direct.straight_line(start, end, request["guess"])
        nominal = direct.solve(start, end, guess, *arguments(first))
        u = (nominal.u / torque[:, None]).T.ravel()
        nodes = (nominal.x / direct.scale[:, None]).T.ravel()
        warm = np.concatenate([nodes, u, [nominal.final_time]])
        each = []
        for variant in variants[1:]:
            end = np.array(variant["end"])
            motion, run = timed(direct.solve, start, end, warm, *arguments(variant))
            each.append((motion, run))
        if intervals == request["coarse"]:
            coarse = nominal, each
        results.append(
            {
                "way": f"N = {intervals}",
                "setup_s": setup,
                "run_s": [run for _, run in each],
                "final_time": [motion.final_time for motion, _ in each],
                "converged": [motion.converged for motion, _ in each],
            }
        )
    nominal, each = coarse
    signs, durations = arcs_of(nominal)
    phases, setup = phases_for(signs)
    guess = phases.guess(nominal, durations)
    _, warm, _ = phases.solve(start, np.array(first["end"]), guess, *arguments(first))
    alone = {"way": "arcs of the first", "setup_s": setup, "run_s": []}
    alone |= {"final_time": [], "converged": []}
    both = {"way": f"N = {request['coarse']}, then its arcs", "setup_s": setup, "run_s": []}
    both |= {"final_time": [], "converged": []}
    for variant, (motion, run_direct) in zip(variants[1:], each, strict=True):
        end = np.array(variant["end"])
        solved, run = timed(phases.solve, start, end, warm, *arguments(variant))
        _record(alone, solved, run)
        (signs, durations), reading = timed(arcs_of, motion)
        own, setup = phases_for(signs)
        both["setup_s"] += setup
        guess, guessing = timed(own.guess, motion, durations)
        solved, run = timed(own.solve, start, end, guess, *arguments(variant))
        _record(both, solved, run_direct + reading + guessing + run)
    return {"results": [*results, both, alone], "casadi": ca.__version__}


def _record(way: dict, solved: tuple[float, np.ndarray, bool], run: float) -> None:
    final_time, _, converged = solved
    way["run_s"].append(run)
    way["final_time"].append(final_time)
    way["converged"].append(converged)


if __name__ == "__main__":
    received = json.load(sys.stdin)
    reply = answer_batch(received) if "variants" in received else answer(received)
    print(json.dumps(reply))
