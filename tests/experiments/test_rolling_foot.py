"""The rocking body against SciPy and small oscillations; fits of centres of pressure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from experiments.mechanisms import rolling_foot
from jaxgrip import config
from jaxgrip.models.rolling_foot import RollingFoot

pytestmark = pytest.mark.long

RHO, RATE = (0.10, 0.05), (4.0, 1.5)


def body(height=0.5):
    return rolling_foot.Body(
        RollingFoot(jnp.asarray(RHO), jnp.asarray(RATE)),
        *(jnp.asarray(x) for x in (70.0, 8.0, height)),
    )


def pressures(angles):
    """By quadrature, nothing of the model."""

    def slope(a):
        return sum(r * c * np.exp(-c * a) for r, c in zip(RHO, RATE, strict=True))

    return np.array(
        [quad(lambda t: slope(t) * np.cos(t), 0, a)[0] + slope(a) * np.sin(a) for a in angles]
    )


def test_the_body_rocks_as_another_integrator_says():
    one, times = body(), jnp.linspace(0.0, 3.0, 31)
    found = jax.jit(rolling_foot.rock)(one, jnp.asarray(0.07), times)
    energy = found.energy - found.energy[0]
    assert np.max(np.abs(energy)) < 1e-8 * 70.0 * 9.81 * 0.5
    # Lagrange's equation by differences of the energies.
    reduced = jax.jit(rolling_foot.reduced)

    def rates(_, y):
        step = 1e-5
        (up, rise), (down, fall) = (reduced(one, jnp.asarray(y[0] + s)) for s in (step, -step))
        inertia = float(reduced(one, jnp.asarray(y[0]))[0])
        by_angle, potential_by = float(up - down) / (2 * step), float(rise - fall) / (2 * step)
        return [y[1], -(0.5 * by_angle * y[1] ** 2 + potential_by) / inertia]

    other = solve_ivp(rates, (0.0, 3.0), [0.07, 0.0], t_eval=times, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.angle, other.y[0], atol=1e-6)


def test_small_oscillations_have_the_period_of_the_closed_form():
    """Stiffness m g (R - h) at the contact, inertia m h² + J."""
    one = body()
    curvature = 2 * np.dot(RHO, RATE)
    stiffness = 70.0 * 9.81 * (curvature - 0.5)
    period = 2 * np.pi * np.sqrt((70.0 * 0.25 + 8.0) / stiffness)
    found = rolling_foot.rock(one, jnp.asarray(1e-4), jnp.asarray([0.0, 0.5 * period, period]))
    np.testing.assert_allclose(found.angle, [1e-4, -1e-4, 1e-4], rtol=2e-3)
    np.testing.assert_allclose(found.rate, 0.0, atol=2e-3 * 1e-4 * 2 * np.pi / period)
    tall = rolling_foot.rock(body(1.2), jnp.asarray(1e-4), jnp.asarray([0.0, 0.5, 1.0]))
    growth = np.sqrt(70.0 * 9.81 * (1.2 - curvature) / (70.0 * 1.2**2 + 8.0))
    np.testing.assert_allclose(tall.angle[2], 1e-4 * np.cosh(growth), rtol=2e-3)


def test_fits_recover_the_foot_within_their_uncertainty():
    angles = np.linspace(-0.15, 0.55, 300)
    true = {"rho": np.array(RHO), "rate": np.array(RATE), "origin": 0.06}
    exact = 0.06 + pressures(angles)
    inside = 0
    for seed in range(20):
        noisy = exact + 2e-4 * np.random.default_rng(seed).standard_normal(300)
        found = rolling_foot.fit(angles, noisy, 2)
        inside += all(
            np.all(np.abs(found.parameters[k] - x) < 3 * found.standard_deviation[k])
            for k, x in true.items()
        )
    assert inside >= 19


def test_shifts_are_told_to_be_unknown():
    angles = np.linspace(-0.15, 0.55, 60)
    found = rolling_foot.fit(angles, pressures(angles), 1, shifts=True)
    assert {name.partition(".")[0] for group in found.unidentifiable for name in group} == {
        "rho",
        "shift",
    }


def read(folder, text):
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return config.validate(
        rolling_foot.Config, {"experiment": "mechanisms/rolling_foot", "data": str(path)}, "here"
    )


HEADER = "inclination [deg],centre of pressure [m]\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("inclination [deg]\n1\n2\n", "no column centre of pressure"),
        (HEADER + "0,0\n1,0.01\n", "too few for 2 terms"),
        (
            HEADER.replace("deg", "rad") + "".join(f"{k},0.0{k:02d}\n" for k in range(20)),
            "in degrees but called rad",
        ),
        (HEADER + "".join(f"{k},{10 * k}\n" for k in range(20)), "is it in mm"),
        (HEADER + "".join(f"{k},nan\n" for k in range(20)), "line 2"),
    ],
)
def test_bad_files_get_a_sentence(tmp_path, text, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        read(tmp_path, text)
