"""Campaigns of servos, against motions made by a program of its own."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxgrip as jg
from experiments.servo import _campaign, _checks, _comparison, _model, _sheet, fit
from jaxgrip import config, fitting, report
from jaxgrip.fitting import Bound
from tests.experiments import servo_campaign as campaign

EXACT = campaign.Sensor(noise=0.0, resolution=1e-6, lost=0.0)


def fitted(folder, *overrides, truth, seed=0, duration=8.0, sensor=None, gear=True):
    logs = campaign.logs(truth, range(seed, seed + 1), duration, sensor or campaign.Sensor())[0]
    return config.load(campaign.write(folder, truth, logs, gear), overrides)[0]


def modelled(settings, truth, offset):
    """Model, measured angles and true parameters of a campaign."""
    motions, _ = _campaign.read(settings.motions())
    parameters = {k: jnp.asarray(getattr(truth, k)) for k in truth.EIGHT}
    measured = tuple(jnp.asarray(m.angle[m.clear]) for m in motions)
    start = jnp.zeros(len(motions))
    return (
        fit._model(settings, motions),
        measured,
        {**parameters, "offset": jnp.asarray(offset), "start": start},
    )


def bounds_of(settings):
    return fit._bounds(settings, _campaign.read(settings.motions())[0])


@pytest.mark.parametrize("truth", campaign.TRUTHS.values(), ids=campaign.TRUTHS)
def test_logs_are_those_of_a_stiff_integrator(truth):
    """The steps of the program that makes logs, against SciPy's Radau between changes."""
    t = np.arange(0.3, 0.8, 0.02)
    targets = campaign.profile(0, t, np.random.default_rng(0)) + 0.05
    law = np.array(campaign.law(truth.registers[0]))[:, None]
    arm = np.array([[truth.arm[0] + 0.02], [truth.arm[1] + 0.5]])
    held = np.repeat(targets, 200)[:, None]
    angles = campaign.simulate(truth, held, law, arm, np.zeros(1))[::200, 0]
    y, other = np.zeros(5 + len(truth.springs)), [0.0]
    for target in targets:
        y = solve_ivp(
            lambda _, y, u=target: campaign.rates(truth, y[:, None], u, law, arm)[:, 0],
            (0.0, 0.02),
            y,
            "Radau",
            rtol=1e-6,
            atol=1e-8,
        ).y[:, -1]
        other.append(y[0])
    assert np.ptp(angles) > 0.05
    np.testing.assert_allclose(angles, other, atol=2e-5)


@pytest.mark.parametrize("truth", campaign.TRUTHS.values(), ids=campaign.TRUTHS)
def test_motions_are_those_of_another_program(tmp_path, truth):
    """Irregular times, loads, gains, a crooked arm, and files in hundredths of degrees."""
    settings = fitted(tmp_path, truth=truth, duration=2.0, sensor=EXACT)
    model, measured, parameters = modelled(settings, truth, EXACT.offset)
    off = _model.residuals(parameters, model._replace(substeps=jnp.asarray(8)), measured)
    for r, angle in zip(off, measured, strict=True):
        assert np.ptp(angle) > 0.1
        assert np.sqrt(np.mean(r**2)) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("truth", campaign.TRUTHS.values(), ids=campaign.TRUTHS)
def test_campaigns_give_back_the_servo(tmp_path, truth):
    """With noise, a coarse sensor, jitter and lost samples."""
    settings = fitted(tmp_path, "compare=false", truth=truth)
    run = report.Run(tmp_path, settings)
    fit.run(settings, run)
    true = {k: getattr(truth, k) for k in truth.EIGHT} | {"offset": campaign.Sensor().offset}
    for name, value in true.items():
        found, sd = run.results[name].value, run.results[f"{name}_deviation"].value
        assert abs(found - value) < 3 * sd, name


# Bristles and a gear that hardly bend: Coulomb and viscous friction alone.
PLAIN = dataclasses.replace(
    campaign.STS,
    stiction=campaign.STS.coulomb,
    stiffness=300.0,
    damping_velocity=0.1,
    spring=2000.0,
    springs=(),
    dampers=(),
)


@pytest.mark.long
def test_the_simplest_model_that_explains_the_motions_is_recommended(
    tmp_path, monkeypatch, compilations
):
    """Servos with and without friction by load; all models are one program."""
    during, original = [], fitting.fit

    def counted(*args, **given):
        with compilations() as compiled:
            found = original(*args, **given)
        during.append(len(compiled))
        return found

    monkeypatch.setattr(fitting, "fit", counted)
    for share, name in ((0.0, "Coulomb-viscous"), (0.15, "load-dependent")):
        truth = dataclasses.replace(PLAIN, load_friction=share)
        folder = tmp_path / name
        folder.mkdir()
        sensor = campaign.Sensor(lost=0.0)
        settings = fitted(folder, truth=truth, duration=4.0, sensor=sensor, gear=False)
        model, shown, true = modelled(settings, truth, sensor.offset)
        model = model._replace(substeps=jnp.asarray(4))
        measured = tuple(angle[: 3 * len(angle) // 4] for angle in shown)
        bounds = bounds_of(settings)
        found = original(_model.residuals, bounds, model, measured, guess=true, starts=1, steps=10)
        model = _model.started(model, found.parameters["start"])
        compared = _comparison.compare(found.marginal("start"), model, measured, shown)
        assert compared.recommended == f"{name}, stiff gear", compared.report()
    assert during[0] > 0
    assert not any(during[1:])
    assert len(during) == 20


@pytest.mark.long
def test_delay_and_factors_are_found(tmp_path):
    """Angles logged 6 ms late, loads 25 % heavier, gains 20 % lower and a gear twice as stiff."""
    truth, delay, rng = campaign.STS, 0.006, np.random.default_rng(0)
    logs = campaign.logs(truth, range(1), 8.0, EXACT)[0]
    for log in logs:
        late = np.interp(log["time"] - delay, log["time"], log["angle"])
        log["angle"] = late + campaign.Sensor().noise * rng.standard_normal(len(late))
        mass, radius = log["load"]
        log["load"] = (mass / 1.25, radius)
        log["registers"] = log["registers"] | {"p": log["registers"]["p"] / 0.8}
    softer = dataclasses.replace(
        truth,
        spring=truth.spring / 2,
        springs=tuple(x / 2 for x in truth.springs),
        dampers=tuple(x / 2 for x in truth.dampers),
    )
    free = [f"bounds.{name}=[0.5, 4.0]" for name in ("load", "gain", "gear")]
    path = campaign.write(tmp_path, softer, logs)
    settings = config.load(path, [*free, "bounds.delay=[0.0, 0.02]"])[0]
    model, measured, true = modelled(settings, truth, campaign.Sensor().offset)
    expected = {"load": 1.25, "gain": 0.8, "gear": 2.0, "delay": delay}
    found = fitting.fit(
        _model.residuals,
        bounds_of(settings),
        model._replace(substeps=jnp.asarray(4)),
        measured,
        guess=true | {"load": 1.0, "gain": 1.0, "gear": 1.0, "delay": 0.003},
        starts=1,
    )
    for name, value in expected.items():
        deviation = found.standard_deviation[name]
        assert deviation < 0.1 * value, name
        assert abs(found.parameters[name] - value) < 3 * deviation, name


def test_other_numbers_compile_nothing(tmp_path):
    truth = campaign.STS
    settings = fitted(tmp_path, truth=truth, duration=0.5, sensor=EXACT)
    model, measured, parameters = modelled(settings, truth, 0.0)
    program = jax.jit(_model.residuals)
    program(parameters, model, measured)
    before = program._cache_size()
    other = model._replace(
        substeps=jnp.asarray(2), logs=jax.tree.map(lambda x: 1.1 * x, model.logs)
    )
    program({k: 0.9 * x for k, x in parameters.items()}, other, measured)
    assert program._cache_size() == before


def known(truth, *free):
    """Overrides that fix all parameters but some."""
    fixed = [n for n in truth.EIGHT if n not in free]
    return [f"bounds.{name}=[{getattr(truth, name)}, {getattr(truth, name)}]" for name in fixed]


@pytest.mark.long
def test_motions_that_start_elsewhere_are_found(tmp_path):
    """Arms that rest up to 0.6 degrees from where the first samples are; one motion is held out."""
    truth = campaign.MX
    given = ("bounds.offset_deg=[0.0, 0.0]", *known(truth, "inertia", "stall_torque"))
    sensor = dataclasses.replace(EXACT, offset=0.0)
    settings = fitted(tmp_path, *given, truth=truth, duration=2.0, sensor=sensor)
    logs = [one.model_copy(update={"held_out": k == 1}) for k, one in enumerate(settings.logs)]
    settings = settings.model_copy(update={"logs": tuple(logs)})
    model, shown, _ = modelled(settings, truth, 0.0)
    model = model._replace(substeps=jnp.asarray(8))
    np.testing.assert_array_equal(model.fitted, [0, 2, 3, 4, 5])
    error = 0.01 * np.array([1.0, -1.0, 0.5, 0.0, -0.3])
    wrong = _model.started(model, -error)
    np.testing.assert_allclose(wrong.logs.start[1], model.logs.start[1])
    bounds = bounds_of(settings)
    assert bounds["start"].by_series
    measured = tuple(x if k != 1 else x[:0] for k, x in enumerate(shown))
    guess = {
        "start": np.zeros(5),
        "inertia": 1.1 * truth.inertia,
        "stall_torque": 0.9 * truth.stall_torque,
    }
    found = fitting.fit(_model.residuals, bounds, wrong, measured, guess=guess, starts=1)
    np.testing.assert_allclose(found.parameters["start"], error, atol=2e-4)
    for name in ("inertia", "stall_torque"):
        np.testing.assert_allclose(found.parameters[name], getattr(truth, name), rtol=5e-3)


@pytest.mark.long
def test_a_run_gives_intervals_and_the_motion_to_record_next(tmp_path):
    truth = campaign.STS
    given = (
        *("compare=false", "intervals=true", "starts=2", "bounds.offset_deg=[0.0, 0.0]"),
        *known(truth, "inertia", "stiction"),
    )
    sensor = campaign.Sensor(offset=0.0)
    settings = fitted(tmp_path, *given, truth=truth, duration=3.0, sensor=sensor)
    run = report.Run(tmp_path, settings)
    fit.run(settings, run)
    values = {name: one.value for name, one in run.results.items()}
    for name in ("inertia", "stiction"):
        assert values[f"{name}_low"] < values[name] < values[f"{name}_high"]
        assert values[f"{name}_low"] < getattr(truth, name) < values[f"{name}_high"]
    # The interval is nearly symmetric where a parameter is well known.
    half = 0.5 * (values["inertia_high"] - values["inertia_low"])
    assert half == pytest.approx(1.96 * values["inertia_deviation"], rel=0.05)
    assert values["worst_deviation_after_next"] < values["worst_deviation"]
    said = "\n".join(run.notes)
    assert "Intervals that hold the true value in 95 % of cases" in said
    assert any(
        note.startswith("Record a ") and "with all else as in sts_" in note for note in run.notes
    )


def log(folder, text, name="mine.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def rows(header, *columns):
    lines = zip(*columns, strict=True)
    return "\n".join([header, *(",".join(f"{x:.6f}" for x in row) for row in lines)]) + "\n"


def read(path, **given):
    arm = _campaign.Arm(inertia=0.01, weight=0.5)
    return _campaign.read((_campaign.Log(file=path, arm=arm, **given),))


REGISTERS = _campaign.Registers(family="mx", p=32.0)


def test_lost_inputs_lie_between_their_neighbours(tmp_path):
    time = np.delete(0.01 * np.arange(40), [10, 11])
    path = log(tmp_path, rows("time [s],target [rad],angle [rad]", time, 2 * time, time))
    (motion,), notes = read(path, controller=REGISTERS)
    np.testing.assert_allclose(motion.input_time, 0.01 * np.arange(40), atol=1e-12)
    np.testing.assert_allclose(motion.input, 0.02 * np.arange(40), atol=1e-12)
    assert motion.clear.all()
    assert ["samples are missing" in note for note in notes] == [True]


def test_angles_after_an_unknown_jump_are_not_used(tmp_path):
    time = np.delete(0.01 * np.arange(200), 50)
    target = np.where(time < 0.505, 0.0, 1.0)
    path = log(tmp_path, rows("time [s],target [rad],angle [rad]", time, target, time))
    (motion,), notes = read(path, controller=REGISTERS)
    unclear = motion.time[~motion.clear]
    assert unclear.min() == pytest.approx(0.51)
    assert unclear.max() == pytest.approx(1.48)
    assert any("the input jumps" in note and "not used" in note for note in notes)


def test_failed_readings_are_left_out(tmp_path):
    """An angle of half a turn, and a supply of 0 V, for one sample each."""
    time = 0.01 * np.arange(200)
    angle, voltage = np.sin(time), np.full(200, 7.4)
    angle[80], voltage[30] = -np.pi, 0.0
    head = "time [s],target [rad],angle [rad],voltage [V]"
    path = log(tmp_path, rows(head, time, 0 * time, angle, voltage))
    (motion,), notes = read(path, controller=REGISTERS)
    assert np.flatnonzero(~motion.clear).tolist() == [80]
    np.testing.assert_allclose(motion.voltage, 7.4)
    assert "1 of the angles jump away and back, the first one to -180° at 0.8 s" in notes[0]
    voltage[30:60] = 0.0
    path = log(tmp_path, rows(head, time, 0 * time, angle, voltage))
    with pytest.raises(
        config.ConfigError, match=r"has the voltage 0 at 0\.3 s; voltages are positive"
    ):
        read(path, controller=REGISTERS)


def test_degrees_that_are_called_radians_are_told():
    """The example's angles, 57.3 times too large."""
    settings = config.validate(fit.Config, {"experiment": "servo/fit"}, "here")
    motions, _ = _campaign.read(settings.motions())
    model = fit._model(settings, motions)
    bounds = fit._bounds(settings, motions)
    assert not _checks.mistakes(bounds, model, motions)
    wrong = [m._replace(angle=np.rad2deg(m.angle)) for m in motions]
    said = _checks.mistakes(bounds, model, wrong)
    assert any("in degrees where radians are expected: multiply it by pi/180" in x for x in said)


def test_steps_take_means_of_held_inputs():
    """Against sums over a fine grid, for samples closer and further apart than a step."""
    rng = np.random.default_rng(0)
    time = np.concatenate([[0.0], np.cumsum(rng.uniform(1e-3, 0.03, 60))])
    held = rng.standard_normal(len(time))
    nodes = _model._nodes(time, 0.01)
    assert nodes[0] == time[0]
    assert nodes[-1] == time[-1]
    assert np.all(np.diff(nodes) > 0)
    assert np.max(np.diff(nodes)) <= 0.0151
    means = _model._means(time, held, nodes)
    for k, mean in enumerate(means):
        fine = np.linspace(nodes[k], nodes[k + 1], 20001)[:-1] + np.diff(nodes)[k] / 40000
        value = held[np.searchsorted(time, fine, side="right") - 1]
        assert mean == pytest.approx(np.mean(value), abs=1e-3)


def test_angles_between_steps_are_those_of_a_cubic():
    t = jnp.cumsum(jnp.asarray([0.0, 0.1, 0.3, 0.2]))
    times = jnp.linspace(0.0, 0.6, 13)
    cubic = jnp.asarray([1.0, -2.0, 0.5, 0.3])
    found = _model._between(t, jnp.polyval(cubic, t), jnp.polyval(jnp.polyder(cubic), t), times)
    np.testing.assert_allclose(found, jnp.polyval(cubic, times), atol=1e-12)


def test_an_arm_at_rest_stays(tmp_path):
    """A raised arm, carried by a twisted gear and the error of a P controller."""
    weight, inertia, angle, truth = 0.5, 0.01, 0.7, campaign.MX
    carried = weight * math.sin(angle)
    gain = 0.158 * 32.0
    target = angle + carried / (gain * truth.stall_torque)
    time = 0.01 * np.arange(60)
    same = np.ones(len(time))
    path = log(
        tmp_path, rows("time [s],target [rad],angle [rad]", time, target * same, angle * same)
    )
    settings = config.validate(
        fit.Config,
        {
            "experiment": "servo/fit",
            "data": str(path),
            "arm": {"inertia": inertia, "weight": weight},
            "controller": {"family": "mx", "p": 32.0},
            "gear": {"spring": 20.0, "springs": [10.0], "dampers": [0.1]},
        },
        "here",
    )
    model, measured, parameters = modelled(settings, truth, 0.0)
    (off,) = _model.residuals(parameters, model, measured)
    np.testing.assert_allclose(off, 0.0, atol=1e-6)


def test_torque_off_and_voltage_are_those_of_the_log(tmp_path):
    """Free fall of an arm with an open winding, and a stall torque in proportion to the voltage."""
    time = 0.01 * np.arange(60)
    one = np.ones(len(time))
    text = rows(
        "time [s],duty [-],angle [rad],torque on [-],voltage [V]",
        time,
        one,
        0 * one,
        0 * one,
        6 * one,
    )
    off = log(tmp_path, text, "off.csv")
    on = log(tmp_path, text.replace("0.000000,6.0", "1.000000,6.0"), "on.csv")
    settings = config.validate(
        fit.Config,
        {
            "experiment": "servo/fit",
            "data": [str(off), str(on)],
            "servo": {"family": "STS"},
            "arm": {"inertia": 0.01, "weight": 0.0},
        },
        "here",
    )
    assert settings.ranges()["offset"] == (0.0, 0.0)
    motions, _ = _campaign.read(settings.motions())
    model = fit._model(settings, motions)
    truth = campaign.STS
    parameters = {k: jnp.asarray(getattr(truth, k)) for k in truth.EIGHT}
    still, driven = _model.simulated(parameters, model._replace(substeps=jnp.asarray(4)))
    np.testing.assert_allclose(still, 0.0, atol=1e-12)
    gear = model.gear
    servo = jg.models.servo_ax12(
        **{**parameters, "stall_torque": truth.stall_torque * 6 / 12}, gear=gear
    )
    arm = jg.actuators.rigs.Pendulum(0.01)
    other = jg.actuators.simulate(arm, servo, jg.actuators.rigs.constant([1.0]), time)
    np.testing.assert_allclose(driven[: len(time)], other.q[:, 0], atol=5e-4)


@pytest.mark.parametrize(
    ("step", "digits"), [(math.radians(0.29), 12), (math.radians(0.088), 12), (0.005, 3)]
)
def test_steps_of_angles_are_recognised(step, digits):
    rng = np.random.default_rng(0)
    angle = 0.5 * np.sin(np.linspace(0.0, 20.0, 900)) + 0.003 * rng.standard_normal(900)
    assert _checks.resolution(angle) == 0.0
    coarse = np.round(np.round(angle / step) * step, digits)
    assert _checks.resolution(coarse) == pytest.approx(step, rel=0.01)


def line(parameters, model, measured):
    return (parameters["slope"] * model - measured[0],)


def test_coarse_steps_enter_the_fit(tmp_path, monkeypatch):
    """A slope from angles whose noise is a tenth of a step, and from finer ones."""
    monkeypatch.setattr(_checks, "residuals", line)
    t = jnp.linspace(0.0, 1.0, 400)
    noise = 0.01 * np.random.default_rng(3).standard_normal(400)
    bounds = {"slope": Bound(0.5, 5.0)}
    for step, coarse in ((0.1, True), (0.005, False)):
        measured = (jnp.asarray(np.round((2.0 * t + noise) / step) * step),)
        found = fitting.fit(line, bounds, t, measured, starts=1)
        run = report.Run(tmp_path, fit.Config(experiment="servo/fit"))
        better = _checks.rounded(run, bounds, found, t, measured)
        assert (better.resolution is not None) == coarse
        assert sum("rounded" in note for note in run.notes) == 1
        sd = float(better.standard_deviation["slope"])
        assert abs(float(better.parameters["slope"]) - 2.0) < 4 * sd
        if coarse:
            assert sd < float(found.standard_deviation["slope"])


@pytest.mark.parametrize(("off", "moved"), [(0, True), (1, False)])
def test_winding_is_fitted_where_an_arm_coasts(tmp_path, off, moved):
    """Falling by 30 degrees, with the torque off and on; at rest, with the torque off."""
    time = 0.01 * np.arange(60)
    angle = 0.52 * np.clip(time - 0.2, 0.0, 0.2) / 0.2
    on = np.where((time >= 0.2) & (time < 0.4), 1 - (off == 0), 1 - (off == 1))
    path = log(
        tmp_path,
        rows("time [s],duty [-],angle [rad],torque on [-]", time, 0 * time, angle, on),
    )
    motions, _ = read(path)
    assert _model.coasts(motions) == moved


TARGETS = "time [s],target [deg],angle [deg]\n" + "".join(f"{0.01 * k},0,0\n" for k in range(30))
DUTIES = TARGETS.replace("target [deg]", "duty [-]")


def with_column(name, value):
    return DUTIES.replace("0,0\n", f"0,0,{value}\n").replace("]\n", f"],{name}\n")


@pytest.mark.parametrize(
    ("text", "given", "sentence"),
    [
        (TARGETS, {}, "say which controller the servo has"),
        (DUTIES, {"controller": {"family": "mx", "p": 32.0}}, "leave out the controller"),
        (TARGETS, {"controller": {"family": "mx"}}, "give p"),
        (TARGETS, {"controller": {"family": "ax", "p": 3.0}}, "p is no register of ax"),
        (TARGETS, {"controller": {"family": "sts", "p": 300.0}}, "holds 0 to 254"),
        (DUTIES, {"arm": {"mass": 0.1}}, "mass and radius must be given together"),
        (DUTIES, {"arm": {"inertia": 0.1}}, "give either the weight, or mass and radius"),
        (DUTIES, {"servo": {"stall_torque": 1.0}}, "give stall_torque and no_load_speed"),
        (
            DUTIES.replace("0,0\n", "0,0,2\n").replace("]\n", "],torque on [-]\n"),
            {},
            "it is 0 or 1",
        ),
        (DUTIES.replace("0,0\n", "0,0,0\n").replace("]\n", "],voltage [V]\n"), {}, "are positive"),
    ],
)
def test_mistakes_get_a_sentence(tmp_path, text, given, sentence):
    raw = {"experiment": "servo/fit", "data": str(log(tmp_path, text)), **given}
    with pytest.raises(config.ConfigError, match=sentence):
        config.validate(fit.Config, raw, "here")


def test_logs_must_be_alike(tmp_path):
    raw = {
        "experiment": "servo/fit",
        "logs": [
            {
                "file": str(log(tmp_path, TARGETS, "a.csv")),
                "controller": {"family": "mx", "p": 8.0},
            },
            {"file": str(log(tmp_path, DUTIES, "b.csv"))},
        ],
    }
    with pytest.raises(config.ConfigError, match="a and b differ"):
        config.validate(fit.Config, raw, "here")
    with pytest.raises(config.ConfigError, match="both given"):
        config.validate(fit.Config, {**raw, "data": "c.csv"}, "here")


def test_a_resolved_campaign_is_the_same(tmp_path):
    settings = fitted(tmp_path, truth=campaign.AX, duration=0.5)
    path = tmp_path / "again.toml"
    path.write_text(config.dumps(settings), encoding="utf-8")
    assert config.load(path)[0] == settings


@pytest.mark.parametrize("truth", campaign.TRUTHS.values(), ids=campaign.TRUTHS)
def test_data_sheets_bound_servos(truth):
    sheet, _ = _sheet.Sheet(**truth.sheet).known()
    for name, (low, high) in _sheet.from_sheet(sheet).items():
        assert low < getattr(truth, name) < high, name


def test_bounds_that_cannot_be_simulated_are_said(monkeypatch):
    def residuals(parameters, model, measured):
        return (jnp.sqrt(2.0 - parameters["stiffness"]) * jnp.ones(3),)

    monkeypatch.setattr(_checks, "residuals", residuals)
    bounds = {"stiffness": Bound(1.0, 4.0), "coulomb": Bound(1.0, 2.0)}
    sentence = _checks.where_not_finite(("coulomb", "stiffness"), bounds, None, ())
    assert "mostly where stiffness is large" in sentence
    share = int(sentence.partition(" %")[0].partition("%")[0].split()[-1])
    assert abs(share - 50) < 15
