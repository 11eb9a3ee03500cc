from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from experiments.servo import fit, rigs, study, twin
from jaxgrip import config, fitting, report

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def duties():
    return twin.sampled_profiles()


@pytest.fixture(scope="module")
def clean(duties):
    return jax.jit(twin.fixed_steps)(jax.tree.map(jnp.asarray, twin.TRUTH), duties)


@pytest.mark.long
def test_clean_twin_is_found(duties, clean):
    found = fitting.fit(twin._fixed_residuals, twin.BOUNDS, duties, clean)
    assert found.rms < 1e-5
    for name, true in twin.TRUTH.items():
        np.testing.assert_allclose(found.parameters[name], true, rtol=1e-3)


@pytest.mark.long
def test_noise_is_reflected_in_the_deviations(duties, clean):
    """Standard deviations of independent noise, as an independent program (NumPy) has them."""
    rng = np.random.default_rng(1)
    sd = np.deg2rad(0.35) / np.sqrt(12)
    measured = clean + sd * rng.standard_normal(clean.shape)
    found = fitting.fit(
        twin._fixed_residuals, twin.BOUNDS, duties, measured, noise=sd, guess=twin.TRUTH, starts=1
    )
    for name, true in twin.TRUTH.items():
        assert abs(found.parameters[name] - true) < 4 * found.standard_deviation[name], name
    known = fitting.uncertainty(twin._fixed_residuals, twin.TRUTH, duties, measured, noise=sd)
    published = {
        "coulomb": "0.06",
        "stiction": "0.96",
        "viscous": "0.009",
        "stiffness": "0.70",
        "stribeck_velocity": "0.24",
        "damping_velocity": "0.32",
        "inertia": "0.027",
        "stall_torque": "0.004",
    }
    for name, percent in published.items():
        share = 100 * known.standard_deviation[name] / twin.TRUTH[name]
        assert f"{share:.{len(percent) - 2}f}" == percent, name
    assert str(known.worst_direction).startswith("0.81 stiction - 0.56 stiffness")


@pytest.mark.long
@pytest.mark.parametrize("stage", [rigs.gear, pytest.param(rigs.run_up, marks=pytest.mark.soak)])
def test_stages_of_the_study_agree_with_what_is_known(tmp_path, stage):
    run = report.Run(tmp_path, study.Config(experiment="servo/study"))
    stage(run)
    compared = [result for result in run.results.values() if result.published is not None]
    assert compared
    for result in compared:
        np.testing.assert_allclose(result.value, result.published, rtol=1e-3)
    assert run.pictures


def settings(tmp_path, *overrides):
    return config.load(ROOT / "configs" / "servo_fit.toml", overrides)[0]


def csv(tmp_path, text):
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return f"data={path}"


@pytest.mark.soak
def test_the_example_gives_back_the_servo(tmp_path):
    """Fitted from the truth with few motions; the search is tested above."""
    given = settings(tmp_path, "starts=2", "step=5e-3", "holdout=0.5", "compare=false")
    run = report.Run(tmp_path, given)
    fit.run(given, run)
    for name, true in twin.TRUTH.items():
        value, sd = run.results[name].value, run.results[f"{name}_deviation"].value
        assert abs(value - true) < 5 * sd, name
    assert run.results["rms_held_out"].value == pytest.approx(run.results["rms"].value, rel=0.1)


class Stepped(NamedTuple):
    """A model whose steps h of half a second, divided, bias its slope by the share h²."""

    substeps: jnp.ndarray

    def excess(self):
        return 1 + (0.5 / self.substeps) ** 2


def stepped(parameters, model, measured):
    t = jnp.linspace(0.0, 1.0, 101)
    return (parameters["slope"] * model.excess() * t - measured[0],)


@pytest.mark.parametrize(("noise", "reached"), [(0.3, True), (1e-6, False)])
def test_steps_are_halved_until_they_bias_nothing(monkeypatch, noise, reached):
    """A slope of 2 found in steps of h is 2/(1 + h²)."""
    monkeypatch.setattr(fit, "residuals", stepped)
    off = noise * np.random.default_rng(0).standard_normal(101)
    t = np.linspace(0.0, 1.0, 101)
    # Noise that a slope cannot follow.
    measured = (jnp.asarray(2 * t + off - t * (t @ off) / (t @ t)),)
    bounds = {"slope": fitting.Bound(0.5, 5.0)}
    model = Stepped(jnp.asarray(1))
    found = fitting.fit(stepped, bounds, model, measured, starts=1)
    deviation = float(found.standard_deviation["slope"])
    assert abs(found.parameters["slope"] - 2.0) > 3 * deviation
    found, model, moved = fit._refined(bounds, found, model, measured)
    np.testing.assert_allclose(found.parameters["slope"], 2 / model.excess(), rtol=1e-8)
    assert (fit._largest(moved, found) <= fit.SHIFT) == reached
    found = fit._widened(found, moved)
    np.testing.assert_allclose(found.covariance, found.standard_deviation["slope"] ** 2)
    np.testing.assert_allclose(found.information @ found.covariance, 1.0)
    assert abs(found.parameters["slope"] - 2.0) < found.standard_deviation["slope"]
    if not reached:
        assert int(model.substeps) == 2**fit.HALVINGS


@pytest.mark.soak
def test_steps_are_refined_until_they_bias_nothing(tmp_path):
    """Two parameters from a motion with error control and noise of a fiftieth of a degree."""
    time = 0.01 * np.arange(301)
    levels = np.array([0.6, -0.6, 0.5, -0.4, 0.6, -0.5, 0.0])

    def command(t, q, qd):
        return jnp.asarray(levels)[jnp.floor(2 * t + 1e-9).astype(int)][None]

    model, arm = jg.models.servo_ax12(), jg.models.servo_ax12_arm()
    jumps = 0.5 * np.arange(1, 6)
    angle = np.rad2deg(jg.actuators.simulate(arm, model, command, time, jumps=jumps).q[:, 0])
    noisy = angle + 0.02 * np.random.default_rng(0).standard_normal(len(angle))
    duty = levels[np.floor(2 * time + 1e-9).astype(int)]
    rows = [f"{t:.2f},{u},{a}" for t, u, a in zip(time, duty, noisy, strict=True)]
    fixed = [
        f"bounds.{name}=[{twin.TRUTH[name]}, {twin.TRUTH[name]}]"
        for name in twin.UNITS
        if name not in ("inertia", "stall_torque")
    ]
    fixed.append("bounds.offset_deg=[0.0, 0.0]")
    text = HEADER + "\n".join(rows) + "\n"
    given = settings(
        tmp_path, csv(tmp_path, text), "starts=1", "holdout=0.0", "compare=false", *fixed
    )
    run = report.Run(tmp_path, given)
    fit.run(given, run)
    for name in ("inertia", "stall_torque"):
        value, sd = run.results[name].value, run.results[f"{name}_deviation"].value
        assert abs(value - twin.TRUTH[name]) < 3 * sd, name
    assert run.results["step_shift"].value < fit.SHIFT


HEADER = "time [s],duty [-],angle [deg]\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEADER, "no values below the header"),
        (HEADER + "0,0,0\n0.01,0,0\n", "at least 20 needed"),
        ("time [s],duty [-]\n0,0\n", "no column angle"),
        ("time [s],duty [-],angle [furlong]\n0,0,0\n", "unit 'furlong' is unknown"),
        (HEADER + "".join(f"{0.01 * (k % 25)},0,0\n" for k in range(30)), "time must increase"),
        (HEADER + "".join(f"{0.01 * k},3,0\n" for k in range(30)), "duties lie between -1 and 1"),
    ],
)
def test_bad_files_get_a_sentence(tmp_path, text, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        settings(tmp_path, csv(tmp_path, text))


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("bounds.stiction=[0.5, 0.1]", "lower bound above its upper"),
        ("gear={spring=1.0, springs=[1.0]}", "every branch has one of each"),
        ("data=[]", "has 0 entries"),
        ("arm.inertia=-1.0", "greater than 0"),
    ],
)
def test_bad_settings_get_a_sentence(tmp_path, override, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        settings(tmp_path, override)
