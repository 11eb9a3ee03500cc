"""Kinds of arcs and rules of switching, each in one table."""

import enum


class Kind(enum.IntEnum):
    """Kind of a control on an arc, `words` for it, and its `label` in pictures."""

    def __new__(cls, value: int, words: str, label: str):
        """The number with its words."""
        self = int.__new__(cls, value)
        self._value_, self.words, self.label = value, words, label
        return self

    LOWER = -1, "lower bound", "at a bound"
    INTERIOR = 0, "inside", ""
    UPPER = 1, "upper bound", "at a bound"
    SINGULAR = 2, "singular", "singular"
    FALLING = 3, "falling at its rate bound", "rate at a bound"
    RISING = 4, "rising at its rate bound", "rate at a bound"
    # In segments and pictures: INTERIOR because an active constraint determines the control.
    CONSTRAINED = 5, "determined by a constraint", "determined by a constraint"


class Rule(enum.IntEnum):
    """What fixes the end of an arc, in `words`, and the field of `indirect.Vanishing` that is zero
    there; `is_of_constraint`, whether it is about a constraint and not about a control.
    """

    def __new__(cls, words: str, field: str | None, is_of_constraint: bool = False):
        """The next number with its words."""
        self = int.__new__(cls, len(cls.__members__))
        self._value_, self.words, self.field = len(cls.__members__), words, field
        self.is_of_constraint = is_of_constraint
        return self

    SUBDIVISION = "halfway between the neighbouring ends", None
    SWITCH = "the switching function vanishes", "switching"
    SATURATION = "the control reaches the bound of the next arc", "distance"
    TANGENCY = "the switching function has zero slope", "switching_rate"
    CONTACT = "the constraint's highest derivative vanishes: continuous control", "highest", True
    RELEASE = "the constraint's multiplier vanishes", "multiplier", True
    TOUCH = "the constraint has a maximum", "constraint_rate", True
    RATE = "the costate of the limited control vanishes", "rate_costate"


# Kinds of a constraint in segments.
FREE, ACTIVE = 0, 1


def at_bound(kinds):
    """Whether a control is at a bound."""
    return (kinds == Kind.UPPER) | (kinds == Kind.LOWER)


def at_rate_bound(kinds):
    """Whether the rate of a control is at a bound."""
    return (kinds == Kind.FALLING) | (kinds == Kind.RISING)
