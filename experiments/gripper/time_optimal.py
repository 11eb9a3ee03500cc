"""Two-finger gripper: each finger moved in minimum time with bounded torques.

The problem and its published solution: Schanzer 2007, section 5.5.3 and appendix A.
"""

from typing import Annotated, Any

import jax
import numpy as np
import xarray
from pydantic import Field, ValidationInfo, field_validator, model_validator

import jaxgrip as jg
from experiments.gripper.pictures import draw_certificate
from jaxgrip import config, viz
from jaxgrip.config import Real, Section
from jaxgrip.models import gripper
from jaxgrip.report import Run
from jaxgrip.rigid.builders import GRAVITY

Positive = Annotated[Real, Field(gt=0.0)]
PositiveTriple = tuple[Positive, Positive, Positive]
Triple = tuple[Real, Real, Real]
Range = tuple[Real, Real]

JOINTS = {"A": (1, 2, 3), "B": (4, 5, 6)}
PUBLISHED = {
    "A": {
        "final_time": 0.11997468651,
        "switching_tau": (0.263066, 0.5, 0.604977, 0.710252, 0.892862, 0.893764),
        "switching_joints": (3, 1, 2, 3, 2, 3),
    },
    "B": {
        "final_time": 0.12115805331,
        "switching_tau": (0.246744, 0.5, 0.604096, 0.675352, 0.852576, 0.878599),
        "switching_joints": (6, 4, 5, 6, 6, 5),
    },
}


class Finger(Section):
    """Data of one finger; as published where omitted."""

    position_limits_deg: tuple[Range, Range, Range] = Field(
        description="lowest and highest angle of each of the 3 joints [deg]"
    )
    torque_limits: PositiveTriple = Field(
        description="largest torque of each of the 3 joints, in both directions [N m]"
    )
    start_deg: Triple = Field(description="angles of the 3 joints at the start [deg]")
    end_deg: Triple = Field(description="angles of the 3 joints at the end [deg]")

    @field_validator("position_limits_deg")
    @classmethod
    def _in_order(cls, limits: tuple[Range, ...]) -> tuple[Range, ...]:
        for joint, (lower, upper) in enumerate(limits, start=1):
            if not lower < upper:
                raise ValueError(
                    f"joint {joint} has the lower limit {lower:g} deg, which must be below its "
                    f"upper limit {upper:g} deg"
                )
        return limits

    @field_validator("start_deg", "end_deg")
    @classmethod
    def _within_limits(cls, pose: Triple, info: ValidationInfo) -> Triple:
        limits = info.data.get("position_limits_deg", ())
        for joint, (angle, (lower, upper)) in enumerate(zip(pose, limits, strict=False), start=1):
            if not lower <= angle <= upper:
                raise ValueError(
                    f"joint {joint} is at {angle:g} deg, outside its position_limits_deg of "
                    f"{lower:g} to {upper:g} deg"
                )
        return pose

    @model_validator(mode="after")
    def _moves(self) -> "Finger":
        if self.start_deg == self.end_deg:
            raise ValueError("start_deg and end_deg are the same pose, so nothing has to move")
        return self


class Fingers(Section):
    """The two fingers."""

    A: Finger
    B: Finger

    @model_validator(mode="before")
    @classmethod
    def _as_published(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        filled = {}
        for name, published in gripper.FINGERS.items():
            own = given.get(name, {})
            filled[name] = {**published, **own} if isinstance(own, dict) else own
        return {**given, **filled}


class Links(Section):
    """Geometry and inertia, the same for both fingers."""

    lengths: PositiveTriple = Field(
        gripper.LINK_LENGTHS, description="length of each of the 3 links [m]"
    )
    base_height: Real = Field(
        gripper.BASE_HEIGHT, description="height of the second joint over the base [m]"
    )
    masses: PositiveTriple = Field(gripper.MASSES, description="mass of each of the 3 links [kg]")
    inertias: tuple[Triple, Triple, Triple] = Field(
        gripper.INERTIAS,
        description="Ixx, Iyy, Izz of each of the 3 links about its centre of mass [kg m^2]",
    )

    @field_validator("inertias")
    @classmethod
    def _positive_definite(cls, inertias: tuple[Triple, ...]) -> tuple[Triple, ...]:
        for link, moments in enumerate(inertias, start=1):
            if min(moments) <= 0.0:
                raise ValueError(
                    f"link {link} is not positive definite: its smallest principal moment is "
                    f"{min(moments):g} kg m^2, and must be above 0"
                )
        return inertias


class FinalTime(Section):
    """Guess and bound of the duration."""

    guess: Positive = Field(0.13, description="where the search starts [s]")
    upper: Positive = Field(1.0, description="longest duration allowed [s]")

    @model_validator(mode="after")
    def _in_order(self) -> "FinalTime":
        if self.guess >= self.upper:
            raise ValueError(f"guess {self.guess:g} s must be below upper {self.upper:g} s")
        return self


class Config(config.Config):
    """Both fingers in minimum time."""

    gravity: Triple = Field(GRAVITY, description="in the base frame, z up [m/s^2]")
    fingers: Fingers = Field(default_factory=Fingers)
    links: Links = Field(default_factory=Links)
    final_time: FinalTime = Field(default_factory=FinalTime)
    starts: int = Field(
        1,
        ge=1,
        le=64,
        description="guesses to start from: the straight line and bent ones; the fastest motion is "
        "kept. The published one is that of the straight line",
    )

    def finger(self, name: str) -> jg.models.Finger:
        """Finger "A" or "B" with the numbers of this configuration."""
        numbers = {
            "link_lengths": self.links.lengths,
            "base_height": self.links.base_height,
            "masses": self.links.masses,
            "inertias": self.links.inertias,
            "torque_limit": getattr(self.fingers, name).torque_limits,
            "gravity": self.gravity,
        }
        return jg.models.gripper_finger(name, **{k: np.array(v) for k, v in numbers.items()})

    @model_validator(mode="after")
    def _holds_its_poses(self) -> "Config":
        for name in gripper.FINGERS:
            own = getattr(self.fingers, name)
            try:
                tree = self.finger(name).tree
            except ValueError as error:
                raise ValueError(f"links: {error}") from None
            for key in ("start_deg", "end_deg"):
                needed = np.abs(jg.rigid.gravity_forces(tree, np.deg2rad(getattr(own, key))))
                for joint, (torque, limit) in enumerate(
                    zip(needed, own.torque_limits, strict=True), start=1
                ):
                    if torque > limit:
                        raise ValueError(
                            f"fingers.{name}.torque_limits: joint {joint} may apply {limit:g} N m, "
                            f"but holding {key} against gravity takes {torque:.3g} N m"
                        )
        return self


def run(settings: Config, run: Run) -> None:
    """Solve both fingers, and record numbers, arrays, certificates and pictures."""
    positions = {}
    for name in gripper.FINGERS:
        with run.stage(f"Finger {name}: minimum-time motion"):
            try:
                solution = solve(settings, name)
            except jg.ocp.SolveError as error:
                if error.solution is not None:
                    run.arrays(name, dataset(settings, name, error.solution))
                raise jg.ocp.SolveError(f"Finger {name}: {error}", error.solution) from None
            arrays = dataset(settings, name, solution)
        positions[f"finger {name}"] = viz.refine(arrays).position
        record(run, settings, name, solution, arrays)
        with run.stage(f"Finger {name}: pictures"):
            draw(run, settings, name, solution, arrays)
    with run.stage("Motion of both fingers: picture and animation"):
        title = "Both fingers, each in minimum time"
        picture = viz.stroboscope(positions, title)
        run.figure("motion", picture, "Both fingers from start to end, coloured by time.")
        moving = viz.animate(positions, title)
        run.animation("motion", moving, "The same motion, slowed down.")


def solve(settings: Config, name: str) -> jg.ocp.Solution:
    """Minimum-time motion of finger "A" or "B" (Schanzer 2007, appendix A)."""
    finger, own = settings.finger(name), getattr(settings.fingers, name)
    problem = jg.ocp.Problem(
        dynamics=jg.rigid.StateSpace(finger.tree),
        initial_state=np.concatenate([np.deg2rad(own.start_deg), np.zeros(3)]),
        final_state=np.concatenate([np.deg2rad(own.end_deg), np.zeros(3)]),
        final_time=jg.ocp.Free(guess=settings.final_time.guess, upper=settings.final_time.upper),
        control_bounds=(-finger.torque_limit, finger.torque_limit),
    )
    return jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=settings.starts))


def dataset(settings: Config, name: str, solution: jg.ocp.Solution) -> xarray.Dataset:
    """All signals over time; switching times occur twice, with the values before and after."""
    finger = settings.finger(name)
    x, costate, terms = (np.asarray(a) for a in (solution.x, solution.costate, solution.x_rate))
    joints = {
        "angle": (x[:, :3], "angle", "rad"),
        "rate": (x[:, 3:], "rate", "rad/s"),
        "acceleration": (terms[:, 3:], "acceleration", "rad/s^2"),
        "torque": (solution.u, "torque", "N m"),
        "costate_angle": (costate[:, :3], "costate of the angle", "s/rad"),
        "costate_rate": (costate[:, 3:], "costate of the rate", "s^2/rad"),
        "switching_function": (solution.switching_function, "switching function", "1/(N m)"),
    }
    variables = {
        key: (("time", "joint"), np.asarray(value), {"long_name": long, "units": units})
        for key, (value, long, units) in joints.items()
    }
    variables["hamiltonian"] = (
        ("time",),
        np.asarray(solution.hamiltonian),
        {"long_name": "Hamiltonian", "units": "1", "scale": float(np.abs(costate * terms).max())},
    )
    variables["position"] = (
        ("time", "point", "axis"),
        points(finger, x[:, :3]),
        {"long_name": "base, three joints and tip in the base frame", "units": "m"},
    )
    coordinates = {
        "time": ("time", np.asarray(solution.t), {"units": "s"}),
        "joint": ("joint", list(JOINTS[name]), {"units": "1"}),
        "axis": ("axis", ["x", "y", "z"], {"units": "1"}),
    }
    return xarray.Dataset(variables, coordinates)


def points(finger: jg.models.Finger, q: np.ndarray) -> np.ndarray:
    """Base, joints and tip (time, 5, 3) [m] of a finger at angles `q` (time, 3) [rad]."""
    poses = jax.vmap(jg.rigid.forward_kinematics, in_axes=(None, 0))(finger.tree, q)
    rotation, joints = np.asarray(poses.rotation), np.asarray(poses.translation)
    tip = joints[:, -1] + rotation[:, -1] @ np.asarray(finger.tip)
    return np.concatenate([np.zeros_like(joints[:, :1]), joints, tip[:, None]], axis=1)


def record(
    run: Run, settings: Config, name: str, solution: jg.ocp.Solution, arrays: xarray.Dataset
) -> None:
    """Record numbers, certificate and arrays of one finger."""
    final_time = float(solution.final_time)
    times = np.asarray(solution.switching_times)
    joints = [
        JOINTS[name][control] for control in np.asarray(solution.structure.switching_controls)
    ]
    # The published numbers hold for the published problem only.
    published = PUBLISHED[name] if _as_published(settings, name) else {}
    run.add(f"final_time_{name}", final_time, "s", published.get("final_time"))
    tau = published.get("switching_tau")
    run.add(f"switching_tau_{name}", times / final_time, "1", tau)
    run.add(f"switching_joints_{name}", joints, "1", published.get("switching_joints"))
    run.add(f"switching_times_{name}", times, "s")
    relative = next(c.value for c in solution.certificate.checks if c.name == "Hamiltonian")
    run.add(f"hamiltonian_relative_{name}", relative, "1")
    fastest = np.abs(arrays.rate.values).max(axis=0)
    run.add(f"largest_rates_{name}", fastest, "rad/s")
    run.certify(f"finger {name}", solution.certificate)
    run.arrays(name, arrays)

    limit = settings.finger(name).velocity_limit
    for joint, rate, bound in zip(JOINTS[name], fastest, np.asarray(limit), strict=True):
        if rate > bound:
            run.note(
                f"Joint {joint} reaches {rate:.1f} rad/s; the drive's limit of {bound:g} rad/s is "
                "not part of this problem."
            )
    angles = np.rad2deg(arrays.angle.values)
    limits = getattr(settings.fingers, name).position_limits_deg
    for joint, angle, (lower, upper) in zip(JOINTS[name], angles.T, limits, strict=True):
        if angle.min() < lower - 1e-6 or angle.max() > upper + 1e-6:
            run.note(
                f"Joint {joint} moves between {angle.min():.1f} and {angle.max():.1f} deg and so "
                f"leaves its limits of {lower:g} to {upper:g} deg; in this problem they apply to "
                "the start and end poses only."
            )


def draw(
    run: Run, settings: Config, name: str, solution: jg.ocp.Solution, arrays: xarray.Dataset
) -> None:
    """Record the pictures of one finger."""
    times = np.asarray(solution.switching_times)
    # Interpolated for display only; numbers and the Hamiltonian are those of the solver's points.
    smooth = viz.refine(arrays)
    title = f"Finger {name} in {1e3 * float(solution.final_time):.2f} ms"
    joints = JOINTS[name]
    draw_certificate(run, name, solution, title, [str(joint) for joint in joints], joints)
    limit = float(settings.finger(name).velocity_limit.max())
    angle = np.rad2deg(smooth.angle).assign_attrs(long_name="angle", units="deg")
    run.figure(
        f"states_{name}",
        viz.lines(
            [angle, smooth.rate],
            f"Finger {name}: motion",
            switching_times=times,
            limits={"rate": (-limit, limit, "limit of the drives, not imposed")},
        ),
        f"Finger {name}: joint angles and rates.",
    )
    run.figure(
        f"costates_{name}",
        viz.lines(
            [smooth.costate_angle, smooth.costate_rate],
            f"Finger {name}: costates",
            switching_times=times,
        ),
        f"Finger {name}: costates; they are continuous at switching times.",
    )


def _as_published(settings: Config, name: str) -> bool:
    default = Config(experiment=settings.experiment)
    return (
        settings.links == default.links
        and settings.gravity == default.gravity
        and getattr(settings.fingers, name) == getattr(default.fingers, name)
    )
