"""Samples of a series that no motion explains."""

import numpy as np
from jaxtyping import ArrayLike, Bool, Float

# Longest run of samples that counts as a spike, and how many samples on each side it is judged by.
LONGEST, NEAR = 3, 5
# How many times as large as the changes nearby the jumps to and from a spike are.
STANDS_OUT = 8.0


def spikes(series: Float[ArrayLike, " k"]) -> Bool[np.ndarray, " k"]:
    """Samples that jump away from all around them and back, as failed readings of a sensor do.

    A run of up to three samples is a spike if the jumps to it and from it are opposite, and larger
    than eight times the third largest change within five samples on both sides, the change across
    the run, and the least change in the series, which may be a step of the sensor. Jumps without a
    return are none, nor are the first and the last sample.

    **Arguments:** `series` (k,), in any unit.

    **Returns:** (k,) whether each sample belongs to a spike. Not differentiable.

    Source: own choice.
    """
    x = np.asarray(series, float)
    found = np.zeros(len(x), bool)
    changes = np.abs(np.diff(x))
    least = np.min(changes[changes > 0.0], initial=np.inf)
    for length in range(1, LONGEST + 1):
        for i in range(1, len(x) - length):
            up, down = x[i] - x[i - 1], x[i + length] - x[i + length - 1]
            if up * down >= 0.0 or found[i - 1 : i + length + 1].any():
                continue
            near = [slice(max(0, i - NEAR), i), slice(i + length, i + length + NEAR)]
            usual = np.sort(np.concatenate([np.abs(np.diff(x[part])) for part in near]))
            across = abs(x[i + length] - x[i - 1]) / (length + 1)
            # Another spike nearby has two jumps.
            usual = max(usual[-3] if len(usual) > 2 else np.inf, across, least)
            found[i : i + length] = min(abs(up), abs(down)) > STANDS_OUT * usual
    return found
