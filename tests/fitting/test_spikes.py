"""Samples that no motion explains."""

import numpy as np
import pytest

from jaxgrip.fitting import spikes

TIMES = np.arange(600) / 100


def motion(seed):
    """A swing [rad] with noise, rounded to a sensor of 4096 steps a turn."""
    angle = 1.2 * np.sin(2 * TIMES) + 1e-3 * np.random.default_rng(seed).normal(size=TIMES.size)
    step = 2 * np.pi / 4096
    return step * np.round(angle / step)


@pytest.mark.parametrize("where", [[250], [250, 251], [250, 251, 252], [40, 43, 555]])
def test_failed_readings_are_found(where):
    angle = motion(0)
    angle[where] = -np.pi
    np.testing.assert_array_equal(np.flatnonzero(spikes(angle)), where)


@pytest.mark.parametrize("seed", range(20))
def test_a_sound_motion_has_none(seed):
    assert not spikes(motion(seed)).any()


@pytest.mark.parametrize(
    "series",
    [
        np.where(TIMES < 3.0, 0.0, 1.0),  # a step
        np.sign(np.sin(3 * TIMES)),  # steps to and fro
        np.where(np.arange(600) == 300, 1.0, 0.0),  # one step of a sensor at rest
        np.random.default_rng(3).normal(size=600),
        np.zeros(600),
        np.array([1.0, 2.0]),
        np.array([]),
    ],
)
def test_steps_and_noise_are_none(series):
    assert not spikes(series).any()


def test_it_stands_out_of_a_fast_motion():
    """What a motor of 20 rad/s does between samples of 10 ms is no spike, five times that is."""
    angle = 0.2 * np.arange(100.0)
    angle[50] += 0.4
    assert not spikes(angle).any()
    angle[50] += 3.0
    assert np.flatnonzero(spikes(angle)) == [50]
