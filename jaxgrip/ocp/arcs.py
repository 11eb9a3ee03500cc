"""The unknowns of multiple shooting and the structure that they belong to, as data."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import roots_jacobi

from jaxgrip.ocp.constraints import Active
from jaxgrip.ocp.problem import Problem

LOWER, INTERIOR, UPPER, SINGULAR, FALLING, RISING = -1, 0, 1, 2, 3, 4
# What fixes the end of an arc.
SUBDIVISION, SWITCH, SATURATION, TANGENCY, CONTACT, RELEASE, TOUCH, RATE = range(8)


class Features(eqx.Module):
    """What a structure contains beside bounds on controls; each adds to the compiled code.

    `singular`, whether there are singular arcs; `active`, the constraints that are active
    somewhere; `limited`, the controls whose rate is at a bound somewhere. While it is, the control
    is a state with a costate of its own.
    """

    singular: bool = eqx.field(static=True, default=False)
    active: tuple[Active, ...] = eqx.field(static=True, default=())
    limited: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def n_jumps(self) -> int:
        """Largest number of jump parameters at an arc's end."""
        return max((order for _, order in self.active), default=0)


class EndKinds(NamedTuple):
    """LOWER or UPPER where the final `time` or a free component `(n,)` of the initial state `start`
    lies on that bound, INTERIOR elsewhere.
    """

    time: Int[Array, ""]
    start: Int[Array, " n"]


class ArcPlan(NamedTuple):
    """The structure of a solution as data.

    `kinds` `(arcs, m)`: LOWER, INTERIOR, UPPER, SINGULAR, or FALLING and RISING where the control's
    rate is at a bound; `active` `(arcs, c)`: whether each constraint of the [`Features`][] holds
    with equality.

    For the end of each arc but the last, and then for the start value of each limited control,
    `(arcs - 1 + r,)`: `rule`, the condition that fixes it; `control` or `constraint`, which one it
    is about; `at`, the arc at whose end the condition holds. The rules:

    - SUBDIVISION: halfway between its neighbours; a start value that nothing depends on is zero;
    - SWITCH: the switching function vanishes;
    - SATURATION: the control reaches the bound that the next arc names;
    - TANGENCY: the switching function has zero slope;
    - CONTACT: the constraint's highest derivative vanishes, so that the control is continuous;
    - RELEASE: the constraint's multiplier vanishes;
    - TOUCH: the constraint has a maximum;
    - RATE: the costate of a limited control vanishes.

    `at` is the arc itself, except that a segment with two conditions at one end and none at the
    other names that end twice: a singular arc its entry, a rate arc its exit.

    `jumps` `(arcs - 1,)`: how many jump parameters the costate has there, of which constraint
    `jump_constraint`. `ends`: the [`EndKinds`][].
    """

    kinds: Int[Array, "arcs m"]
    active: Bool[Array, "arcs c"]
    rule: Int[Array, " conditions"]
    control: Int[Array, " conditions"]
    constraint: Int[Array, " conditions"]
    at: Int[Array, " conditions"]
    jumps: Int[Array, " boundaries"]
    jump_constraint: Int[Array, " boundaries"]
    ends: EndKinds


class Arcs(NamedTuple):
    """Unknowns of the boundary-value problem.

    y = (x, costate, limited controls, their costates), v = (controls, multipliers of constraints).
    `start` `(arcs, y)` at the beginning of each arc, `stage` `(arcs, intervals, s, y)`, `stage_v`
    `(arcs, intervals, s, v)`, `jump` `(arcs - 1, P)` of the costate, `times` `(arcs,)` ends of the
    arcs [s], `boundary_multiplier` `(b,)`. The last stage of an interval is its end.
    """

    start: Float[Array, "arcs y"]
    stage: Float[Array, "arcs intervals s y"]
    stage_v: Float[Array, "arcs intervals s v"]
    jump: Float[Array, "boundaries P"]
    times: Float[Array, " arcs"]
    boundary_multiplier: Float[Array, " b"]


class Scales(NamedTuple):
    """Typical sizes of y, v, time, switching functions `(m,)`, H, constraints `(c,)` and boundary
    conditions `(b,)`.
    """

    y: Float[Array, " y"]
    v: Float[Array, " v"]
    time: Float[Array, ""]
    switching: Float[Array, " m"]
    hamiltonian: Float[Array, ""]
    constraint: Float[Array, " c"]
    boundary: Float[Array, " b"]


def radau(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `(s,)` and matrix `(s, s)` of the Radau IIA method on [0, 1]; its last row weighs.

    Source: Hairer 1996, section IV.5.
    """
    inner = roots_jacobi(stages - 1, 1, 0)[0] if stages > 1 else np.zeros(0)
    c = np.append(0.5 * (inner + 1.0), 1.0)
    powers = np.arange(1, stages + 1)
    return c, (c[:, None] ** powers / powers) @ np.linalg.inv(c[:, None] ** (powers - 1))


def to_monomials(stages: int) -> np.ndarray:
    """Matrix `(s, s)` from values at the Radau nodes to the coefficients of their polynomial."""
    nodes, _ = radau(stages)
    return np.linalg.inv(nodes[:, None] ** np.arange(stages))


def select_bound(
    kinds: Int[Array, " *k"], lower: Float[Array, " *k"], upper: Float[Array, " *k"]
) -> Float[Array, " *k"]:
    """The bound that each kind names; zero where it names none."""
    return jnp.where(kinds == UPPER, upper, jnp.where(kinds == LOWER, lower, 0.0))


def bounds_of(problem: Problem, kinds: Int[Array, " m"]) -> Float[Array, " m"]:
    """The bound `(m,)` of each control that its kind names; zero where it names none."""
    return select_bound(kinds, problem.lower, problem.upper)


def interval_lengths(arcs: Arcs) -> Float[Array, " arcs"]:
    """Length `(arcs,)` of the intervals of each arc [s]."""
    return jnp.diff(arcs.times, prepend=0.0) / arcs.stage.shape[1]


def interval_starts(arcs: Arcs) -> Float[Array, "arcs intervals y"]:
    """(x, costate, ...) at the start of every interval."""
    return jnp.concatenate([arcs.start[:, None], arcs.stage[:, :-1, -1]], axis=1)


def ends_of(arcs: Arcs):
    """y at the start, the final time, y at the end, the multipliers of the boundary conditions."""
    return arcs.start[0], arcs.times[-1], arcs.stage[-1, -1, -1], arcs.boundary_multiplier


class Sizes(NamedTuple):
    """Typical sizes of what belongs to the constraints, `(c,)` and `(c, P)`.

    `highest` derivatives; `level`, those below; `jump` parameters: what moves the costate as much
    as its own size; `boundary_multiplier` `(b,)`, likewise.
    """

    highest: Float[Array, " c"]
    level: Float[Array, "c P"]
    jump: Float[Array, "c P"]
    boundary_multiplier: Float[Array, " b"]


def sizes_of(scales: Scales, features: Features) -> Sizes:
    """Sizes that follow from the scales and the orders of the constraints."""
    order = np.array([order for _, order in features.active], dtype=float)
    k = np.arange(float(features.n_jumps))
    size = scales.constraint[:, None]
    return Sizes(
        scales.constraint / scales.time**order,
        size / scales.time ** k[None],
        scales.hamiltonian * scales.time ** (k[None] + 1.0) / size,
        scales.hamiltonian * scales.time / scales.boundary,
    )
