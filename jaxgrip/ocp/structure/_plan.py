"""Kinds of arcs, what fixes their ends, and the structure of a solution as data."""

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.ocp.hamiltonian import ActiveConstraint

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
    active: tuple[ActiveConstraint, ...] = eqx.field(static=True, default=())
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
