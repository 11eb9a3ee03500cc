"""Mistakes in measured series: each is told, and none where there is none."""

import numpy as np
import pytest

from jaxgrip.fitting import mistakes

TIME = np.linspace(0.0, 8.0, 801)
DEGREES = 180 / np.pi


def motion(t):
    return 0.8 * np.sin(1.3 * t) * (1 - np.exp(-t)) + 0.5 * np.sin(3.1 * t + 0.2 * t**2) + 0.1 * t


def told(change, noise=0.01, gain=1.0, seed=0, time=TIME, late=0.0):
    """What is said of a model with an error of scale and of a noisy, changed series."""
    error = noise * np.random.default_rng(seed).normal(size=time.size)
    return mistakes(change(motion(time - late) + error), gain * motion(time), time, name="angle")


SCALES = [
    (lambda y: DEGREES * y, "in degrees where radians are expected: multiply it by pi/180"),
    (lambda y: y / DEGREES, "although it was in radians: multiply it by 180/pi"),
    (lambda y: -y, "the opposite sign: multiply it by -1"),
    (lambda y: 100 * y, "in per cent: multiply it by 0.01"),
    (lambda y: y / 100, "multiply it by 100;"),
    (lambda y: 4096 / (2 * np.pi) * y, "with 4096 for a turn: multiply it by 2 pi/4096"),
    (lambda y: 16384 / (2 * np.pi) * y, "with 16384 for a turn"),
]


@pytest.mark.parametrize(("change", "sentence"), SCALES)
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("gain", [1.0, 0.9, 1.1])
def test_wrong_scales_are_told_alone(change, sentence, noise, gain):
    (found,) = told(change, noise, gain)
    assert found.startswith("angle ")
    assert sentence in found


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_offsets_are_told_with_their_size(noise):
    for offset, verb in ((0.9, "subtract"), (-0.9, "add")):
        (found,) = told(lambda y, offset=offset: y + offset, noise)
        assert found.startswith(f"angle has a constant offset: {verb} ")
        # The mean of 801 errors, to three standard deviations.
        assert abs(float(found.split()[6].rstrip(";")) - 0.9) <= 3 * noise / 801**0.5 + 1e-4


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("late", [0.1373, 0.0142 * 7, -0.2057])
def test_shifts_are_told_more_finely_than_samples(noise, late):
    (found,) = told(lambda y: y, noise, late=late)
    words = found.split()
    assert found.startswith("angle is late: subtract" if late > 0 else "angle is early: add")
    # Below a thousandth of a second for samples every hundredth.
    assert abs(float(words[4]) - abs(late)) < 1e-3


def test_scales_that_are_alike_are_told_where_the_model_is_good_enough():
    """Thousandths of a unit, and 8192 ticks for a turn, which are 1304 for a unit."""
    (found,) = told(lambda y: 1000 * y)
    assert "thousandths of its unit" in found
    assert told(lambda y: 1000 * y, gain=0.87) == ()


def test_two_mistakes_are_told_together():
    first, second = told(lambda y: np.round(2048 + 4096 / (2 * np.pi) * y))
    assert "with 4096 for a turn" in first
    assert "subtract 2048" in second
    first, second = told(lambda y: 1.5 - y)
    assert "opposite sign" in first
    assert "subtract 1.5" in second
    first, second = told(lambda y: DEGREES * y, late=0.3)
    assert "in degrees" in first
    assert "late: subtract 0.3" in second
    first, second = told(lambda y: 512 + 1023 / np.deg2rad(300) * y)
    assert "1023 for 300 degrees" in first


def test_samples_need_not_be_regular():
    rng = np.random.default_rng(5)
    time = np.sort(rng.uniform(0.0, 8.0, 500))
    (found,) = told(lambda y: y, time=time, late=0.12)
    assert abs(float(found.split()[4]) - 0.12) < 2e-3


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_told_where_nothing_is_wrong(seed):
    rng = np.random.default_rng(seed)
    assert told(lambda y: y, 0.2 * seed, seed=seed) == ()
    # A model that is off by as much as one before a fit is.
    assert told(lambda y: y, 0.01, gain=rng.uniform(0.6, 1.6), seed=seed) == ()
    # Series that have nothing to do with the model, of whatever size.
    other = rng.normal(size=TIME.size), np.cumsum(rng.normal(size=TIME.size)) / 20
    for y in other:
        for size in (1.0, DEGREES, 100.0):
            assert mistakes(size * y, motion(TIME), TIME) == ()


def test_series_at_rest_say_nothing():
    assert mistakes(0 * TIME, motion(TIME), TIME) == ()
    assert mistakes(motion(TIME), 0 * TIME, TIME) == ()
    assert mistakes(motion(TIME), motion(TIME), TIME) == ()


def test_bad_input_gets_a_sentence():
    with pytest.raises(ValueError, match=r"measured has the shape \(800,\)"):
        mistakes(TIME[1:], TIME, TIME)
    with pytest.raises(ValueError, match="simulated is not finite"):
        mistakes(TIME, np.nan * TIME, TIME)
    with pytest.raises(ValueError, match="time must increase"):
        mistakes(TIME, TIME**2, np.round(TIME))
