"""Cranks that stay parallel: one pendulum, from upright at -1 rad/s."""

import numpy as np
import scipy.integrate


def crank_angle(count, times):
    """Angle of `count` cranks of 1 m and 1 kg, joined by equal rods, at increasing times from 0."""
    stiffness = 9.81 * (count / 2 + (count - 1)) / (count / 3 + (count - 1))
    return scipy.integrate.solve_ivp(
        lambda t, x: [x[1], -stiffness * np.cos(x[0])],
        (0.0, times[-1]),
        [np.pi / 2, -1.0],
        method="DOP853",
        t_eval=times,
        rtol=1e-13,
        atol=1e-13,
    ).y[0]
