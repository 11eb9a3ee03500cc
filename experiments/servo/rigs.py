"""Friction, gear and servo AX-12 on their test rigs, against published and independent values."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import jaxgrip as jg
from jaxgrip import viz
from jaxgrip.actuators import LuGre, SourceAlgorithm, passivity, rigs, simulate, simulate_fixed
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

# Values of independent programs for the published parameters, after their arguments.
STEADY = (
    (0.01, 0.0659532, 0.1, 0.5, 1.0, 5.0),
    (0.426684614, 0.226581544, 0.141461738, 0.22068115, 0.3642073, 1.5124165),
)
LOOPS = (
    (0.001, 0.002, 0.005, 0.01, 0.02),
    (1.7459e-6, 1.3894e-5, 2.1169e-4, 1.56227e-3, 9.42951e-3),
)
BREAK_AWAY = ((0.01, 0.05, 0.1, 0.5, 1.0, 2.0), (0.4191, 0.3862, 0.3577, 0.2416, 0.1824, 0.1531))
STICK_SLIP = {"begins": (7.458, 13.82), "ends": (10.223, 16.586)}
ACTIVE = (0.345, 0.791)
CREEP = ((0.1, 1.0, 10.0, 60.0, 180.0), (2.0412, 3.8124, 4.0134, 4.3883, 4.5059))
LEVER = ((1, 10, 60, 180), (3.3831, 3.5205, 3.8063, 3.8928))
TIMES = (0.5, 1, 2, 5, 10, 20)
SINE = (0.42859645, 0.66067554, -0.67450136, 0.67543609, -0.67543309, -0.67543343)
STEP = (0.56185485, 0.67965112, 0.67241337, 0.67123219, 0.66962033, 0.66701372)
SOURCE_SINE = (0.434558760, 0.660081711, -0.673791034, 0.674391512, -0.674389135, -0.674389411)
SOURCE_STEP = (0.567276368, 0.679418533, 0.675665759, 0.674784452, 0.673518195, 0.671477200)
DECAY = (
    (0.1, 0.2, 0.5, 1, 2, 5, 10),
    (1.43707324, 1.18778757, 0.36105382, 0.02677855, 0.04362782, 0.04375547, 0.04367420),
)
NO_LOAD = 6.0302
RUN_UP = 0.1904
FLYWHEELS = ((0.01, 0.03, 0.1), (0.01685, 0.01779, 0.01841))
# The friction of Canudas 1995, table I.
BENCHMARK = {
    "coulomb": 1.0,
    "stiction": 1.5,
    "viscous": 0.4,
    "stiffness": 1e5,
    "damping": 1e5**0.5,
    "stribeck_velocity": 1e-3,
}
H = 0.01


def friction(run: Run) -> None:
    """Steady sliding, hysteresis before sliding, break-away, stick-slip and passivity."""
    servo = jg.models.servo_ax12()
    model = servo.friction
    run.add("steady_friction", model.steady(jnp.array(STEADY[0])), "N m", STEADY[1])
    verdict = passivity(model, 10.0)
    run.add("active_speeds", verdict.ranges[0], "rad/s", ACTIVE)
    run.note(verdict.sentence)
    v = np.linspace(-1.0, 1.0, 2001)
    static = jg.actuators.stribeck(
        v, model.coulomb, model.stiction, model.stribeck_velocity, model.viscous
    )
    run.figure(
        "stribeck",
        viz.curves(
            [
                Panel(
                    "speed [rad/s]",
                    "friction [N m]",
                    [
                        Curve("steady sliding", v, np.asarray(static)),
                        Curve("viscous part", v, np.asarray(model.viscous * v)),
                    ],
                    bands=[
                        (sign * lo, sign * hi, "bristles may release energy")
                        for lo, hi in verdict.ranges
                        for sign in (1, -1)
                    ],
                    levels=[
                        (float(model.stiction), "stiction"),
                        (float(model.coulomb), "Coulomb friction"),
                    ],
                )
            ],
            "Servo AX-12: friction in steady sliding",
        ),
        "Friction over speed: it falls from stiction to Coulomb friction (Stribeck), then rises. "
        "Shaded: speeds at which bent bristles can release energy.",
    )
    loops = [_loop(model, a) for a in LOOPS[0]]
    run.add("hysteresis_energy", [loop.energy for loop in loops], "J", LOOPS[1])
    run.figure(
        "hysteresis",
        viz.curves(
            [
                Panel(
                    "angle [mrad]",
                    "torque of the bristles [N m]",
                    [
                        Curve(f"±{1e3 * a:g} mrad", 1e3 * loop.angle, loop.torque)
                        for a, loop in list(zip(LOOPS[0], loops, strict=True))[2:]
                    ],
                )
            ],
            "Servo AX-12: hysteresis before sliding",
        ),
        "Small swings bend the bristles without sliding; the area of a loop is dissipated energy.",
    )
    velocity, broken = model.stribeck_velocity, []
    for rate in BREAK_AWAY[0]:
        times = jnp.linspace(0.0, 0.5 / rate, 4001)
        body = rigs.slide(model, servo.inertia, rigs.ramp(rate), times)
        broken.append(float(rate * rigs.first_above(times, body.speed, velocity)))
    run.add("break_away", broken, "N m", BREAK_AWAY[1])
    run.figure(
        "break_away",
        viz.curves(
            [
                Panel(
                    "rate of the torque [N m/s]",
                    "torque at break-away [N m]",
                    [Curve("", np.array(BREAK_AWAY[0]), np.array(broken), points=True)],
                    log="x",
                    levels=[(float(model.stiction), "stiction")],
                )
            ],
            "Servo AX-12: the faster the torque grows, the smaller the torque at break-away",
        ),
        "Torque at which the flywheel first exceeds the Stribeck velocity.",
    )
    _stick_slip(run, servo)


class _Loop(NamedTuple):
    angle: np.ndarray
    torque: np.ndarray
    energy: float


def _loop(model: LuGre, amplitude: float) -> _Loop:
    """The third cycle of a sine of 0.1 Hz."""
    steps, omega = 20_000, 0.2 * np.pi
    times = np.arange(3 * steps + 1) * 10.0 / steps
    middle = (times[1:] + times[:-1]) / 2

    def step(z, v):
        _, z = model.step(v, z, 10.0 / steps)
        return z, z

    speed = jnp.asarray(amplitude * omega * np.cos(omega * middle))
    _, z = jax.lax.scan(step, jnp.array(0.0), speed)
    z = np.asarray(z)[-steps - 1 :]
    angle = amplitude * np.sin(omega * times[-steps - 1 :])
    return _Loop(angle, z, float(np.sum((z[1:] + z[:-1]) / 2 * np.diff(angle))))


def _stick_slip(run: Run, servo: jg.actuators.Servo) -> None:
    times = jnp.linspace(0.0, 18.0, 36001)
    body = rigs.slide(LuGre(**BENCHMARK), 1.0, rigs.pull(2.0, 0.1), times)
    above = np.asarray(body.speed) > 0.01
    for name, changes in (("begins", above[1:] & ~above[:-1]), ("ends", ~above[1:] & above[:-1])):
        k = np.flatnonzero(changes)
        part = (0.01 - body.speed[k]) / (body.speed[k + 1] - body.speed[k])
        run.add(f"slip_{name}", times[k] + part * (times[k + 1] - times[k]), "s", STICK_SLIP[name])
    panels = [
        Panel(
            "time [s]",
            "position [m]",
            [
                Curve("pulled end of the spring", np.asarray(times), 0.1 * np.asarray(times)),
                Curve("body", np.asarray(times), np.asarray(body.angle)),
            ],
            title="Body of 1 kg on a spring (benchmark)",
        )
    ]
    times = jnp.linspace(0.0, 40.0, 4001)
    for rate, last in ((0.05, 4001), (0.1, 2301)):
        speed = rigs.constant_rate(servo, rate, times).servo.speed[:, 0]
        panels.append(
            Panel(
                "time [s]",
                "speed [rad/s]",
                [Curve("flywheel", np.asarray(times[2000:last]), np.asarray(speed[2000:last]))],
                title=f"Servo, output rotated at {rate:g} rad/s",
                levels=[(rate, "speed of the output")],
            )
        )
    run.figure(
        "stick_slip",
        viz.curves(panels, "Stick-slip"),
        "The body sticks until the spring breaks it loose; so does the flywheel of a servo, behind "
        "its gear, when the output is rotated slowly.",
    )


def gear(run: Run) -> None:
    """Creep and recovery of the gear: closed form, lever, and the source's steps."""
    model = jg.models.servo_ax12().gear
    closed = jax.vmap(model.creep)(jnp.array(CREEP[0]))
    run.add("creep_angle_deg", np.rad2deg(0.5 * closed), "deg", CREEP[1])
    steps = round(180 / H)
    source = rigs.creep_test_fixed(model, 0.5, H, round(360 / H), release=180.0)
    at = np.rint(np.array(LEVER[0]) / H).astype(int)
    run.add("creep_lever_source_deg", np.rad2deg(source.angle[at]), "deg", LEVER[1])
    run.add("gear_stiffness_lasting", model.spring, "N m/rad")
    run.add("gear_stiffness_added_by_the_source_step", model.source_error(H), "N m/rad", 1.00175)
    times = jnp.concatenate([jnp.linspace(0.0, 180.0, 1801), jnp.linspace(180.05, 360.0, 1800)])
    lever = rigs.creep_test(model, 0.5, times, release=180.0)
    before = np.asarray(times[1:1801])
    run.figure(
        "creep",
        viz.curves(
            [
                Panel(
                    "time [s]",
                    "twist [°]",
                    [
                        Curve("lever, exact", np.asarray(times), np.rad2deg(lever.angle)),
                        Curve(
                            "closed form without inertia",
                            before,
                            np.rad2deg(0.5 * jax.vmap(model.creep)(jnp.asarray(before))),
                        ),
                        Curve(
                            "lever, source's steps of 10 ms",
                            np.asarray(source.t[:: steps // 900]),
                            np.rad2deg(source.angle[:: steps // 900]),
                        ),
                    ],
                )
            ],
            "Gear of the servo AX-12: creep under 0.5 N m and recovery",
        ),
        "Twist of the gear under 0.5 N m, released after three minutes. The source's steps make it "
        f"stiffer by {float(model.source_error(H)):.2f} N m/rad.",
    )
    w = np.geomspace(1e-3, 1e3, 400)
    modulus = np.asarray(jax.vmap(model.modulus)(jnp.asarray(w)))
    run.figure(
        "modulus",
        viz.curves(
            [
                Panel(
                    "frequency [Hz]",
                    "stiffness [N m/rad]",
                    [
                        Curve("storage", w / 2 / np.pi, modulus.real),
                        Curve("loss", w / 2 / np.pi, modulus.imag),
                    ],
                    log="x",
                )
            ],
            "Gear of the servo AX-12: stiffness over frequency",
        ),
        "The gear is soft in slow motion and stiff in fast motion; between, it dissipates energy.",
    )


def _torque(torque, stall, t, q, qd):
    return jnp.full_like(q, torque(t) / stall)


def _sine(t):
    return jnp.sin(jnp.pi * t)


def _step(t):
    return 0.8 + 0.0 * t


def _none(t):
    return 0.0 * t


def pendulum(run: Run) -> None:
    """The servo swings its arm: exact, and in the source's steps."""
    servo, arm = jg.models.servo_ax12(), jg.models.servo_ax12_arm()
    times = jnp.linspace(0.0, 20.0, 2001)
    panels = []
    for name, torque, angle, title in (
        ("sine", _sine, 0.0, "Torque sin(πt) N m"),
        ("step", _step, 0.0, "Torque of 0.8 N m"),
        ("decay", _none, np.pi / 2, "Released at 90°, no torque"),
    ):
        command = Partial(_torque, torque, servo.stall_torque)
        exact = simulate(arm, servo, command, times, q0=[angle], rtol=1e-9, atol=1e-11)
        duties = jax.vmap(torque)(times[:-1])[:, None] / servo.stall_torque
        source = simulate_fixed(arm, servo, duties, H, q0=[angle], algorithm=SourceAlgorithm())
        if name == "decay":
            at = np.rint(np.array(DECAY[0]) / H).astype(int)
            run.add("angle_decay", exact.q[at, 0], "rad", DECAY[1])
        else:
            at = np.rint(np.array(TIMES) / H).astype(int)
            known = {"sine": (SINE, SOURCE_SINE), "step": (STEP, SOURCE_STEP)}[name]
            run.add(f"angle_{name}", exact.q[at, 0], "rad", known[0])
            run.add(f"angle_{name}_source", source.q[at, 0], "rad", known[1])
        shown = slice(0, 601)
        t = np.asarray(times[shown])
        panels.append(
            Panel(
                "time [s]",
                "angle [°]",
                [
                    Curve("arm, exact", t, np.rad2deg(exact.q[shown, 0])),
                    Curve("arm, source's steps of 10 ms", t, np.rad2deg(source.q[shown, 0])),
                    Curve("flywheel, exact", t, np.rad2deg(exact.servo.angle[shown, 0])),
                ],
                title=title,
            )
        )
    run.figure(
        "pendulum",
        viz.curves(panels, "Servo AX-12 on the pendulum rig"),
        "Angle of the arm and of the flywheel behind the gear.",
    )


def run_up(run: Run) -> None:
    """Run-up without load and with flywheels, from which the inertia is estimated."""
    servo = jg.models.servo_ax12()
    times = jnp.linspace(0.0, 8.0, 8001)
    motions = {"bare": rigs.run_up(servo, 1e-4, times)}
    bare = rigs.run_up_time(motions["bare"])
    run.add("no_load_speed", motions["bare"].servo.speed[-1, 0], "rad/s", NO_LOAD)
    run.add("run_up_time", bare, "s", RUN_UP)
    found = []
    for flywheel in FLYWHEELS[0]:
        motions[f"flywheel {flywheel:g} kg m²"] = motion = rigs.run_up(servo, flywheel, times)
        found.append(rigs.inertia_estimate(flywheel, bare, rigs.run_up_time(motion)))
    run.add("inertia_estimate", found, "kg m^2", FLYWHEELS[1])
    run.add("inertia", servo.inertia, "kg m^2")
    shown = slice(0, 2001)
    run.figure(
        "run_up",
        viz.curves(
            [
                Panel(
                    "time [s]",
                    "speed of the flywheel [rad/s]",
                    [
                        Curve(name, np.asarray(times[shown]), np.asarray(m.servo.speed[shown, 0]))
                        for name, m in motions.items()
                    ],
                )
            ],
            "Servo AX-12: run-up at full duty",
        ),
        "Run-up of the bare servo and with flywheels at its output; the ratio of their times gives "
        f"the inertia to within {100 * abs(float(found[0] / servo.inertia) - 1):.1f} %.",
    )


def algorithms(run: Run) -> None:
    """Error of the source's steps over the step."""
    servo, arm = jg.models.servo_ax12(), jg.models.servo_ax12_arm()
    command = Partial(_torque, _sine, servo.stall_torque)
    exact = simulate(arm, servo, command, jnp.linspace(0.0, 20.0, 2001), rtol=1e-9, atol=1e-11).q[
        :, 0
    ]
    steps = (1e-2, 5e-3, 2e-3, 1e-3)
    curves = []
    for gear_scheme, label, known in (
        ("source", "source's gear", (3.15e-3, 1.47e-3, 5.6e-4, 2.8e-4)),
        ("zoh", "exact gear, zero-order hold", (5.8e-3, 2.9e-3, 1.2e-3, 5.9e-4)),
    ):
        algorithm = SourceAlgorithm(gear=gear_scheme)
        off = []
        for h in steps:
            t = h * jnp.arange(round(20 / h))
            duties = jax.vmap(_sine)(t)[:, None] / servo.stall_torque
            motion = simulate_fixed(arm, servo, duties, h, algorithm=algorithm)
            off.append(float(jnp.sqrt(jnp.mean((motion.q[:: round(1e-2 / h), 0] - exact) ** 2))))
        curves.append(Curve(label, 1e3 * np.array(steps), 1e3 * np.array(off), points=True))
        run.add(f"step_error_{gear_scheme}", off, "rad", known)
    line = np.array(steps)
    curves.append(Curve("first order", 1e3 * line, 300.0 * line))
    run.figure(
        "steps",
        viz.curves(
            [Panel("step [ms]", "error of the angle, rms [mrad]", curves, log="xy")],
            "Source's algorithm: error over the step",
        ),
        "Error of the source's fixed steps under sin(πt) N m, over 20 s.",
    )
