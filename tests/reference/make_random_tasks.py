"""Minimum-time motions of the gripper fingers between random poses, by CasADi and IPOPT.

Writes `random_tasks.json`. Needs CasADi, NumPy and SciPy, not jaxgrip; from the repository root:

    python -m tests.reference.make_random_tasks

A direct transcription with 200 intervals from several guesses finds the extremals and the order of
their arcs. Then the equations of the minimum principle are solved arc by arc: states and costates
at the start of each arc and the durations are unknown; continuity, the end state, H = 0, S = 0 at a
switch between bounds and S = S' = 0 at the entry of a singular arc are the equations. An extremal
is kept if all its conditions hold.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import casadi as ca
import numpy as np
from scipy.integrate import solve_ivp

from experiments.benchmarks.casadi_ocp import LIMITS_DEG, TORQUE, Motion, Transcription, finger

SEED = 2007
COUNT = 20
INTERVALS = 200
FINE_INTERVALS = 800
TIME_GUESSES = (0.05, 0.13, 0.3)
STRAIGHT = 1
PERTURBED = 10
SAME_TIME = 1e-7
INTERIOR = 0.985
# Guesses that lead to extremals which the others miss: intervals, final time, bend.
RARE = {9: ((100, 0.0573, (1.635, 0.273, -1.233, -0.958, 1.6, 0.203)),)}


def tasks() -> list[dict]:
    """Start and end poses inside the joint limits, at least 20 degrees apart in some joint."""
    rng = np.random.default_rng(SEED)
    drawn = []
    for index in range(COUNT):
        name = "AB"[index % 2]
        lower, upper = np.array(LIMITS_DEG[name]).T
        start = end = lower
        while np.max(np.abs(end - start)) < 20.0:
            start, end = rng.uniform(lower, upper), rng.uniform(lower, upper)
        drawn.append({"index": index, "finger": name, "start_deg": start, "end_deg": end})
    return drawn


class Extremals:
    """Hamiltonian system of a finger, integrated over one arc by Dormand-Prince steps."""

    def __init__(self, torque: tuple[float, ...], steps: int):
        self.torque = np.asarray(torque)
        x, p, u = ca.SX.sym("x", 6), ca.SX.sym("p", 6), ca.SX.sym("u", 3)
        bang, singular = ca.SX.sym("bang", 3), ca.SX.sym("singular", 3)
        y, f = ca.vertcat(x, p), finger(x, u)
        hamiltonian = ca.dot(p, f)
        flow = ca.vertcat(f, -ca.gradient(hamiltonian, x))
        s = ca.substitute(ca.gradient(hamiltonian, u), u, 0 * u)
        ds = ca.jtimes(s, y, flow)
        dds = ca.jtimes(ds, y, flow)
        gain = ca.diag(ca.jacobian(dds, u))
        # On a singular arc S'' = 0 gives the control; the others sit on their bounds.
        feedback = ca.vertcat(
            *(
                ca.if_else(
                    singular[j],
                    -ca.substitute(ca.substitute(dds[j], u[j], 0), u, bang)
                    / ca.substitute(gain[j], u, bang),
                    bang[j],
                )
                for j in range(3)
            )
        )
        flow = ca.substitute(flow, u, feedback)
        kinds = [bang, singular]
        self.f = ca.Function("f", [x, u], [f])
        self.control = ca.Function("control", [y, *kinds], [feedback])
        self.flow = ca.Function("flow", [y, *kinds], [flow])
        self.switching = ca.Function("switching", [y], [s])
        self.slope = ca.Function("slope", [y, *kinds], [ca.substitute(ds, u, feedback)])
        self.gain = ca.Function("gain", [y, *kinds], [ca.substitute(gain, u, feedback)])
        h = ca.SX.sym("h")
        step = ca.Function("step", [y, h, *kinds], [_dormand_prince(self.flow, y, h, kinds)])
        at, duration = ca.MX.sym("at", 12), ca.MX.sym("duration")
        which = [ca.MX.sym("bang", 3), ca.MX.sym("singular", 3)]
        repeated = [ca.repmat(a, 1, steps) for a in (duration / steps, *which)]
        path = step.mapaccum("path", steps)(at, *repeated)
        self.arc = ca.Function("arc", [at, duration, *which], [path[:, -1]])

    def data(self, kinds: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Bang values and singular flags of an arc of the given kinds (-1, 0 singular, +1)."""
        return np.array(kinds) * self.torque, (np.array(kinds) == 0).astype(float)

    def equations(self, arcs: list[tuple[int, ...]], x0: np.ndarray, xf: np.ndarray):
        """Residual and Jacobian as a function of (durations, costate at 0, later arc starts)."""
        durations = ca.MX.sym("durations", len(arcs))
        costate = ca.MX.sym("costate", 6)
        starts = [ca.vertcat(x0, costate)]
        starts += [ca.MX.sym(f"y{k}", 12) for k in range(1, len(arcs))]
        first = self.data(arcs[0])
        residual = [1 + ca.dot(costate, self.f(x0, self.control(starts[0], *first)))]
        for k, kinds in enumerate(arcs):
            end = self.arc(starts[k], durations[k], *self.data(kinds))
            if k == len(arcs) - 1:
                residual.append(end[:6] - xf)
                break
            after = starts[k + 1]
            residual.append(after - end)
            for j in range(3):
                if kinds[j] in (0, arcs[k + 1][j]):
                    continue
                residual.append(self.switching(after)[j])
                if arcs[k + 1][j] == 0:
                    residual.append(self.slope(after, *self.data(kinds))[j])
        z, e = ca.vertcat(durations, costate, *starts[1:]), ca.vertcat(*residual)
        if z.numel() != e.numel():
            raise ArithmeticError("as many equations as unknowns are needed")
        return ca.Function("equations", [z], [e, ca.jacobian(e, z)])

    def solve(
        self, arcs: list[tuple[int, ...]], z: np.ndarray, x0: np.ndarray, xf: np.ndarray
    ) -> np.ndarray:
        """Newton's method with row and column scaling; ArithmeticError where it fails."""
        equations = self.equations(arcs, x0, xf)
        for _ in range(40):
            e, jacobian = (part.full() for part in equations(z))
            rows = np.abs(jacobian).max(axis=1, keepdims=True)
            columns = np.abs(jacobian / rows).max(axis=0)
            step = -np.linalg.solve(jacobian / rows / columns, (e / rows)[:, 0]) / columns
            shrink = 1.0
            while np.any((z + shrink * step)[: len(arcs)] <= 0.0) and shrink > 1e-6:
                shrink /= 2
            z = z + shrink * step
            if not np.all(np.isfinite(z)):
                break
            if shrink == 1.0 and np.max(np.abs(step * columns)) < 1e-9:
                return z
        raise ArithmeticError("Newton's method did not converge")


def _dormand_prince(flow: ca.Function, y: ca.SX, h: ca.SX, kinds: list[ca.SX]) -> ca.SX:
    table = (
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    )
    weights = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
    stages = []
    for row in table:
        at = y + h * sum((a * k for a, k in zip(row, stages, strict=True)), ca.SX(12, 1))
        stages.append(flow(at, *kinds))
    return y + h * sum(w * k for w, k in zip(weights, stages, strict=True))


@dataclass
class Structure:
    """Arcs in order, `arcs[k][j]` in -1, 0, +1, and where they begin and end, `tau` (A + 1,)."""

    arcs: list[tuple[int, ...]]
    tau: list[float]


def structure(motion: Motion, torque: tuple[float, ...]) -> Structure:
    """Read the arcs off the controls: interior over three intervals or more means singular."""
    use = motion.u / np.array(torque)[:, None]
    width = 1.0 / use.shape[1]
    first, changes = [], []
    for j, row in enumerate(use):
        kind = np.where(row > INTERIOR, 1, np.where(row < -INTERIOR, -1, 0))
        edges = np.flatnonzero(np.diff(kind)) + 1
        runs = [
            (int(kind[a]), a, b)
            for a, b in zip([0, *edges], [*edges, kind.size], strict=True)
            if kind[a] != 0 or b - a >= 3
        ]
        first.append(runs[0][0])
        for (before, _, end), (after, begin, _) in pairwise(runs):
            if after == before:
                continue
            share = 0.5 * (begin - end)
            if after != 0 and before != 0:
                share = np.sum((row[end:begin] - after) / (before - after))
            changes.append(((end + share) * width, j, after))
    arcs, tau = [tuple(first)], [0.0]
    for at, j, kind in sorted(changes):
        arcs.append(tuple(kind if i == j else old for i, old in enumerate(arcs[-1])))
        tau.append(at)
    return Structure(arcs, [*tau, 1.0])


def refine(system: Extremals, motion: Motion, found: Structure) -> tuple[Structure, np.ndarray]:
    """Exact extremal near a transcribed one; a bang arc goes before a saturated singular arc."""
    x0, xf = motion.x[:, 0], motion.x[:, -1]
    arcs, tau = found.arcs, np.array(found.tau)
    for _ in range(2):
        starts = _along(system, motion, arcs[0], tau[:-1])
        lengths = np.maximum(np.diff(tau), 1e-4) * motion.final_time
        guess = np.concatenate([lengths, starts[0, 6:], starts[1:].ravel()])
        z = system.solve(arcs, guess, x0, xf)
        refined = Structure(arcs, _tau(z, len(arcs)))
        k, arc = _saturated(system, refined, z, x0)
        if k is None:
            return refined, z
        arcs = [*arcs[:k], arc, *arcs[k:]]
        tau = np.insert(refined.tau, k + 1, refined.tau[k] + 0.015)
    raise ArithmeticError("a singular control leaves its bounds")


def _tau(z: np.ndarray, count: int) -> list[float]:
    ends = np.cumsum(z[:count])
    return [0.0, *(ends / ends[-1])]


def _along(
    system: Extremals, motion: Motion, first: tuple[int, ...], tau: np.ndarray
) -> np.ndarray:
    x = np.array([np.interp(tau, motion.tau, row) for row in motion.x])
    p = np.array([np.interp(tau, motion.tau[1:], row) for row in motion.costate])
    power = p[:, 0] @ system.f(x[:, 0], np.array(first) * system.torque).full()[:, 0]
    return np.concatenate([x, p / -power]).T


def _starts(z: np.ndarray, count: int, x0: np.ndarray) -> np.ndarray:
    return np.concatenate([x0, z[count:]]).reshape(count, 12)


def _saturated(
    system: Extremals, found: Structure, z: np.ndarray, x0: np.ndarray
) -> tuple[int | None, tuple[int, ...] | None]:
    for k, (kinds, y) in enumerate(zip(found.arcs, _starts(z, len(found.arcs), x0), strict=True)):
        use = system.control(y, *system.data(kinds)).full()[:, 0] / system.torque
        for j in np.flatnonzero(np.abs(use) > 1.0 + 1e-9):
            kind = int(np.sign(use[j]))
            return k, tuple(kind if i == j else old for i, old in enumerate(kinds))
    return None, None


def conditions(
    system: Extremals, found: Structure, z: np.ndarray, x0: np.ndarray, xf: np.ndarray
) -> dict[str, float]:
    """How well the conditions hold, integrated with DOP853, each relative to its own scale."""
    count, steps = len(found.arcs), 200
    y, pieces = np.concatenate([x0, z[count : count + 6]]), []
    for kinds, length, start in zip(found.arcs, z[:count], _starts(z, count, x0), strict=True):
        data = system.data(kinds)

        def rate(t: float, at: np.ndarray, data: tuple = data) -> np.ndarray:
            return system.flow(at, *data).full()[:, 0]

        grid = np.linspace(0.0, length, steps)
        # States go on from arc to arc, which checks them; costates start anew, as they may be
        # unstable forwards.
        y = np.concatenate([y[:6], start[6:]])
        path = solve_ivp(rate, (0, length), y, "DOP853", grid, rtol=1e-11, atol=1e-13).y
        y = path[:, -1]
        many = [np.repeat(np.array(part)[:, None], steps, axis=1) for part in data]
        u = system.control(path, *many).full()
        power = path[6:] * system.f(path[:6], u).full()
        pieces.append((kinds, system.switching(path).full(), u, power, system.gain(path, *many)))
    largest = np.max([np.abs(s).max(axis=1) for _, s, *_ in pieces], axis=0)
    sign, interior, legendre = 0.0, 0.0, -np.inf
    for kinds, s, u, _, gain in pieces:
        for j, kind in enumerate(kinds):
            if kind != 0:
                sign = max(sign, np.max(kind * s[j]) / largest[j])
            else:
                interior = max(interior, np.max(np.abs(u[j])) / system.torque[j] - 1.0)
                legendre = max(legendre, np.max(gain.full()[j]))
                sign = max(sign, np.max(np.abs(s[j])) / largest[j])
    powers = [power for *_, power, _ in pieces]
    hamiltonian = max(np.abs(1.0 + p.sum(axis=0)).max() for p in powers)
    return {
        "end": float(np.max(np.abs(y[:6] - xf))),
        "hamiltonian": float(hamiltonian / max(np.abs(p).max() for p in powers)),
        "sign": float(sign),
        "holds": bool(
            np.max(np.abs(y[:6] - xf)) < 1e-6
            and hamiltonian < 1e-6
            and sign < 1e-6
            and interior <= 0.0
            and legendre <= 0.0
        ),
    }


def motions(task: dict, coarse: Transcription) -> Iterator[Motion]:
    """Transcribed motions of a task: from straight lines, from bent ones, from the rare guesses."""
    start, end = np.deg2rad(task["start_deg"]), np.deg2rad(task["end_deg"])
    for time in TIME_GUESSES:
        yield coarse.solve(start, end, coarse.straight_line(start, end, time))
    rng = np.random.default_rng((SEED, task["index"]))
    bends = [rng.normal(scale=a, size=6) for a in np.linspace(0.3, 2.0, PERTURBED)]
    drawn = [(coarse, TIME_GUESSES[STRAIGHT], bend) for bend in bends]
    rare = [
        (Transcription(TORQUE[task["finger"]], intervals), time, bend)
        for intervals, time, bend in RARE.get(task["index"], ())
    ]
    for transcription, time, bend in drawn + rare:
        guess = transcription.straight_line(start, end, time)
        bump = np.sin(np.pi * np.linspace(0.0, 1.0, transcription.intervals + 1))
        guess[: 6 * bump.size] += np.outer(bump, bend).ravel()
        yield transcription.solve(start, end, guess)


def extremals(task: dict, coarse: Transcription, systems: list[Extremals]) -> list[dict]:
    """All extremals of a task that the guesses lead to, the fastest first."""
    kept: list[dict] = []
    for number, motion in enumerate(motions(task, coarse)):
        if not motion.converged:
            continue
        direct = {"intervals": motion.u.shape[1], "final_time": motion.final_time}
        known = [
            e
            for e in kept
            if e["direct"]["intervals"] == direct["intervals"]
            and abs(e["direct"]["final_time"] - direct["final_time"]) < SAME_TIME
        ]
        if known:
            known[0]["found_from"] += 1
            known[0]["from_straight_line"] |= number == STRAIGHT
            continue
        x0, xf = motion.x[:, 0], motion.x[:, -1]
        try:
            found, z = refine(systems[0], motion, structure(motion, TORQUE[task["finger"]]))
            finer = systems[1].solve(found.arcs, z, x0, xf)
        except (ArithmeticError, np.linalg.LinAlgError):
            continue
        held = conditions(systems[1], found, finer, x0, xf)
        if not held.pop("holds"):
            continue
        count = len(found.arcs)
        times = [float(np.sum(part[:count])) for part in (z, finer)]
        switches = [
            {"tau": at, "joint": j + 1, "from": before[j], "to": after[j]}
            for at, before, after in zip(
                _tau(finer, count)[1:-1], found.arcs, found.arcs[1:], strict=False
            )
            for j in range(3)
            if before[j] != after[j]
        ]
        kept.append(
            {
                "final_time": times[1],
                "accuracy": abs(times[1] - times[0]),
                "direct": direct,
                "from_straight_line": number == STRAIGHT,
                "found_from": 1,
                "start_kinds": found.arcs[0],
                "switches": switches,
                "costate": list(finer[count : count + 6]),
                "conditions": held,
            }
        )
    return sorted(kept, key=lambda e: e["final_time"])


def main() -> None:
    """Solve all tasks and write the file beside this script."""
    coarse = {name: Transcription(torque, INTERVALS) for name, torque in TORQUE.items()}
    fine = {name: Transcription(torque, FINE_INTERVALS) for name, torque in TORQUE.items()}
    systems = {
        name: [Extremals(torque, steps) for steps in (40, 80)] for name, torque in TORQUE.items()
    }
    written = []
    for task in tasks():
        name = task["finger"]
        found = extremals(task, coarse[name], systems[name])
        start, end = np.deg2rad(task["start_deg"]), np.deg2rad(task["end_deg"])
        line = fine[name].solve(
            start, end, fine[name].straight_line(start, end, TIME_GUESSES[STRAIGHT])
        )
        written.append(
            {
                **task,
                "start_deg": list(task["start_deg"]),
                "end_deg": list(task["end_deg"]),
                "final_time_800": line.final_time,
                "extremals": found,
            }
        )
        print(task["index"], name, line.final_time, [e["final_time"] for e in found], flush=True)
    about = {
        "seed": SEED,
        "casadi": ca.__version__,
        "final_time": "arc-by-arc solution of the minimum principle [s]",
        "accuracy": "change of final_time when the steps are halved [s]",
        "direct": "IPOPT, equal intervals of constant control, above the optimum",
        "final_time_800": f"the same, {FINE_INTERVALS} intervals, from the straight line",
        "from_straight_line": f"a straight line with final time {TIME_GUESSES[STRAIGHT]} led there",
        "found_from": f"guesses that led there, of {len(TIME_GUESSES) + PERTURBED} and rare ones",
        "switches": "kind of the control: -1 lower bound, 0 singular, 1 upper bound",
    }
    path = Path(__file__).with_name("random_tasks.json")
    path.write_text(json.dumps({"about": about, "tasks": written}, indent=1) + "\n")


if __name__ == "__main__":
    main()
