"""Answers to optimal control problems without a closed form, by CasADi and IPOPT.

Writes `ocp_problems.json`. Needs CasADi and NumPy, not jaxgrip; from the repository root:

    python -m tests.reference.make_ocp_problems

A transcription of the whole motion shows its arcs; what holds on them is written down below. Then
the motion is cut into one phase of unknown length an arc, so that everything inside is smooth and
collocation converges as fast as its order says. Where the Hamiltonian is linear in the control,
the lengths of the phases are optimised. Where it is not, the objective hardly depends on them, and
the equations of the minimum principle are solved. That the inequalities hold is checked afterwards.
Each problem is solved on two grids, and the changes between them are kept with the answer.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import casadi as ca
import numpy as np

INF = np.inf


@dataclass(frozen=True)
class Phase:
    """An arc: its length as guessed; `hold(x, u)` vanishes on it, `enter(x)` at its start.

    `enter` is a constraint of order one on the state, or the surface of a singular arc.
    """

    length: float
    hold: Callable | None = None
    enter: Callable | None = None


@dataclass(frozen=True)
class Statement:
    """A problem, stated anew and not taken from the library."""

    rate: Callable
    start: tuple
    end: tuple
    lower: tuple
    upper: tuple
    phases: tuple[Phase, ...]
    final_time: float | None = None
    running: Callable | None = None
    terminal: Callable | None = None
    path: Callable | None = None
    guess: Callable | None = None


def rocket(x, u):
    r, v, m = ca.vertsplit(x)
    drag = 310.0 * v**2 * ca.exp(-500.0 * (r - 1.0))
    return ca.vertcat(v, (3.5 * u[0] - drag) / m - 1.0 / r**2, -7.0 * u[0])


def singular_rocket(x):
    """Zero on singular arcs: S = S' = H = 0 without the costates."""
    r, v, m = ca.vertsplit(x)
    drag = 310.0 * v**2 * ca.exp(-500.0 * (r - 1.0))
    return drag * (1.0 + 2.0 * v) - m / r**2


def van_der_pol(x, u):
    return ca.vertcat((1.0 - x[1] ** 2) * x[0] - x[1] + u[0], x[0])


def rayleigh(x, u):
    return ca.vertcat(x[1], -x[0] + x[1] * (1.4 - 0.14 * x[1] ** 2) + 4.0 * u[0])


def catalyst(x, u):
    made = u[0] * (10.0 * x[1] - x[0])
    return ca.vertcat(made, -made - (1.0 - u[0]) * x[1])


def singular_catalyst(x):
    """Zero on singular arcs: S and S' are linear in the two costates, so a determinant vanishes."""
    first = 10.0 * x[1] - x[0]
    second = x[1] - first
    return first * (9.0 * x[1] + second) + 10.0 * x[1] * second


def pendulum(x, u):
    return ca.vertcat(x[1], u[0] - ca.sin(x[0]))


def rayleigh_band(x, u):
    mixed = u[0] + x[0] / 6.0
    return ca.vertcat(-1.0 - mixed, mixed)


def rayleigh_cost(x, u):
    return u[0] ** 2 + x[0] ** 2


def squares(x, u):
    return ca.sumsqr(x) + u[0] ** 2


ROCKET = {
    "rate": rocket,
    "start": (1.0, 0.0, 1.0),
    "end": (None, None, 0.6),
    "lower": (0.0,),
    "upper": (1.0,),
    "terminal": lambda x: -x[0],
}
OSCILLATOR = {
    "rate": van_der_pol,
    "start": (0.0, 1.0),
    "end": (None, None),
    "lower": (-1.0,),
    "upper": (1.0,),
    "final_time": 10.0,
    "running": squares,
}
DIODE = {"rate": rayleigh, "start": (-5.0, -5.0), "final_time": 4.5, "running": rayleigh_cost}


def at(bound):
    return lambda x, u: u[0] - bound


def staying(surface, rate):
    """Zero where the motion does not leave a surface of the state space."""

    def hold(x, u):
        z = ca.MX.sym("z", x.numel())
        return ca.substitute(ca.jtimes(surface(z), z, rate(z, u)), z, x)

    return hold


def to_speed_limit(x):
    return x[1] - 0.1


def to_lowest(x):
    return -0.25 - x[0]


def lower_mix(x, u):
    return rayleigh_band(x, u)[0]


def upper_mix(x, u):
    return rayleigh_band(x, u)[1]


SINGULAR_ROCKET = staying(singular_rocket, rocket)
# By the function of the library and its keywords.
STATEMENTS = {
    ("goddard", ("speed_limit", 0.1)): Statement(
        **ROCKET,
        path=lambda x, u: to_speed_limit(x),
        phases=(
            Phase(0.0235, at(1.0)),
            Phase(0.0362, SINGULAR_ROCKET, singular_rocket),
            Phase(0.0418, staying(to_speed_limit, rocket), to_speed_limit),
            Phase(0.1005, at(0.0)),
        ),
    ),
    ("goddard", ("speed_limit", None)): Statement(
        **ROCKET,
        phases=(
            Phase(0.0238, at(1.0)),
            Phase(0.05, SINGULAR_ROCKET, singular_rocket),
            Phase(0.125, at(0.0)),
        ),
    ),
    ("van_der_pol", ("lowest", -0.25)): Statement(
        **OSCILLATOR,
        path=lambda x, u: to_lowest(x),
        phases=(Phase(0.36), Phase(2.6, staying(to_lowest, van_der_pol), to_lowest), Phase(7.04)),
    ),
    ("van_der_pol", ("lowest", None)): Statement(
        **OSCILLATOR, phases=(Phase(1.035), Phase(0.42, at(1.0)), Phase(8.545))
    ),
    ("rayleigh",): Statement(
        **DIODE,
        end=(0.0, 0.0),
        lower=(-1.0,),
        upper=(1.0,),
        phases=(Phase(1.04, at(1.0)), Phase(0.71), Phase(1.09, at(-1.0)), Phase(1.66)),
    ),
    ("rayleigh_mixed",): Statement(
        **DIODE,
        end=(None, None),
        lower=(-INF,),
        upper=(INF,),
        path=rayleigh_band,
        phases=(
            Phase(1.21, upper_mix),
            Phase(0.48),
            Phase(1.1, lower_mix),
            Phase(0.27),
            Phase(1.22, upper_mix),
            Phase(0.22),
        ),
    ),
    ("catalyst_mixing",): Statement(
        rate=catalyst,
        start=(1.0, 0.0),
        end=(None, None),
        lower=(0.0,),
        upper=(1.0,),
        final_time=1.0,
        terminal=lambda x: x[0] + x[1] - 1.0,
        phases=(
            Phase(0.136, at(1.0)),
            Phase(0.59, staying(singular_catalyst, catalyst), singular_catalyst),
            Phase(0.274, at(0.0)),
        ),
    ),
    ("pendulum_swing_up",): Statement(
        rate=pendulum,
        start=(0.0, 0.0),
        end=(np.pi, 0.0),
        lower=(-0.6,),
        upper=(0.6,),
        guess=lambda s: [np.pi * s, 0.0],
        phases=(Phase(1.68, at(-0.6)), Phase(3.72, at(0.6)), Phase(1.3, at(-0.6))),
    ),
}


def points(degree):
    """Radau points with zero, the matrix `(all, without zero)` that differentiates, weights."""
    tau = np.append(0.0, ca.collocation_points(degree, "radau"))

    gap = tau[:, None] - tau + np.eye(degree + 1)
    barycentric = 1.0 / np.prod(gap, axis=1)
    slope = barycentric / barycentric[:, None] / gap
    # A row adds up to zero: differences of rounded entries would leave a drift of 1e-10.
    slope -= np.diag(slope.sum(axis=1))
    moments = np.polynomial.legendre.legvander(2.0 * tau[1:] - 1.0, degree - 1).T
    weights = np.linalg.solve(moments, np.eye(degree)[0])
    return tau, slope[1:].T, weights


class Program:
    """Unknowns with their guesses and bounds, and the constraints on them."""

    def __init__(self):
        self.w, self.guess, self.lower, self.upper = [], [], [], []
        self.g, self.least, self.most = [], [], []

    def unknown(self, guess, lower=-INF, upper=INF):
        guess = np.atleast_1d(np.asarray(guess, float))
        symbol = ca.MX.sym(f"w{len(self.w)}", guess.size)
        self.w.append(symbol)
        self.guess.extend(guess)
        self.lower.extend(np.broadcast_to(lower, guess.size))
        self.upper.extend(np.broadcast_to(upper, guess.size))
        return symbol

    def demand(self, expression, least=0.0):
        self.g.append(expression)
        self.least.extend([least] * expression.numel())
        self.most.extend([0.0] * expression.numel())

    def solve(self, cost, outputs):
        """Values of some expressions at the optimum, and the multipliers of the constraints.

        Without a cost the constraints are as many equations as there are unknowns.
        """
        w, g = ca.vertcat(*self.w), ca.vertcat(*self.g)
        options = {
            "print_level": 0,
            "sb": "yes",
            "tol": 1e-13,
            "constr_viol_tol": 1e-13,
            "dual_inf_tol": 1e-10,
            "compl_inf_tol": 1e-13,
            "bound_relax_factor": 0.0,
            "max_iter": 1000,
            "mu_strategy": "adaptive",
        }
        solver = ca.nlpsol(
            "solver",
            "ipopt",
            {"x": w, "f": 0.0 if cost is None else cost, "g": g},
            {"ipopt": options, "print_time": False},
        )
        out = solver(x0=self.guess, lbx=self.lower, ubx=self.upper, lbg=self.least, ubg=self.most)
        print("  ", solver.stats()["return_status"], file=sys.stderr)
        found = out["x"]
        if cost is None:
            # IPOPT accepts a point where its filter makes no progress, Newton's method does.
            system = ca.Function("system", [w], [g, ca.jacobian(g, w)])
            for _ in range(5):
                residual, jacobian = system(found)
                found = found - ca.solve(jacobian, residual, "csparse")
        values = ca.Function("outputs", [w], outputs)(found)
        return [np.array(value) for value in values], np.array(out["lam_g"]).ravel()


@dataclass(frozen=True)
class Course:
    """A motion at its collocation points; `ends` of its phases [s], costate at the `start`."""

    objective: float
    ends: np.ndarray
    start: np.ndarray
    t: np.ndarray
    x: np.ndarray
    costate: np.ndarray
    u: np.ndarray

    def at(self, t):
        return [
            np.array([np.interp(t, self.t, column) for column in rows.T])
            for rows in (self.x, self.costate, self.u)
        ]


def times(ends, intervals, tau):
    grid = np.concatenate([(k + tau[1:]) / intervals for k in range(intervals)])
    return np.concatenate([a + (b - a) * grid for a, b in pairwise([0.0, *ends])])


def first_guess(problem, s):
    """Straight from start to end, at a share `s` of the time."""
    end = [a if b is None else b for a, b in zip(problem.start, problem.end, strict=True)]
    x = (1.0 - s) * np.array(problem.start) + s * np.array(end)
    sides = zip(problem.lower, problem.upper, strict=True)
    middle = np.array([0.5 * (a + b) if np.isfinite(b - a) else 0.0 for a, b in sides])
    return np.array(problem.guess(s)) if problem.guess else x, None, middle


def optimise(problem, phases, intervals, degree, course=None):
    """Direct transcription; with inequalities where it is a single phase."""
    tau, slope, weights = points(degree)
    program, cost, states, controls, lengths = Program(), 0.0, [], [], []
    lower, upper = np.array(problem.lower), np.array(problem.upper)
    whole = len(phases) == 1
    total, began = sum(phase.length for phase in phases), 0.0
    x = program.unknown(problem.start)
    program.demand(x - ca.DM(problem.start))
    defects = []
    for phase in phases:
        length = program.unknown(phase.length, 0.0)
        lengths.append(length)
        if phase.enter is not None:
            program.demand(phase.enter(x))
        h = length / intervals
        for k in range(intervals):
            t = began + phase.length * (k + tau[1:]) / intervals
            guesses = [course.at(s) if course else first_guess(problem, s / total) for s in t]
            xs = [x, *(program.unknown(guess[0]) for guess in guesses)]
            sides = (lower, upper) if whole else (-INF, INF)
            us = [program.unknown(guess[2], *sides) for guess in guesses]
            for i, (x, u) in enumerate(zip(xs[1:], us, strict=True)):
                defects.append(sum(each.numel() for each in program.g))
                derivative = sum(slope[j, i] * xs[j] for j in range(degree + 1))
                program.demand(derivative - h * problem.rate(x, u))
                if problem.running is not None:
                    cost += h * weights[i] * problem.running(x, u)
                if phase.hold is not None:
                    program.demand(phase.hold(x, u))
                if whole and problem.path is not None:
                    program.demand(problem.path(x, u), -INF)
            states += xs[1:]
            controls += us
        began += phase.length
    finish(program, problem, x, sum(lengths))
    if problem.terminal is not None:
        cost += problem.terminal(x)
    if problem.running is None and problem.terminal is None:
        cost += sum(lengths)
    outputs = [cost, ca.vertcat(*lengths), ca.horzcat(*states), ca.horzcat(*controls)]
    (cost, lengths, states, controls), dual = program.solve(cost, outputs)
    ends = np.cumsum(lengths)
    n = len(problem.start)
    # A defect holds -h f, and the cost h times the weight times L.
    costate = [-dual[row : row + n] / weights[i % degree] for i, row in enumerate(defects)]
    return Course(
        cost.item(),
        ends,
        -dual[:n],
        times(ends, intervals, tau),
        states.T,
        np.array(costate),
        controls.T,
    )


def finish(program, problem, x, final_time):
    for i, value in enumerate(problem.end):
        if value is not None:
            program.demand(x[i] - value)
    if problem.final_time is not None:
        program.demand(final_time - problem.final_time)


def satisfy(problem, phases, intervals, degree, course):
    """Solve the equations of the minimum principle, fixed final time and one control."""
    tau, slope, weights = points(degree)
    n = len(problem.start)
    program, cost, states, costates, controls, lengths = Program(), 0.0, [], [], [], []
    x, p, u, mu = ca.MX.sym("x", n), ca.MX.sym("p", n), ca.MX.sym("u"), ca.MX.sym("mu")
    began = 0.0
    x_end = program.unknown(problem.start)
    p_start = p_end = program.unknown(course.start)
    program.demand(x_end - ca.DM(problem.start))
    for index, phase in enumerate(phases):
        held = phase.hold(x, u) if phase.hold is not None else mu
        multiplied = mu * held if phase.hold is not None else 0.0
        hamiltonian = problem.running(x, u) + ca.dot(p, problem.rate(x, u)) + multiplied
        law = ca.Function(
            "law",
            [x, p, u, mu],
            [
                problem.rate(x, u),
                -ca.gradient(hamiltonian, x),
                ca.vertcat(ca.gradient(hamiltonian, u), held),
            ],
        )
        length = program.unknown(phase.length)
        lengths.append(length)
        h = length / intervals
        if phase.enter is not None:
            # The costate jumps where a constraint on the state begins to hold.
            program.demand(phase.enter(x_end))
            gradient = ca.substitute(ca.gradient(phase.enter(x), x), x, x_end)
            p_end = p_end - program.unknown(0.0) * gradient
        for k in range(intervals):
            t = began + phase.length * (k + tau[1:]) / intervals
            guesses = [course.at(s) for s in t]
            xs = [x_end, *(program.unknown(guess[0]) for guess in guesses)]
            ps = [p_end, *(program.unknown(guess[1]) for guess in guesses)]
            for i in range(degree):
                v, m = program.unknown(guesses[i][2]), program.unknown(0.0)
                x_rate, p_rate, conditions = law(xs[i + 1], ps[i + 1], v, m)
                program.demand(sum(slope[j, i] * xs[j] for j in range(degree + 1)) - h * x_rate)
                program.demand(sum(slope[j, i] * ps[j] for j in range(degree + 1)) - h * p_rate)
                program.demand(conditions)
                cost += h * weights[i] * problem.running(xs[i + 1], v)
                controls.append(v)
            states += xs[1:]
            costates += ps[1:]
            x_end, p_end = xs[-1], ps[-1]
        began += phase.length
        if index + 1 < len(phases):
            # The control is continuous where it begins or ends to be free.
            program.demand(m if phase.hold is not None else phases[index + 1].hold(x_end, v))
    finish(program, problem, x_end, sum(lengths))
    for i, value in enumerate(problem.end):
        if value is None:
            program.demand(p_end[i])
    outputs = [ca.vertcat(*lengths), p_start, cost]
    outputs += [ca.horzcat(*rows) for rows in (states, costates, controls)]
    (lengths, p_start, cost, *courses), _ = program.solve(None, outputs)
    ends = np.cumsum(lengths)
    return Course(
        cost.item(), ends, p_start.ravel(), times(ends, intervals, tau), *(v.T for v in courses)
    )


def largest_breach(problem, course):
    """How far the inequalities are broken at the worst point."""
    worst = max(np.max(problem.lower - course.u), np.max(course.u - problem.upper))
    if problem.path is not None:
        values = [problem.path(ca.DM(x), ca.DM(u)) for x, u in zip(course.x, course.u, strict=True)]
        worst = max(worst, np.max(np.array(values)))
    return float(worst)


def answer(key):
    """The answer to one problem, and how much it changes between two grids."""
    problem = STATEMENTS[key]
    name, keywords = key[0], dict(key[1:])
    print(name, keywords, file=sys.stderr)
    whole = Phase(sum(phase.length for phase in problem.phases))
    guess = optimise(problem, (whole,), 100, 3)
    is_linear = problem.running is None
    method = optimise if is_linear else satisfy
    coarse = method(problem, problem.phases, 12, 7, guess)
    lengths = np.diff(coarse.ends, prepend=0.0)
    phases = [replace(p, length=t) for p, t in zip(problem.phases, lengths, strict=True)]
    fine = method(problem, phases, 24, 7, coarse)
    breach = largest_breach(problem, fine)
    if breach > 1e-9:
        raise RuntimeError(f"{name}: an inequality is broken by {breach}.")

    def change(field):
        return float(np.max(np.abs(getattr(fine, field) - getattr(coarse, field))))

    return {
        "problem": name,
        "keywords": keywords,
        "objective": fine.objective,
        "final_time": float(fine.ends[-1]),
        "switching_times": fine.ends[:-1].tolist(),
        "costate": fine.start.tolist(),
        "objective_whole": guess.objective,
        "change": {field: change(field) for field in ("objective", "ends", "start")},
        "breach": breach,
        "method": "lengths optimised" if is_linear else "minimum principle",
    }


def main():
    answers = {
        "about": {
            "casadi": ca.__version__,
            "costate": "at the start, sign of the minimum principle",
            "objective_whole": "one phase, 100 intervals of degree 3, with inequalities",
            "change": "from 12 to 24 intervals a phase, degree 7: objective, times, costate",
        },
        "answers": [answer(key) for key in STATEMENTS],
    }
    path = Path(__file__).with_name("ocp_problems.json")
    path.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
