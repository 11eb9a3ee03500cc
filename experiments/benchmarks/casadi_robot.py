"""Fastest motion of a robot by CasADi and IPOPT: the peer of `robot_motion`.

Needs CasADi and NumPy, not jaxgrip. Run as a script it reads a request as JSON from the standard
input and prints the answer as JSON.
"""

import json
import statistics
import sys
import time

import casadi as ca
import numpy as np

IPOPT = {
    "ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-9, "mu_strategy": "adaptive"},
    "print_time": False,
}


def torques(robot: dict, q: ca.SX, v: ca.SX, a: ca.SX) -> ca.SX:
    """Newton and Euler's recursion for rotating joints about their z axes.

    `robot` has, for every body, `parents`, `rotation` (3, 3) and `translation` (3,) in the parent,
    `mass`, `com` (3,), `inertia` (3, 3) about it, and `gravity` (3,).
    """
    count = len(robot["parents"])
    z = ca.DM([0.0, 0.0, 1.0])
    axes, rates, accelerations, forces, moments = [], [], [], [], []
    for i, parent in enumerate(robot["parents"]):
        c, s = ca.cos(q[i]), ca.sin(q[i])
        about = ca.vertcat(ca.horzcat(c, -s, 0), ca.horzcat(s, c, 0), ca.horzcat(0, 0, 1))
        turn = ca.DM(robot["rotation"][i]) @ about
        at = ca.DM(robot["translation"][i])
        if parent < 0:
            w0, dw0, acc0 = ca.DM.zeros(3), ca.DM.zeros(3), -ca.DM(robot["gravity"])
        else:
            (w0, dw0), acc0 = rates[parent], accelerations[parent]
        acc = turn.T @ (acc0 + ca.cross(dw0, at) + ca.cross(w0, ca.cross(w0, at)))
        base, w0 = turn.T @ dw0, turn.T @ w0
        w = w0 + z * v[i]
        dw = base + z * a[i] + ca.cross(w0, z * v[i])
        com, inertia = ca.DM(robot["com"][i]), ca.DM(robot["inertia"][i])
        of_com = acc + ca.cross(dw, com) + ca.cross(w, ca.cross(w, com))
        force = robot["mass"][i] * of_com
        moment = inertia @ dw + ca.cross(w, inertia @ w) + ca.cross(com, force)
        axes.append((turn, at))
        rates.append((w, dw))
        accelerations.append(acc)
        forces.append(force)
        moments.append(moment)
    for i in reversed(range(count)):
        parent = robot["parents"][i]
        if parent >= 0:
            turn, at = axes[i]
            force = turn @ forces[i]
            forces[parent] += force
            moments[parent] += turn @ moments[i] + ca.cross(at, force)
    return ca.vertcat(*(moment[2] for moment in moments))


class Transcription:
    """Hermite-Simpson collocation with the accelerations as controls and bounded torques.

    Minimises T + weight * integral of the sum of (torque / limit)^2. Torques and speeds are bounded
    at the nodes and in the middle of the intervals.
    """

    def __init__(self, robot: dict, intervals: int, weight: float):
        self.n, self.intervals = len(robot["parents"]), intervals
        q, v, a = (ca.SX.sym(name, self.n) for name in "qva")
        relative = torques(robot, q, v, a) / ca.DM(robot["torque"])
        effort = ca.Function("effort", [q, v, a], [relative])
        self.speed = np.array(robot["speed"])
        nodes = intervals + 1
        q, v, a = (ca.MX.sym(name, self.n, nodes) for name in "qva")
        middle, final_time = ca.MX.sym("middle", self.n, intervals), ca.MX.sym("T")
        h = final_time / intervals
        (q0, q1), (v0, v1), (a0, a1) = ((x[:, :-1], x[:, 1:]) for x in (q, v, a))
        q_middle = (q0 + q1) / 2 + h / 8 * (v0 - v1)
        v_middle = (v0 + v1) / 2 + h / 8 * (a0 - a1)
        defects = [
            q1 - q0 - h / 6 * (v0 + 4 * v_middle + v1),
            v1 - v0 - h / 6 * (a0 + 4 * middle + a1),
        ]
        at_nodes = effort.map(nodes)(q, v, a)
        at_middle = effort.map(intervals)(q_middle, v_middle, middle)
        squares = ca.sum1(at_nodes**2)
        mean = squares[:-1] + 4 * ca.sum1(at_middle**2) + squares[1:]
        variables = [q, v, a, middle]
        rows = [*defects, at_nodes, at_middle, v_middle]
        nlp = {
            "x": ca.vertcat(*map(ca.vec, variables), final_time),
            "f": final_time + weight * h / 6 * ca.sum2(mean),
            "g": ca.vertcat(*map(ca.vec, rows)),
        }
        self.solver = ca.nlpsol("solver", "ipopt", nlp, IPOPT)

    def solve(self, start: np.ndarray, end: np.ndarray, guess: float) -> dict:
        """Objective, final time and whether IPOPT converged, from the straight line."""
        n, nodes, intervals = self.n, self.intervals + 1, self.intervals
        line = start[:, None] + np.outer(end - start, np.linspace(0.0, 1.0, nodes))
        rate = np.repeat(((end - start) / guess)[:, None], nodes, axis=1)
        zeros = np.zeros((n, nodes))
        x0 = [line, rate, zeros, zeros[:, 1:]]
        lower = [np.full(x.shape, -np.inf) for x in x0]
        lower[1] = np.repeat(-self.speed[:, None], nodes, axis=1)
        upper = [-x for x in lower]
        for pose, k in ((start, 0), (end, -1)):
            for x in (lower, upper):
                x[0][:, k], x[1][:, k] = pose, 0.0
        equal = np.zeros(2 * n * intervals)
        unit = np.ones(n * (nodes + intervals))
        fastest = np.tile(self.speed, intervals)
        columns = [np.concatenate([part.T.ravel() for part in x]) for x in (x0, lower, upper)]
        found = self.solver(
            x0=np.append(columns[0], guess),
            lbx=np.append(columns[1], 1e-3),
            ubx=np.append(columns[2], np.inf),
            lbg=np.concatenate([equal, -unit, -fastest]),
            ubg=np.concatenate([equal, unit, fastest]),
        )
        return {
            "objective": float(found["f"]),
            "final_time": float(found["x"][-1]),
            "converged": bool(self.solver.stats()["success"]),
        }


def answer(request: dict) -> dict:
    """Solve every task on every grid: {"name", "robot", "start", "end", "guess", "weight"}."""
    results = []
    for task in request["tasks"]:
        for intervals in request["intervals"]:
            began = time.perf_counter()
            direct = Transcription(task["robot"], intervals, task["weight"])
            setup, times = time.perf_counter() - began, []
            for _ in range(request["repeats"]):
                began = time.perf_counter()
                found = direct.solve(np.array(task["start"]), np.array(task["end"]), task["guess"])
                times.append(time.perf_counter() - began)
            results.append(
                {
                    "task": task["name"],
                    "intervals": intervals,
                    "setup_s": setup,
                    "run_s": statistics.median(times),
                    **found,
                }
            )
    return {"results": results, "casadi": ca.__version__}


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
