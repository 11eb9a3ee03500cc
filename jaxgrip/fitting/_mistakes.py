"""Simple mistakes in measured series that a model of them reveals."""

import math
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from jaxgrip.checks import brief, check_times, numbers

# A mistake is named where its correction divides the mean square of the difference by this number,
_CLEAR = 10.0
# leaves less than this share of the variance of the model unexplained,
_LEFT = 0.3
# and explains the data this many times better than any other simple mistake.
_BEYOND = 2.0
_LONGEST_SHIFT = 0.25
_TURNS = (1024, 2048, 4096, 8192, 16384, 65536)
# Shifts are looked for with so many samples and steps at most.
_SAMPLES = 4000
_LAGS = 400


class _Factor(NamedTuple):
    """A mistake of scale: measured values are `size` times what they should be."""

    size: float
    sentence: str


def _factors() -> list[_Factor]:
    degrees = 180 / math.pi
    found = [
        _Factor(-1.0, "{name} has the opposite sign: multiply it by -1"),
        _Factor(
            degrees,
            "{name} is in degrees where radians are expected: multiply it by pi/180 = 0.0174533",
        ),
        _Factor(
            1 / degrees,
            "{name} was converted from degrees to radians although it was in radians: multiply it "
            "by 180/pi = 57.2958",
        ),
        _Factor(100.0, "{name} is in per cent: multiply it by 0.01"),
        _Factor(
            0.01, "{name} was divided by 100 although it was no percentage: multiply it by 100"
        ),
        _Factor(1000.0, "{name} is in thousandths of its unit: multiply it by 0.001"),
        _Factor(0.001, "{name} is in thousands of its unit: multiply it by 1000"),
        _Factor(
            1023 / (300 * math.pi / 180),
            "{name} is in ticks of an encoder with 1023 for 300 degrees: multiply it by 0.00511822",
        ),
    ]
    for count in _TURNS:
        size = count / (2 * math.pi)
        found.append(
            _Factor(
                size,
                f"{{name}} is in ticks of an encoder with {count} for a turn: multiply it by "
                f"2 pi/{count} = {1 / size:.6g}",
            )
        )
    return found


def mistakes(
    measured: Float[Array | np.ndarray, " _"],
    simulated: Float[Array | np.ndarray, " _"],
    time: Float[Array | np.ndarray, " _"],
    *,
    name: str = "The series",
) -> tuple[str, ...]:
    """Sentences on the simple mistakes in a measured series that would explain its difference.

    **Arguments:** `measured`, `simulated`: (k,) in the same unit; `time`: (k,) in s, increasing,
    not necessarily at equal steps; `name`: of the series in the sentences.

    Known are degrees for radians, per cent and thousandths (each also the other way round), ticks
    of encoders, the opposite sign, a constant offset and a shift in time, and one of the first
    together with one of the last two. One is named only if its correction leaves a tenth of the
    mean square of the difference and less than 0.3 of the variance of the model, and only half
    of what others leave, or two mistakes a tenth of what one of them leaves.

    **Returns:** the sentences, each with the correction; empty where no mistake is clear.

    **Raises:** `ValueError` for series that are not finite or not as long as `time`.

    Source: own choice.
    """
    time = np.asarray(check_times(time, "time"))
    y, s = (
        np.asarray(numbers(what, value, time.shape))
        for what, value in (("measured", measured), ("simulated", simulated))
    )
    if len(time) < 3 or np.ptp(s) == 0 or np.ptp(y) == 0:
        return ()
    if np.any(np.diff(time) <= 0):
        raise ValueError(f"time must increase; it is {brief(time)}.")
    return _Difference(y, s, time, name).sentences()


class _Explanation(NamedTuple):
    """What a correction leaves: mean square `left` in the model's unit, and `freedom`."""

    left: float
    freedom: int
    factor: int | None
    offset: float
    shift: float


class _Difference:
    def __init__(self, y: np.ndarray, s: np.ndarray, time: np.ndarray, name: str):
        self.model, self.name = (time, s), name
        every = slice(None, None, -(-len(time) // _SAMPLES))
        self.y, self.s, self.time = y[every], s[every], time[every]
        # Less than rounding leaves is no better.
        self.rounding = 1e-16 * float(np.var(s))
        self.factors = _factors()
        self.longest = _LONGEST_SHIFT * (time[-1] - time[0])

    def sentences(self) -> tuple[str, ...]:
        plain = self._left(1.0, False, 0.0)
        variance = float(np.var(self.s))
        one = [self._explained(i, False, False) for i in range(len(self.factors))]
        one += [self._explained(None, True, False), self._explained(None, False, True)]
        best = self._clear(one, plain)
        two = [self._explained(i, True, False) for i in range(len(self.factors))]
        likely = np.argsort([e.left for e in one[: len(self.factors)]])[:3]
        two += [self._explained(int(i), False, True) for i in likely]
        two.append(self._explained(None, True, True))
        # Two mistakes are believed only where neither alone comes near.
        single = min(plain, *(e.left for e in one))
        both = self._clear(two, single)
        found = both or best
        if found is None or found.left > _LEFT * variance:
            return ()
        return tuple(self._said(found, plain))

    def _clear(self, candidates: list[_Explanation], without: float) -> _Explanation | None:
        """The best explanation, if it leaves much less than none and than the others do."""
        first, second = sorted(candidates, key=lambda e: e.left)[:2]
        if first.left * _CLEAR >= without or first.left * _BEYOND >= second.left:
            return None
        return first

    def _explained(self, factor: int | None, offset: bool, shift: bool) -> _Explanation:
        size = 1.0 if factor is None else self.factors[factor].size
        delay = self._delay(size, offset) if shift else 0.0
        left = self._left(size, offset, delay)
        shown = self.y[self._inside(delay)] / size
        constant = float(np.mean(shown - self._moved(delay))) if offset else 0.0
        return _Explanation(left, offset + shift, factor, constant * size, delay)

    def _inside(self, delay: float) -> np.ndarray:
        """Samples at which the model, delayed by this, is known."""
        at = self.time - delay
        return (at >= self.time[0]) & (at <= self.time[-1])

    def _moved(self, delay: float) -> np.ndarray:
        # The model is moved, since it has no noise that interpolation would smooth.
        return np.interp(self.time[self._inside(delay)] - delay, *self.model)

    def _left(self, size: float, offset: bool, delay: float) -> float:
        difference = self.y[self._inside(delay)] / size - self._moved(delay)
        if offset:
            difference = difference - np.mean(difference)
        return float(np.mean(difference**2)) + self.rounding

    def _delay(self, size: float, offset: bool) -> float:
        """The delay of the data behind the model that leaves least, finer than samples."""
        usual = float(np.median(np.diff(self.time)))
        count = min(int(self.longest / usual), _LAGS)
        lags = np.linspace(-self.longest, self.longest, 2 * count + 1)
        left = np.array([self._left(size, offset, lag) for lag in lags])
        # Of a motion that repeats itself, the shortest shift.
        near = np.flatnonzero(left <= 1.05 * left.min() + 1e-300)
        first = lags[near[np.argmin(np.abs(lags[near]))]]
        width = lags[1] - lags[0] if count else 0.0
        found = scipy.optimize.minimize_scalar(
            lambda lag: self._left(size, offset, lag),
            bounds=(max(first - width, -self.longest), min(first + width, self.longest)),
            method="bounded",
            options={"xatol": 1e-4 * max(usual, 1e-12)},
        )
        return float(found.x)

    def _said(self, found: _Explanation, plain: float) -> list[str]:
        said = []
        if found.factor is not None:
            said.append(self.factors[found.factor].sentence.format(name=self.name))
        if found.offset:
            verb = "subtract" if found.offset > 0 else "add"
            said.append(
                f"{self.name} has a constant offset: {verb} {abs(found.offset):.4g}"
                f"{' first' if found.factor is not None else ''}"
            )
        if found.shift:
            late = found.shift > 0
            said.append(
                f"{self.name} is {'late' if late else 'early'}: "
                f"{'subtract' if late else 'add'} {abs(found.shift):.4g} s "
                f"{'from' if late else 'to'} its time"
            )
        share = 100 * (1 - found.left / plain)
        return [
            f"{x}; {'together ' if len(said) > 1 else ''}that explains {share:.3g} % of the "
            "mean square of the difference."
            for x in said
        ]
