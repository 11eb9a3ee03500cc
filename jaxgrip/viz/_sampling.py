"""Smooth curves through the points of a result."""

import numpy as np
import xarray
from scipy.interpolate import CubicSpline


def refine(arrays: xarray.Dataset, *, points: int = 600) -> xarray.Dataset:
    """Additional points between those of a result, by a cubic spline on each arc.

    **Arguments:** `arrays`, every variable with `time` [s] as its first dimension; a repeated
    time separates two arcs, and values may jump there. `points`, approximate total number.

    **Returns:** the same variables at more times; repeated times stay repeated.
    """
    time = arrays["time"].values
    arcs = np.split(np.arange(len(time)), np.flatnonzero(np.diff(time) == 0.0) + 1)
    finer = []
    for arc in arcs:
        own = arrays.isel(time=arc)
        if len(arc) > 1:
            first, last = time[arc[0]], time[arc[-1]]
            count = 2 + int(points * (last - first) / (time[-1] - time[0]))
            at = np.linspace(first, last, count)
            splines = {
                name: (variable.dims, CubicSpline(time[arc], variable.values)(at), variable.attrs)
                for name, variable in own.items()
            }
            moment = {"time": ("time", at, arrays["time"].attrs)}
            own = xarray.Dataset(splines, own.drop_vars("time").coords).assign_coords(moment)
        finer.append(own)
    return xarray.concat(finer, "time", data_vars="all", coords="minimal", join="exact")
