import itertools

import numpy as np
import pytest
import xarray

from jaxgrip import viz

# Cubics on each of three arcs, one of them short; the control and the third derivative jump.
ENDS = (0.0, 1.0, 1.01, 2.0)
T = np.concatenate([np.linspace(a, b, 7) for a, b in itertools.pairwise(ENDS)])
ARC = np.repeat([0, 1, 2], 7)


@pytest.fixture
def arrays():
    x = np.stack([ARC + T**3, (ARC - 1) * (T - T**2)], axis=-1)
    variables = {
        "x": (("time", "joint"), x, {"units": "rad"}),
        "u": (("time",), np.where(ARC == 1, -0.3, 0.3), {"units": "N m"}),
    }
    return xarray.Dataset(variables, {"time": ("time", T, {"units": "s"}), "joint": ["a", "b"]})


def test_refine_is_exact_for_cubics_and_keeps_jumps(arrays):
    fine = viz.refine(arrays, points=300)
    t, jumps = fine["time"].values, np.flatnonzero(np.diff(fine["time"].values) == 0.0)
    assert 300 <= len(t) <= 310
    np.testing.assert_array_equal(t[jumps], [1.0, 1.01])
    arc = np.searchsorted(jumps, np.arange(len(t)))
    np.testing.assert_allclose(fine.x[:, 0], arc + t**3, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(fine.x[:, 1], (arc - 1) * (t - t**2), atol=1e-12)
    np.testing.assert_allclose(fine.u, np.where(arc == 1, -0.3, 0.3), rtol=1e-15)


def test_refine_keeps_names_and_units(arrays):
    fine = viz.refine(arrays)
    assert fine["x"].attrs["units"] == "rad"
    assert fine["time"].attrs["units"] == "s"
    assert list(fine["joint"].values) == ["a", "b"]


def test_refine_keeps_an_arc_of_no_length(arrays):
    moved = arrays.assign_coords(time=np.where(ARC == 1, 1.0, np.where(ARC == 2, T - 0.01, T)))
    fine = viz.refine(moved)
    assert np.isfinite(fine["x"].values).all()
    np.testing.assert_array_equal(np.unique(fine.u), [-0.3, 0.3])
