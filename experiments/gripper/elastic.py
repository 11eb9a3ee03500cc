"""Two-finger gripper: stress and vibration of elastic links along an optimal motion.

The problem: Schanzer 2007, chapter 7 and appendix C. It prints no displacement, strain or stress;
reference values are those of an independent program.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import xarray
import zarr
from jaxtyping import Array, Float
from pydantic import Field, model_validator
from scipy.interpolate import CubicSpline

import jaxgrip as jg
from experiments.gripper import optimal_motions, time_optimal
from jaxgrip import config, fem, viz
from jaxgrip.config import Distinct, InputPath, Real, Section
from jaxgrip.flexible import JointMotion, LinkMotion, link_load
from jaxgrip.report import Run

Positive = Annotated[Real, Field(gt=0.0)]
NotNegative = Annotated[Real, Field(ge=0.0)]
Share = Annotated[Real, Field(ge=0.0, le=1.0)]
Shape = Literal["square", "cylinder"]
Density = Literal["material", "match_mass"]
Link = Literal[2, 3]

# Approximate duration of the motions [s], and memory limit of one response [bytes].
LONGEST = 0.14
MEMORY = 8e9
# Largest unpacked size of the arrays of an earlier run [bytes].
LARGEST_STORE = 1e8
# Duration of the start that is drawn separately [s].
START = 5e-3
ELEMENTS = {"hex8": fem.Hex8, "hex8_incompatible": fem.Hex8Incompatible}
STRAINS = ("ε xx", "ε yy", "ε zz", "γ xy", "γ yz", "γ zx")
STRESSES = ("σ xx", "σ yy", "σ zz", "τ xy", "τ yz", "τ zx")
# Along the default motion: |U| of node 662 at tau = 0, 0.1, ..., 1 and at its peak [m], the time of
# the peak [s], and the largest von Mises stress at the Gauss points at every millisecond [Pa].
REFERENCE = {
    (2, "square", "material"): {
        "displacement": (
            *(0.0792e-6, 21.45e-6, 11.80e-6, 6.217e-6, 2.517e-6, 0.713e-6),
            *(4.302e-6, 9.472e-6, 8.274e-6, 8.328e-6, 9.816e-6),
        ),
        "peak_displacement": 27.45e-6,
        "peak_time": 0.28e-3,
        "von_mises_gauss": 5.58e6,
    },
    (3, "square", "material"): {
        "displacement": (
            *(0.0967e-6, 0.949e-6, 0.144e-6, 0.257e-6, 0.490e-6, 0.563e-6),
            *(0.483e-6, 0.301e-6, 0.121e-6, 0.186e-6, 0.224e-6),
        ),
        "peak_displacement": 1.304e-6,
        "peak_time": 0.35e-3,
        "von_mises_gauss": 2.3e5,
    },
    (2, "square", "match_mass"): {
        "peak_displacement": 31.65e-6,
        "peak_time": 0.88e-3,
        "von_mises_gauss": 7.9e6,
    },
    (3, "square", "match_mass"): {
        "displacement": (
            *(1.364e-6, 13.70e-6, 2.038e-6, 3.631e-6, 6.910e-6, 7.939e-6),
            *(6.813e-6, 4.272e-6, 1.699e-6, 2.625e-6, 3.158e-6),
        ),
        "peak_displacement": 24.57e-6,
        "peak_time": 1.18e-3,
        "von_mises_gauss": 5.0e6,
    },
}


class Material(Section):
    """Material of the links, by default aluminium."""

    young: Positive = Field(7.22e10, description="Young's modulus [Pa]")
    poisson: Annotated[Real, Field(gt=-1.0, lt=0.5)] = Field(0.34, description="Poisson's ratio")
    density: Positive = Field(2700.0, description="[kg/m^3]")
    yield_strength: Positive = Field(240e6, description="for the safety factor [Pa]")
    damping_mass: NotNegative = Field(1.0, description="Rayleigh's factor of the mass [1/s]")
    damping_stiffness: NotNegative = Field(
        8e-5, description="Rayleigh's factor of the stiffness [s]"
    )


class Mesh(Section):
    """Mesh of each link."""

    element: Literal["hex8", "hex8_incompatible"] = Field(
        "hex8", description="the element of the source, or one that is not too stiff in bending"
    )
    along: int = Field(13, ge=1, le=1000, description="elements along the link")
    across: int = Field(
        6, ge=2, le=100, description="elements over width and height, an even number"
    )

    @model_validator(mode="after")
    def _has_a_node_in_the_middle(self) -> "Mesh":
        if self.across % 2:
            raise ValueError(
                f"across = {self.across} leaves no node in the middle of the free end, whose "
                "displacement is reported; it must be even"
            )
        return self


class Config(config.Config):
    """Elastic links of one finger along its optimal motion."""

    finger: Literal["A", "B"] = Field("A", description="which finger moves")
    motion: Literal["drive_rates", "time_optimal"] = Field(
        "drive_rates",
        description="least effort in 0.137 s with competing drives of different rates, or least "
        "time",
    )
    motion_from: InputPath | None = Field(
        None,
        description="folder of a run of gripper/optimal_motions or gripper/time_optimal to take "
        "the motion from; solved here if omitted",
    )
    links: Distinct[tuple[Link, ...]] = Field(
        (2, 3), min_length=1, description="which links are elastic"
    )
    step: Annotated[Real, Field(gt=0.0, le=5e-3)] = Field(
        2.5e-5, description="largest step of the time integration [s]"
    )
    shapes: Distinct[tuple[Shape, ...]] = Field(
        ("square", "cylinder"),
        min_length=1,
        description="cross-sections; only the first with the first density has all pictures",
    )
    densities: Distinct[tuple[Density, ...]] = Field(
        ("material", "match_mass"),
        min_length=1,
        description="density of the material, or the density that matches the link's mass",
    )
    width: Positive = Field(7.5e-5**0.5, description="side of the square section [m]")
    radius: Positive = Field(0.005, description="of the cylinder [m]")
    material: Material = Field(default_factory=Material)
    mesh: Mesh = Field(default_factory=Mesh)
    stiffening: bool = Field(
        False,
        description="whether the stress of the inertia forces stiffens the links, which the source "
        "omits",
    )
    instants: Distinct[tuple[Share, ...]] = Field(
        (0.25, 0.5, 0.75, 1.0),
        description="times, relative to the duration, at which strain and stress are drawn, "
        "besides that of the largest displacement",
    )

    @model_validator(mode="after")
    def _fits_into_memory(self) -> "Config":
        nodes, steps = (self.mesh.across + 1) ** 2, LONGEST / self.step
        # Displacements at every step; factors with two square blocks per layer of nodes.
        needed = 24.0 * nodes * (self.mesh.along + 1) * steps
        needed += 16.0 * (3.0 * nodes) ** 2 * (self.mesh.along + 1)
        if needed > MEMORY:
            raise ValueError(
                f"step = {self.step:g} s makes {steps:.2g} steps, and the mesh {nodes} nodes in "
                f"each of {self.mesh.along + 1} layers: together about {1e-9 * needed:.3g} GB, of "
                f"which {1e-9 * MEMORY:g} are allowed; take longer steps or fewer elements"
            )
        return self

    @model_validator(mode="after")
    def _motion_is_there(self) -> "Config":
        if self.motion_from is not None:
            _stored(self)
        return self


class Motion(NamedTuple):
    """A motion of a finger: `time` (t,) [s] in equal steps, and `joints`, linear between them."""

    time: Float[np.ndarray, " t"]
    joints: diffrax.LinearInterpolation


class Response(NamedTuple):
    """A link's response: displacements `u` (t, n, 3) [m], and the peak `stress`."""

    body: fem.Body
    time: np.ndarray
    u: Float[Array, "t n 3"]
    node: int
    stress: fem.Peak

    @property
    def displacement(self) -> np.ndarray:
        """|U| of the middle of the free end (t,) [m]."""
        return np.linalg.norm(np.asarray(self.u[:, self.node]), axis=-1)


def run(settings: Config, run: Run) -> None:
    """Find the motion, simulate the links, and record numbers, arrays and pictures."""
    finger = jg.models.gripper_finger(settings.finger)
    with run.stage(f"Finger {settings.finger}: optimal motion"):
        motion = _motion(settings, run, finger)
    run.add("final_time", motion.time[-1], "s")
    run.add("step", motion.time[1], "s")
    responses: dict[tuple, Response] = {}
    for case in _cases(settings):
        link, shape, density = case
        with run.stage(f"Link {link}, {_words(shape, density)}: elastic response"):
            body = link_body(settings, finger, *case)
            responses[case] = respond(body, finger, motion, link, settings.stiffening)
            _record(run, settings, case, responses[case])
        if (shape, density) == (settings.shapes[0], settings.densities[0]):
            with run.stage(f"Link {link}, {_words(shape, density)}: pictures"):
                _draw(run, settings, case, responses[case])
    with run.stage("Comparison of all cases: pictures"):
        _compare(run, settings, responses)
    if _reference(settings) and "square" in settings.shapes:
        run.note(
            "Schanzer 2007 prints no displacement or stress; the values beside ours are those "
            "of an independent program for the same motion, loads and step. Its von Mises stress "
            "is the largest at the Gauss points at every millisecond, von_mises_gauss here."
        )


def link_body(
    settings: Config, finger: jg.models.Finger, link: int, shape: str, density: str
) -> fem.Body:
    """A link clamped at its joint (Schanzer 2007, section 7.3)."""
    length, mass = finger.link_lengths[link - 1], finger.tree.mass[link - 1]
    size, own = settings.mesh, settings.material
    counts, element = (size.along, size.across), ELEMENTS[size.element]()
    if shape == "square":
        width = settings.width
        mesh = fem.box_mesh(length, width, width, *counts, size.across, element=element)
    else:
        mesh = fem.cylinder_mesh(length, settings.radius, *counts, element=element)

    def body(rho):
        return fem.Body(
            mesh,
            fem.Isotropic(own.young, own.poisson, rho),
            clamp="x0",
            damping=fem.Rayleigh(own.damping_mass, own.damping_stiffness),
        )

    if density == "material":
        return body(own.density)
    # The mesh of a cylinder has less volume than the cylinder.
    volume = fem.gravity(body(1.0), (1.0, 0.0, 0.0)).sum()
    return body(mass / volume)


def respond(
    body: fem.Body, finger: jg.models.Finger, motion: Motion, link: int, stiffening: bool = False
) -> Response:
    """Vibration from static equilibrium under the weight, by Newmark's method.

    Source: Schanzer 2007, section 7.3.
    """
    tree = finger.tree
    moving = LinkMotion(tree, tree.names[link - 1], motion.joints.evaluate)
    load = link_load(body, moving, {tree.names[child]: "x1" for child in moving.children})
    start = jg.rigid.forward_kinematics(tree, motion.joints.ys.q[0]).rotation[link - 1]
    u = fem.simulate(
        body,
        moving.frame,
        motion.time[1],
        t1=motion.time[-1],
        load=load,
        u0=fem.solve_static(body, fem.gravity(body, start.T @ tree.gravity)),
        geometric=stiffening,
        save=_only_displacements,
    ).saved
    end = body.mesh.nearest((body.mesh.nodes[:, 0].max(), 0.0, 0.0))
    return Response(body, motion.time, u, end, fem.peak(body, u))


def _only_displacements(t: Array, u: Array, v: Array) -> Array:
    return u


def _motion(settings: Config, run: Run, finger: jg.models.Finger) -> Motion:
    t, q, qd, torque = (
        _stored(settings) if settings.motion_from is not None else _solved(settings, run)
    )
    steps = int(np.ceil(t[-1] / settings.step - 1e-9))
    time = np.linspace(0.0, t[-1], steps + 1)
    x = _sample(t, np.concatenate([q, qd, torque], axis=1), time)
    q, qd, torque = jnp.split(jnp.asarray(x), 3, axis=1)

    qdd = jax.jit(jax.vmap(jg.rigid.forward_dynamics, in_axes=(None, 0, 0, 0)))(
        finger.tree, q, qd, torque
    )
    return Motion(time, diffrax.LinearInterpolation(jnp.asarray(time), JointMotion(q, qd, qdd)))


def _solved(settings: Config, run: Run) -> tuple[np.ndarray, ...]:
    """Times and, at each, angles, rates and torques of the joints."""
    name, experiment = settings.finger, settings.experiment
    if settings.motion == "time_optimal":
        solution = time_optimal.solve(time_optimal.Config(experiment=experiment), name)
        torque = np.asarray(solution.u)
    else:
        problem = optimal_motions.competing_drives(
            optimal_motions.Config(experiment=experiment), name, 1.0, bounded_rates=True
        )
        solution = jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=1))
        torque = np.asarray(solution.u) @ np.array(optimal_motions.DRIVE_OF_JOINT).T
    run.certify(f"motion of finger {name}", solution.certificate)
    return np.asarray(solution.t), *np.split(np.asarray(solution.x), 2, axis=1), torque


def _stored(settings: Config) -> tuple[np.ndarray, ...]:
    """The same as `_solved`, from the arrays of an earlier run."""
    group = {"drive_rates": "rates_", "time_optimal": ""}[settings.motion] + settings.finger
    store = settings.motion_from / "results.zarr"
    if not store.is_dir():
        raise config.ConfigError(f"motion_from: there is no {store}; give the folder of a run.")
    try:
        # xarray reads coordinates when opening, so sizes are checked before.
        size = sum(
            array.nbytes for _, array in zarr.open_group(store, path=group, mode="r").arrays()
        )
        if size > LARGEST_STORE:
            raise config.ConfigError(
                f"motion_from: {store} would unpack to {size:.3g} bytes; a motion has at most "
                f"{LARGEST_STORE:.3g}."
            )
        arrays = xarray.open_zarr(store, group=group, consolidated=False).load()
    except (FileNotFoundError, KeyError):
        raise config.ConfigError(
            f"motion_from: {store} has no motion {group!r}, as the run of "
            f'motion = "{settings.motion}" for finger {settings.finger} leaves it.'
        ) from None
    torque = arrays.torque.values
    if settings.motion == "drive_rates":
        torque = torque @ np.array(optimal_motions.DRIVE_OF_JOINT).T
    return arrays.time.values, arrays.angle.values, arrays.rate.values, torque


def _sample(t: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Values at times, by a cubic spline on each arc; where arcs meet, of the later one."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(t) == 0.0) + 1, [len(t)]])
    arc = np.clip(np.searchsorted(t[begins[1:-1]], at, side="right"), 0, len(begins) - 2)
    out = np.empty((len(at), values.shape[1]))
    for k in np.unique(arc):
        own = slice(begins[k], begins[k + 1])
        out[arc == k] = CubicSpline(t[own], values[own])(at[arc == k])
    return out


def _cases(settings: Config) -> Iterator[tuple[int, str, str]]:
    for link in dict.fromkeys(settings.links):
        for shape in dict.fromkeys(settings.shapes):
            for density in dict.fromkeys(settings.densities):
                yield link, shape, density


def _words(shape: str, density: str) -> str:
    return f"{shape}, {'density of the material' if density == 'material' else 'mass of the link'}"


def _reference(settings: Config) -> dict:
    """Reference values, if they are for this configuration."""
    default = Config(experiment=settings.experiment)
    same = ("finger", "motion", "step", "width", "radius", "material", "mesh", "stiffening")
    equal = all(getattr(settings, key) == getattr(default, key) for key in same)
    return REFERENCE if equal else {}


def _record(run: Run, settings: Config, case: tuple, response: Response) -> None:
    link, shape, density = case
    key = f"link{link}_{shape}_{density}"
    reference = _reference(settings).get(case, {})
    u = response.displacement
    tau = np.linspace(0.0, 1.0, 11)
    at = np.interp(tau * response.time[-1], response.time, u)
    run.add(f"displacement_{key}", at, "m", reference.get("displacement"))
    run.add(f"peak_displacement_{key}", u.max(), "m", reference.get("peak_displacement"))
    run.add(f"peak_time_{key}", response.time[u.argmax()], "s", reference.get("peak_time"))
    mises = float(response.stress.value)
    gauss = _von_mises_at_gauss_points(response)
    run.add(f"von_mises_gauss_{key}", gauss, "Pa", reference.get("von_mises_gauss"))
    run.add(f"von_mises_{key}", mises, "Pa")
    run.add(f"von_mises_time_{key}", response.time[int(response.stress.time)], "s")
    position = np.asarray(response.body.mesh.nodes)[int(response.stress.node)]
    run.add(f"von_mises_place_{key}", position, "m")
    run.add(f"safety_factor_{key}", settings.material.yield_strength / mises, "1")
    run.arrays(key, _dataset(settings, response))
    if mises > settings.material.yield_strength:
        run.note(
            f"Link {link}, {_words(shape, density)}: the von Mises stress exceeds the yield "
            "strength, so the link is no longer elastic and larger values are not valid."
        )


def _von_mises_at_gauss_points(response: Response) -> float:
    """The largest at every millisecond [Pa]."""
    step = max(1, round(1e-3 / response.time[1]))
    body = response.body
    most = jax.lax.map(
        lambda u: fem.von_mises(fem.stress(body, u)).max(), response.u[::step], batch_size=32
    )
    return float(most.max())


def _instants(settings: Config, response: Response) -> np.ndarray:
    """Indices of the times at which fields are drawn and kept, in ascending order."""
    shares = np.round(np.array(settings.instants) * (len(response.time) - 1)).astype(int)
    return np.unique([response.displacement.argmax(), *shares])


def _dataset(settings: Config, response: Response) -> xarray.Dataset:
    body, kept = response.body, _instants(settings, response)
    strain, stress = _fields(response, kept)

    def variable(dims, values, name, units):
        return dims, np.asarray(values), {"long_name": name, "units": units}

    node, instant = ("instant", "node", "axis"), ("instant", "node", "component")
    return xarray.Dataset(
        {
            "tip": variable(
                ("time", "axis"),
                response.u[:, response.node],
                "displacement of the middle of the free end",
                "m",
            ),
            "von_mises": variable(
                ("time",), response.stress.over_time, "largest von Mises stress", "Pa"
            ),
            "envelope": variable(
                ("node",), response.stress.envelope, "largest von Mises stress over time", "Pa"
            ),
            "displacement": variable(node, response.u[kept], "displacement", "m"),
            "strain": variable(instant, strain, "strain", "1"),
            "stress": variable(instant, stress, "stress", "Pa"),
            "place": variable(("node", "axis"), body.mesh.nodes, "position of the node", "m"),
        },
        {
            "time": ("time", response.time, {"units": "s"}),
            "instant": ("instant", response.time[kept], {"units": "s"}),
            "axis": ("axis", list("xyz"), {"units": "1"}),
            "component": ("component", ["xx", "yy", "zz", "xy", "yz", "zx"], {"units": "1"}),
        },
    )


def _fields(response: Response, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Strain and stress at the nodes (instant, n, 6)."""
    body = response.body
    pick = [response.u[k] for k in kept]
    strain = np.stack([fem.at_nodes(body, fem.strain(body, u)) for u in pick])
    stress = np.stack([fem.at_nodes(body, fem.stress(body, u)) for u in pick])
    return strain, stress


def _draw(run: Run, settings: Config, case: tuple, response: Response) -> None:
    """Pictures of one link: fields at instants, the largest stress, the animation."""
    link, body, name = case[0], response.body, f"Link {case[0]}"
    kept = _instants(settings, response)
    strain, stress = _fields(response, kept)
    for k, e, s in zip(kept, strain, stress, strict=True):
        u, moment = np.asarray(response.u[k]), f"{1e3 * response.time[k]:.2f} ms"
        number = f"{round(1e3 * k / (len(response.time) - 1)):04d}"
        for what, labels, values, units in (
            ("strain", STRAINS, e, "1"),
            ("stress", STRESSES, s, "Pa"),
        ):
            field = xarray.DataArray(
                values, {"component": list(labels)}, ("node", "component"), what
            ).assign_attrs(units=units)
            run.figure(
                f"{what}_link{link}_{number}",
                viz.solid_components(body, u, field, f"{name}: {what} after {moment}"),
                f"{name}: {what} after {moment}; every panel has its own range.",
            )
    series = _series(response, slice(None, None, max(1, len(response.time) // 200)))
    moments = _series(response, kept)
    run.figure(
        f"displacement_link{link}",
        viz.solid_series(body, *moments, f"{name}: displacement"),
        f"{name}: displacement at the time of its largest value and at others.",
    )
    worst = int(response.stress.time)
    mises = xarray.DataArray(
        np.asarray(fem.von_mises(fem.at_nodes(body, fem.stress(body, response.u[worst])))),
        dims="node",
        attrs={"long_name": "von Mises stress", "units": "Pa"},
    )
    run.figure(
        f"von_mises_link{link}",
        viz.solid(
            body,
            np.asarray(response.u[worst]),
            mises,
            f"{name}: largest von Mises stress, after {1e3 * response.time[worst]:.2f} ms",
        ),
        f"{name} at the time of the largest von Mises stress.",
    )
    u, _ = series
    mises = jax.lax.map(
        lambda one: fem.von_mises(fem.at_nodes(body, fem.stress(body, one))),
        jnp.asarray(u.values),
        batch_size=32,
    )
    fields = {"displacement": u.values, "von_mises": np.asarray(mises)}
    run.files(
        "fields",
        lambda folder: fem.write_vtu_series(
            folder / f"link{link}.pvd", body.mesh, u["time"].values, fields
        ),
    )
    run.animation(
        f"motion_link{link}",
        viz.animate_solid(body, *series, f"{name}: displacement"),
        f"{name}: displacement in its own frame, slowed down and enlarged.",
    )


def _series(response: Response, index) -> tuple[xarray.DataArray, xarray.DataArray]:
    """Displacements (time, node, axis) and their size (time, node) at some times."""
    time = {"time": ("time", response.time[index], {"units": "s"})}
    u = xarray.DataArray(np.asarray(response.u[index]), time, ("time", "node", "axis"))
    size = xarray.DataArray(np.linalg.norm(u.values, axis=-1), time, ("time", "node"))
    return u, size.assign_attrs(long_name="displacement", units="m")


def _compare(run: Run, settings: Config, responses: dict[tuple, Response]) -> None:
    """Displacement and stress over time: both links in one picture, all cases in another."""
    first = (settings.shapes[0], settings.densities[0])
    links = {case[0]: r for case, r in responses.items() if case[1:] == first}
    run.figure(
        "over_time",
        viz.lines(_signals("link", links), f"Elastic links: {_words(*first)}"),
        "Displacement of the middle of each link's free end (node 662 of the source) and largest "
        "von Mises stress in the link.",
    )
    start = [signal.isel(time=signal.time <= START) for signal in _signals("link", links)]
    run.figure(
        "start",
        viz.lines(start, f"The first {1e3 * START:g} ms, {_words(*first)}"),
        "The same at the start, where torques jump and the links begin to vibrate.",
    )
    if len(responses) == len(links):
        return
    for link in links:
        cases = {
            _words(shape, density): r
            for (own, shape, density), r in responses.items()
            if own == link
        }
        run.figure(
            f"cases_link{link}",
            viz.lines(_signals("section", cases), f"Link {link}: cross-sections and densities"),
            f"Link {link}: displacement of the middle of the free end and largest von Mises "
            "stress, with either cross-section and density.",
        )


def _signals(dim: str, responses: dict) -> list[xarray.DataArray]:
    time = next(iter(responses.values())).time
    coordinates = {"time": ("time", time, {"units": "s"}), dim: list(map(str, responses))}

    def signal(name, columns, units):
        values = np.stack(columns, axis=1)
        return xarray.DataArray(
            values, coordinates, ("time", dim), name, {"long_name": name, "units": units}
        )

    every = responses.values()
    return [
        signal("displacement of the\nfree end's middle", [r.displacement for r in every], "m"),
        signal(
            "largest von\nMises stress",
            [np.asarray(r.stress.over_time) for r in every],
            "Pa",
        ),
    ]
