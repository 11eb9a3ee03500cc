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
RATE_SCALE = 20.0


def finger(x: ca.SX, u: ca.SX) -> ca.SX:
    """x' of one finger in closed form, x = (q, qd) [rad, rad/s], u [N m] (000a section 2.6)."""
    l1, l2, l3 = 0.02, 0.06, 0.07
    m1, m2, m3 = 0.08, 0.16, 0.20
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
    """Multiple shooting, one classical Runge-Kutta step an interval, constant controls on each."""

    def __init__(self, torque: tuple[float, ...], intervals: int):
        self.torque = np.asarray(torque)
        self.scale = np.array([1.0] * 3 + [RATE_SCALE] * 3)
        self.intervals = intervals
        z, v, h = ca.SX.sym("z", 6), ca.SX.sym("v", 3), ca.SX.sym("h")

        def rate(at: ca.SX) -> ca.SX:
            return finger(at * self.scale, v * self.torque) / self.scale

        k1 = rate(z)
        k2 = rate(z + h / 2 * k1)
        k3 = rate(z + h / 2 * k2)
        k4 = rate(z + h * k3)
        step = ca.Function("step", [z, v, h], [z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)])
        nodes = ca.MX.sym("nodes", 6, intervals + 1)
        controls = ca.MX.sym("controls", 3, intervals)
        final_time = ca.MX.sym("final_time")
        steps = ca.repmat(final_time / intervals, 1, intervals)
        defects = nodes[:, 1:] - step.map(intervals)(nodes[:, :-1], controls, steps)
        options = {
            "ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-10, "mu_strategy": "adaptive"},
            "print_time": False,
        }
        nlp = {
            "x": ca.vertcat(ca.vec(nodes), ca.vec(controls), final_time),
            "f": final_time,
            "g": ca.vec(defects),
        }
        self.solver = ca.nlpsol("solver", "ipopt", nlp, options)

    def straight_line(self, start: np.ndarray, end: np.ndarray, final_time: float) -> np.ndarray:
        """Guess: states on the straight line with its constant rate, no torque."""
        tau = np.linspace(0.0, 1.0, self.intervals + 1)
        q = start[:, None] + np.outer(end - start, tau)
        qd = np.repeat((end - start)[:, None] / final_time, self.intervals + 1, axis=1)
        nodes = np.concatenate([q, qd]) / self.scale[:, None]
        return np.concatenate([nodes.T.ravel(), np.zeros(3 * self.intervals), [final_time]])

    def solve(self, start: np.ndarray, end: np.ndarray, guess: np.ndarray) -> Motion:
        """Motion from rest at `start` to rest at `end` [rad]."""
        n, split = self.intervals, 6 * (self.intervals + 1)
        lower = np.full((n + 1, 6), -np.inf)
        upper = np.full((n + 1, 6), np.inf)
        for node, pose in ((0, start), (-1, end)):
            lower[node] = upper[node] = np.concatenate([pose, np.zeros(3)])
        bound = np.ones(3 * n)
        solved = self.solver(
            x0=guess,
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
            u=w[split:-1].reshape(n, 3).T * self.torque[:, None],
            # IPOPT adds the multipliers of the defects with the other sign than H = L + lambda f.
            costate=-solved["lam_g"].full().reshape(n, 6).T / self.scale[:, None],
            switching=-push / self.torque[:, None] / (final_time / n),
            iterations=stats["iter_count"],
            converged=stats["success"],
        )


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


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
