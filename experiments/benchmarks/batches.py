"""Every public function that takes batches, as a call of any size.

`CASES` maps the name of a function to a maker of a function of batched arguments and of its
arguments; `NOT_BATCHED` maps the others to a reason. Together they are all public functions.
"""

import argparse
import functools
import operator
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxgrip as jg
from jaxgrip.mechanism import loops

Case = Callable[[int], tuple[Callable, tuple]]
CASES: dict[str, Case] = {}

READS = "reads or writes a file"
BUILDS = "makes a model, whose numbers may be batched, without solving anything"
LOOKS = "looks at numbers on the host"
SEARCHES = "a search on the host, whose programs are those of the functions it is given"
NOT_BATCHED = {
    "rigid.from_dh": BUILDS,
    "rigid.frame": BUILDS,
    "rigid.from_placements": BUILDS,
    "rigid.inertial_parameters": BUILDS,
    "rigid.lock": BUILDS,
    "rigid.merge_fixed": BUILDS,
    "rigid.neutral": BUILDS,
    "rigid.with_mass_properties": BUILDS,
    "rigid.with_payload": BUILDS,
    "rigid.read_mjcf": READS,
    "rigid.read_urdf": READS,
    "rigid.with_passive": BUILDS,
    "rigid.without_balls": LOOKS,
    "actuators.dahl": BUILDS,
    "actuators.hooke": BUILDS,
    "actuators.kelvin_voigt": BUILDS,
    "actuators.maxwell": BUILDS,
    "actuators.newton": BUILDS,
    "actuators.stack": BUILDS,
    "actuators.standard_solid": BUILDS,
    "actuators.standard_solid_series": BUILDS,
    "actuators.passivity": LOOKS,
    "mechanism.assemble_nested": LOOKS,
    "mechanism.closures": LOOKS,
    "mechanism.mobility": LOOKS,
    "mechanism.read": READS,
    "mechanism.write": READS,
    "mechanism.compiled": BUILDS,
    "mechanism.read_system": READS,
    "mechanism.system_of": BUILDS,
    "mechanism.loops.closed_at": BUILDS,
    "mechanism.loops.mobility": LOOKS,
    "mechanism.loops.read_mjcf": READS,
    "mechanism.loops.read_urdf": READS,
    "fem.structures.zero_modes": LOOKS,
    "fem.box_mesh": BUILDS,
    "fem.cylinder_mesh": BUILDS,
    "fem.line_mesh": BUILDS,
    "fem.mesh": BUILDS,
    "fem.read_mesh": READS,
    "fem.rotating_equilibrium": LOOKS,
    "fem.rotating_frequencies": LOOKS,
    "fem.write_vtu": READS,
    "fem.write_vtu_series": READS,
    "flexible.link_load": BUILDS,
    "fitting.compare": LOOKS,
    "fitting.differential_evolution": SEARCHES,
    "fitting.effective_samples": LOOKS,
    "fitting.hand_eye": LOOKS,
    "fitting.intervals": SEARCHES,
    "fitting.mistakes": LOOKS,
    "fitting.mu_plus_lambda": SEARCHES,
    "fitting.next_experiment": SEARCHES,
    "fitting.read_series": READS,
    "fitting.series_columns": READS,
    "fitting.spikes": LOOKS,
    "fitting.uncertainty": LOOKS,
    "ocp.join": BUILDS,
    "ocp.split": LOOKS,
    "models.andrews_squeezer": BUILDS,
    "models.servo_ax12": BUILDS,
    "models.servo_ax12_arm": BUILDS,
    "models.reference_crane": BUILDS,
    "models.double_wishbone": BUILDS,
    "models.four_bar": BUILDS,
    "models.fastest_motion": SEARCHES,
    "models.gripper_finger": BUILDS,
    "models.linkage_finger": BUILDS,
    "models.point_to_point": BUILDS,
    "models.slider_crank": BUILDS,
    "models.two_finger_gripper": BUILDS,
    "models.with_servos": BUILDS,
}


def names() -> set[str]:
    """Names of all public functions, `room.function`."""
    rooms = ("rigid", "actuators", "mechanism", "mechanism.loops", "fem", "fem.structures")
    found = set()
    for room in (*rooms, "flexible", "fitting", "ocp", "models", "spatial", "joints"):
        for name, value in vars(operator.attrgetter(room)(jg)).items():
            if callable(value) and not name.startswith("_") and not isinstance(value, type):
                found.add(f"{room}.{name}")
    return found


def mapped(
    name: str, call: Callable, fixed: Callable[[], Any], *shapes: tuple[int, ...], spread=0.1
) -> None:
    """A case of `call(fixed, *arrays)`, vmapped over arrays of random numbers of these shapes."""

    def make(size: int) -> tuple[Callable, tuple]:
        rng = np.random.default_rng(size)
        arrays = [jnp.asarray(spread * rng.normal(size=(size, *shape))) for shape in shapes]
        return jax.vmap(call, in_axes=(None, *(0 for _ in shapes))), (fixed(), *arrays)

    CASES[name] = make


def once(build: Callable[[], Any]) -> Callable[[], Any]:
    """The model that `build` makes, made once and outside of the programs that use it."""

    @functools.cache
    def made() -> Any:
        with jax.ensure_compile_time_eval():
            return build()

    return made


def _function(name: str) -> Callable:
    room, _, function = name.partition(".")
    return getattr(getattr(jg, room), function)


# Rigid bodies: an unrolled tree, and one with as many joints and more bodies, which is scanned.


@once
def _gripper() -> jg.rigid.Tree:
    return jg.models.two_finger_gripper()


@once
def _arm() -> jg.rigid.Tree:
    rows = []
    for k in range(9):
        rows.append(
            jg.rigid.DHRow(
                name=f"b{k}",
                parent=f"b{k - 1}" if k else None,
                a=0.2,
                alpha=0.5 * (-1) ** k,
                mass=1.0,
                com=(0.1, 0.0, 0.0),
                inertia=(0.01, 0.02, 0.02),
            )
        )
    return jg.rigid.from_dh(rows)


for _suffix, _tree, _n in (("", _gripper, 6), (" of nine bodies", _arm, 9)):
    for _name, _count in (
        ("aba", 3),
        ("bias_forces", 2),
        ("body_jacobians", 1),
        ("christoffel", 1),
        ("coriolis_matrix", 2),
        ("crba", 1),
        ("forward_dynamics", 3),
        ("forward_kinematics", 1),
        ("gravity_forces", 1),
        ("kinetic_energy", 2),
        ("potential_energy", 1),
        ("rnea", 3),
        ("rnea_bodies", 3),
        ("solve_mass", 2),
    ):
        mapped(f"rigid.{_name}{_suffix}", _function(f"rigid.{_name}"), _tree, *[(_n,)] * _count)

    def _derivatives(size: int, tree=_tree, n=_n) -> tuple[Callable, tuple]:
        states = np.random.default_rng(size).normal(size=(3, n, size))
        return jg.rigid.forward_dynamics_derivatives, (tree(), *map(jnp.asarray, states))

    CASES[f"rigid.forward_dynamics_derivatives{_suffix}"] = _derivatives
    mapped(
        f"rigid.forward_dynamics{_suffix}, gradient",
        jax.grad(lambda tree, q, qd, tau: jnp.sum(jg.rigid.forward_dynamics(tree, q, qd, tau)), 1),
        _tree,
        *[(_n,)] * 3,
    )


@once
def _floating() -> jg.rigid.Tree:
    """A free base that carries an arm on a ball."""
    numbers = {"mass": 1.0, "com": (0.1, 0.0, 0.0), "inertia": (0.01, 0.02, 0.02)}
    bodies = [
        jg.rigid.Placement("base", None, (0.0, 0.0, 0.0), **numbers, joint="free"),
        jg.rigid.Placement("arm", "base", (0.3, 0.0, 0.0), **numbers, joint="spherical"),
    ]
    return jg.rigid.from_placements(bodies)


for _name, _rates, _more in (
    ("body_energies", 1, {}),
    ("centre_of_mass", 0, {}),
    ("centroidal_matrix", 0, {}),
    ("centroidal_momentum", 1, {}),
    ("frame_acceleration", 2, {"frame": "arm"}),
    ("frame_jacobian", 0, {"frame": "arm"}),
    ("frame_jacobian_rate", 1, {"frame": "arm"}),
    ("frame_pose", 0, {"frame": "arm"}),
    ("frame_velocity", 1, {"frame": "arm"}),
    ("integrate", 1, {}),
    ("passive_forces", 1, {}),
    ("regressor", 2, {}),
):
    mapped(
        f"rigid.{_name}",
        functools.partial(_function(f"rigid.{_name}"), **_more),
        _floating,
        (11,),
        *[(9,)] * _rates,
    )
mapped(
    "rigid.inverse_kinematics",
    lambda tree, target: jg.rigid.inverse_kinematics(tree, "arm", target, starts=2).q,
    _floating,
    (3,),
)
mapped("rigid.difference", jg.rigid.difference, _floating, (11,), (11,))


def plain(name: str, call: Callable, *shapes: tuple[int, ...], spread: float = 1.0) -> None:
    """A case of a function of arrays alone."""
    mapped(name, lambda _, *arrays: call(*arrays), lambda: 0.0, *shapes, spread=spread)


mapped(
    "rigid.body_point",
    lambda tree, q: jg.rigid.body_point(tree, q, "b8", jnp.ones(3)),
    _arm,
    (9,),
)
mapped(
    "rigid.point_load",
    lambda tree, force: jg.rigid.point_load(tree, "b8", force),
    _arm,
    (3,),
)
mapped(
    "rigid.simulate",
    lambda tree, q: jg.rigid.simulate(tree, q, 0 * q, jnp.array([0.0, 0.01])).q,
    _gripper,
    (6,),
)
for _name, _shapes in (
    ("aligning_z", [(3,)]),
    ("axis_angle", [(3,), ()]),
    ("rotation_x", [()]),
    ("rotation_z", [()]),
    ("skew", [(3,)]),
):
    plain(f"spatial.{_name}", _function(f"spatial.{_name}"), *_shapes)
plain("joints.frame", jg.joints.frame, (3, 3))
plain(
    "joints.displaced",
    lambda points, step: jg.joints.displaced(jg.joints.frame(points), step),
    (3, 3),
    (6,),
)
plain(
    "joints.relative",
    lambda a, b: jg.joints.relative(jg.joints.frame(a), jg.joints.frame(b)),
    (3, 3),
    (3, 3),
)

# Servos: the magnitude of the last argument is a speed, a duty or the like.


def _servo(duty: jax.Array) -> tuple:
    servo = jg.models.servo_ax12()
    command = jax.tree_util.Partial(lambda duty, t, q, qd: duty[None], duty)
    return jg.models.servo_ax12_arm(), servo, command


def _adaptive(duty: jax.Array) -> jax.Array:
    times = jnp.array([0.0, 0.002])
    return jg.actuators.simulate(*_servo(duty), times, rtol=1e-4, atol=1e-6, throw=False).q


def _fixed(duty: jax.Array) -> jax.Array:
    plant, servo, _ = _servo(duty)
    return jg.actuators.simulate_fixed(plant, servo, jnp.full((20, 1), duty), 0.001).q


plain("actuators.backlash", lambda x, w: jg.actuators.backlash(x, w, 0.01), (), ())
plain("actuators.coulomb", lambda v: jg.actuators.coulomb(v, 0.1), ())
plain("actuators.slewed", lambda x: jg.actuators.slewed(jnp.stack([x, -x]), 0.1, 2.0), (1,))
plain("actuators.stiction", lambda v, m: jg.actuators.stiction(v, m, 0.2), (), ())
plain("actuators.stribeck", lambda v: jg.actuators.stribeck(v, 0.1, 0.2, 0.3), ())
plain("actuators.viscous", lambda v: jg.actuators.viscous(v, 0.1), ())
plain("actuators.simulate", _adaptive, ())
plain("actuators.simulate, gradient", jax.grad(lambda duty: jnp.sum(_adaptive(duty))), ())
plain("actuators.simulate_fixed", _fixed, ())

# Assemblies: the reference crane.


@once
def _crane() -> jg.mechanism.Assembly:
    return jg.mechanism.assemble(jg.models.reference_crane())


def _lifted(angle: jax.Array) -> jg.mechanism.Assembly:
    parameters = {"slew": angle}
    return jg.mechanism.assemble(_crane().system, parameters, start=_crane(), throw=False)


for _name, _call in {
    "assemble": _lifted,
    "acceleration": lambda x: jg.mechanism.acceleration(_crane(), {"slew": x}, {"slew": x}),
    "velocity": lambda x: jg.mechanism.velocity(_lifted(x), {"slew": x}),
    "equations": lambda x: jg.mechanism.equations(_crane().system, _lifted(x).poses),
    "moved": lambda x: jg.mechanism.moved(_crane().poses, jnp.full((6, 6), x)),
    "outline": lambda x: jg.mechanism.outline(_crane().system, _lifted(x).poses),
    "point": lambda x: jg.mechanism.point(_crane().system, _lifted(x).poses, "boom.tip"),
    "solve": lambda x: jg.mechanism.solve(
        _crane().system, jg.mechanism.moved(_crane().poses, jnp.full((6, 6), 1e-3 * x))
    ),
    "spans": lambda x: jg.mechanism.spans(_crane().system, _lifted(x).poses),
    "start": lambda x: jg.mechanism.start(jg.models.reference_crane(boom=48.0 + x)),
    "move": lambda x: jg.mechanism.move(_crane(), {"slew": x}, throw=False),
    "sweep": lambda x: jg.mechanism.sweep(_crane(), {"slew": jnp.array([0.0, 0.1]) + x}),
}.items():
    plain(f"mechanism.{_name}", _call, (), spread=0.1)

# Mechanisms: a four-bar.


@once
def _four_bar() -> jg.models.Linkage:
    return jg.models.four_bar()


def _mechanism(call: Callable) -> Callable:
    def run(x: jax.Array) -> Any:
        mechanism = _four_bar().mechanism
        q = loops.assemble(mechanism, _four_bar().start, {"crank": 1.0 + x}, throw=False).q
        return call(mechanism, q, jnp.full(3, x))

    return run


for _name, _call in {
    "assemble": lambda m, q, x: q,
    "consistent_velocity": loops.consistent_velocity,
    "constraints": lambda m, q, x: loops.constraints(m, q + x),
    "follow": lambda m, q, x: loops.follow(m, q, "crank", q[0] + jnp.linspace(0, 0.1, 5)),
    "forward_dynamics": lambda m, q, x: loops.forward_dynamics(m, q, 0 * x, x),
    "inverse_dynamics": lambda m, q, x: loops.inverse_dynamics(m, q, 0 * x, {"crank": x[0]}),
    "jacobian": lambda m, q, x: loops.jacobian(m, q),
    "reaction_forces": lambda m, q, x: loops.reaction_forces(m, q, 0 * x, x),
    "reduced_motion": lambda m, q, x: loops.reduced_motion(
        loops.follow(m, q, "crank", q[0] + jnp.linspace(-0.1, 0.1, 9)),
        q[0],
        x[0],
        jnp.array([0.0, 0.01]),
    ),
    "simulate": lambda m, q, x: loops.simulate(m, q, 0 * x, jnp.array([0.0, 0.01])),
}.items():
    plain(f"mechanism.loops.{_name}", _mechanism(_call), (), spread=0.1)


def _system(x: jax.Array) -> jg.mechanism.System:
    system = jg.mechanism.system_of(_four_bar().mechanism, _four_bar().start)
    return eqx.tree_at(lambda s: s.gravity, system, (1 + x) * system.gravity)


def _set_in_motion(x: jax.Array) -> jax.Array:
    return jg.mechanism.simulate(_system(x), jnp.array([0.0, 0.01])).energy


plain("mechanism.simulate", _set_in_motion, (), spread=0.1)
plain(
    "mechanism.inverse_dynamics",
    lambda x: jg.mechanism.inverse_dynamics(_system(x)).reactions,
    (),
    spread=0.1,
)

# Elastic bodies: a bar of two elements, with Young's modulus batched.


def _solid(x: jax.Array, element: Any = None) -> jg.fem.Body:
    mesh = jg.fem.box_mesh(1.0, 0.1, 0.1, 2, 1, 1, element=element)
    return jg.fem.Body(mesh, jg.fem.Isotropic(1e9 * (1 + 0.1 * x**2), 0.3, 1e3), clamp="x0")


def _beam(x: jax.Array) -> jg.fem.Body:
    material = jg.fem.Isotropic(1e9 * (1 + 0.1 * x**2), 0.3, 1e3)
    mesh = jg.fem.line_mesh(1.0, 2)
    return jg.fem.Body(mesh, jg.fem.BeamSection.rectangle(material, 0.1, 0.1), clamp="x0")


def _bent(body: jg.fem.Body) -> jax.Array:
    return jg.fem.solve_static(body, jg.fem.gravity(body, [0.0, 0.0, -9.81]))


for _name, _call in {
    "apply_stiffness": lambda b: jg.fem.apply_stiffness(b, b.zeros() + 1e-3),
    "at_nodes": lambda b: jg.fem.at_nodes(b, jg.fem.stress(b, b.zeros() + 1e-3)),
    "body_force": lambda b: jg.fem.body_force(b, lambda x: x),
    "craig_bampton": lambda b: jg.fem.craig_bampton(b, "x1", 2),
    "face_area": lambda b: jg.fem.face_area(b, "x1"),
    "frequencies": lambda b: jg.fem.frequencies(b, 3),
    "geometric_stiffness": lambda b: jg.fem.geometric_stiffness(b, _bent(b)).blocks,
    "gravity": lambda b: jg.fem.gravity(b, [0.0, 0.0, -9.81]),
    "inertia": lambda b: jg.fem.inertia(b).mass.blocks,
    "interface_loads": lambda b: jg.fem.interface_loads(b, "x1"),
    "mass": lambda b: jg.fem.mass(b).blocks,
    "modes": lambda b: jg.fem.modes(b, 3),
    "peak": lambda b: jg.fem.peak(b, _bent(b)[None], jg.fem.von_mises).value,
    "point_force": lambda b: jg.fem.point_force(b, 5, [1.0, 0.0, 0.0]),
    "pressure": lambda b: jg.fem.pressure(b, "x1", 1.0),
    "reduce": lambda b: jg.fem.reduce(b, 3),
    "simulate": lambda b: jg.fem.simulate(b, None, 1e-4, t1=3e-4, u0=b.zeros() + 1e-6).u,
    "simulate, reduced": lambda b: (
        jg.fem.simulate(jg.fem.reduce(b, 3), None, 1e-4, t1=3e-4, u0=b.zeros() + 1e-6).u
    ),
    "solve_static": _bent,
    "solve_static, iterative": lambda b: jg.fem.solve_static(
        b, jg.fem.gravity(b, [0.0, 0.0, -9.81]), method="iterative"
    ),
    "stiffness": lambda b: jg.fem.stiffness(b).blocks,
    "strain": lambda b: jg.fem.strain(b, b.zeros() + 1e-3),
    "stress": lambda b: jg.fem.stress(b, _bent(b)),
    "tip_wrench": lambda b: jg.fem.tip_wrench(b, "x1", jnp.ones(3), jnp.ones(3)),
    "traction": lambda b: jg.fem.traction(b, "x1", [1.0, 0.0, 0.0]),
}.items():
    plain(f"fem.{_name}", lambda x, call=_call: call(_solid(x)), ())
plain(
    "fem.stiffness, incompatible modes",
    lambda x: jg.fem.stiffness(_solid(x, jg.fem.Hex8Incompatible())).blocks,
    (),
)
plain("fem.section_forces", lambda x: jg.fem.section_forces(_beam(x), _bent(_beam(x))), ())
plain("fem.principal_stresses", jg.fem.principal_stresses, (6,))
plain(
    "fem.rayleigh_ritz",
    lambda x: jg.fem.rayleigh_ritz(x @ x.T + 9 * jnp.eye(9), jnp.eye(9)),
    (9, 9),
)
plain("fem.von_mises", jg.fem.von_mises, (6,))
plain("fem.safety_factor", lambda s: jg.fem.safety_factor(s, 1e6), (6,))
plain("fem.smooth_maximum", jg.fem.smooth_maximum, (9,))

# Structures: a jib on a pin, supported by a rope, with its length batched.


def _jib(x: jax.Array) -> tuple[jg.fem.structures.Structure, jg.mechanism.Poses, Any]:
    steel = jg.fem.Isotropic(210e9, 0.3, 7850.0)
    tube = jg.fem.BeamSection(steel, A=0.01, Iy=1e-4, Iz=1e-4, J=2e-4, orientation=(0, 0, 1))
    nodes = jnp.array([[0.0, 0, 0], [3, 0, 0], [6, 0, 0]]) * (1 + 0.1 * x)
    beams = jg.fem.structures.Beams([(0, 1), (1, 2)], tube)
    part = jg.fem.structures.FramePart(nodes, [beams], {"foot": (0,), "tip": (2,)})
    system = jg.mechanism.System([part.part("jib")], [], {"top": [[0, 0, 4]]})
    structure = jg.fem.structures.Structure(
        system,
        {"jib": part},
        supports={"jib.foot": ("x", "y", "z", "rx", "rz")},
        ties={"stay": jg.fem.structures.Tie(jg.fem.structures.Rope(2e7), "ground.top", "jib.tip")},
    )
    loads = (jg.fem.structures.NodalForce("jib.tip", (0, 0, -2e4)), jg.fem.structures.Inertia())
    return structure, jg.mechanism.start(system), loads


for _name, _call in {
    "buckling": jg.fem.structures.buckling,
    "centre_of_gravity": lambda s, poses, loads: jg.fem.structures.centre_of_gravity(s, poses),
    "condense": lambda s, poses, loads: jg.fem.structures.condense(s, loads),
    "equilibrium_path": functools.partial(
        jg.fem.structures.equilibrium_path, points=5, throw=False
    ),
    "frequencies": lambda s, poses, loads: jg.fem.structures.frequencies(s, poses, 3, loads),
    "modes": lambda s, poses, loads: jg.fem.structures.modes(s, poses, 3),
    "second_order": functools.partial(jg.fem.structures.second_order, throw=False),
    "simulate": lambda s, poses, loads: jg.fem.structures.simulate(s, poses, loads, 1e-3, t1=3e-3),
    "solve": functools.partial(jg.fem.structures.solve, throw=False),
    "solve, condensed": lambda s, poses, loads: jg.fem.structures.solve(
        jg.fem.structures.condense(s, loads), poses, loads, throw=False
    ),
    "solve, gradient": lambda s, poses, loads: jax.grad(
        lambda loads: jg.fem.structures.solve(s, poses, loads, throw=False).displacements[2, 2]
    )(loads),
}.items():
    plain(f"fem.structures.{_name}", lambda x, call=_call: call(*_jib(x)), (), spread=0.1)

# Trees with an elastic body: an arm whose last body bends.


@once
def _flexible() -> jg.flexible.FlexibleTree:
    body = _solid(jnp.zeros(()))
    link = jg.flexible.elastic_link(body, jg.flexible.shapes(body, 2), ("x1",))
    return jg.flexible.FlexibleTree(
        jg.flexible.with_link_inertia(_arm(), {"b8": link}), {"b8": link}
    )


for _name, _call in {
    "dissipated_power": lambda m, q, e, v: jg.flexible.dissipated_power(m, e),
    "forward_dynamics": lambda m, q, e, v: jg.flexible.forward_dynamics(m, q, e, v, e, v),
    "forward_kinematics": lambda m, q, e, v: jg.flexible.forward_kinematics(m, q, e),
    "inverse_dynamics": lambda m, q, e, v: jg.flexible.inverse_dynamics(m, q, e, v, e, v, e),
    "kinetic_energy": lambda m, q, e, v: jg.flexible.kinetic_energy(m, q, e, v, e),
    "mass_matrix": lambda m, q, e, v: jg.flexible.mass_matrix(m, q, e),
    "momentum": lambda m, q, e, v: jg.flexible.momentum(m, q, e, v, e),
    "potential_energy": lambda m, q, e, v: jg.flexible.potential_energy(m, q, e),
    "quasi_static": lambda m, q, e, v: jg.flexible.quasi_static(m, q, v, v),
    "simulate": lambda m, q, e, v: (
        jg.flexible.simulate(m, q, 0 * e, v, 0 * e, jnp.array([0.0, 1e-4]), rtol=1e-3, atol=1e-3).q
    ),
    "tip_position": lambda m, q, e, v: jg.flexible.tip_position(m, q, e, "b8"),
}.items():
    mapped(f"flexible.{_name}", _call, _flexible, (9,), (2,), (9,), spread=1e-3)


def _link(x: jax.Array) -> jg.flexible.ElasticLink:
    body = _solid(x)
    return jg.flexible.elastic_link(body, jg.flexible.shapes(body, 2), ("x1",))


plain("flexible.shapes", lambda x: jg.flexible.shapes(_solid(x), 2), ())
plain("flexible.elastic_link", lambda x: _link(x).stiffness, ())
plain(
    "flexible.displacement",
    lambda eta: jg.flexible.displacement(_flexible(), eta, "b8", jnp.ones((2, 4, 3))),
    (2,),
)
plain(
    "flexible.with_link_inertia",
    lambda x: jg.flexible.with_link_inertia(_arm(), {"b8": _link(x)}),
    (),
)

# Identification and optimal control: the size is that of their own batches.

_BOUNDS = {"a": jg.fitting.Bound(0.1, 10.0), "b": jg.fitting.Bound(0.1, 10.0)}


def _residuals(p: dict) -> jax.Array:
    t = jnp.linspace(0.0, 1.0, 20)
    return p["a"] * jnp.exp(-p["b"] * t) - 2.0 * jnp.exp(-3.0 * t)


def _fit(size: int) -> tuple[Callable, tuple]:
    return functools.partial(jg.fitting.fit, _residuals, _BOUNDS, starts=min(size, 256)), ()


def _likelihood(size: int) -> tuple[Callable, tuple]:
    def log_likelihood(p: dict) -> jax.Array:
        return -jnp.sum(_residuals(p) ** 2)

    starts = min(size, 256)
    return functools.partial(
        jg.fitting.maximize_likelihood, log_likelihood, _BOUNDS, starts=starts
    ), ()


def _brakes(size: int) -> tuple[Callable, tuple]:
    @eqx.filter_vmap
    def problems(start: jax.Array) -> jg.ocp.Problem:
        return jg.ocp.Problem(
            lambda x, u: jnp.stack([x[1], u[0]]),
            initial_state=jnp.stack([start, jnp.zeros(())]),
            final_state=np.zeros(2),
            final_time=jg.ocp.Free(1.0, upper=4.0),
            control_bounds=(-np.ones(1), np.ones(1)),
        )

    starts = -jnp.linspace(1.0, 2.0, min(size, 64))
    return functools.partial(jg.ocp.solve_batch, problems(starts)), ()


def _fastest(_: int) -> tuple[Callable, tuple]:
    return functools.partial(jg.ocp.solve, jg.models.ocp_problems.double_integrator_time()), ()


HOST: dict[str, Case] = {
    "fitting.fit": _fit,
    "fitting.maximize_likelihood": _likelihood,
    "ocp.solve": _fastest,
    "ocp.solve_batch": _brakes,
}
plain("fitting.constrain", lambda x: jg.fitting.constrain(_BOUNDS, x), (2,))
plain(
    "fitting.unconstrain",
    lambda x: jg.fitting.unconstrain(_BOUNDS, {"a": 1 + 0.1 * x, "b": 2 + 0.1 * x}),
    (),
)
plain(
    "fitting.information",
    lambda x: jg.fitting.information(_residuals, {"a": 1 + 0.1 * x, "b": 2 + 0.1 * x}),
    (),
)


def _poses(twists: jax.Array) -> jax.Array:
    """Poses of hand and camera (2, n, 8), from any twists."""
    return jax.vmap(jax.vmap(jg.spatial.dual_quaternions.exponential))(twists)


plain("fitting.linear_hand_eye", lambda x: jg.fitting.linear_hand_eye(*_poses(x)), (2, 5, 6))
plain(
    "fitting.refined_hand_eye",
    lambda x: jg.fitting.refined_hand_eye(*_poses(x), _poses(x)[0, 0], (1e-3, 1e-3)),
    (2, 5, 6),
)


def repeat(name: str, size: int, times: int, seconds: float) -> tuple[int, float]:
    """Call a case `times` times or for `seconds`, and return the calls made and seconds taken."""
    if name in HOST:
        function, arguments = HOST[name](size)
        call = function
    else:
        function, arguments = CASES[name](size)
        call = jax.jit(function)
    jax.block_until_ready(call(*arguments))
    start, done = time.monotonic(), 0
    while done < times and time.monotonic() - start < seconds:
        # Two calls at a time, as in a program that does not wait for results.
        jax.block_until_ready([call(*arguments) for _ in range(2)])
        done += 2
    return done, time.monotonic() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.batches")
    parser.add_argument("size", type=int)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="at most for one function")
    parser.add_argument("--only", default="", help="part of the names")
    asked = parser.parse_args()
    jg.enable_x64()
    for each in sorted(n for n in (*CASES, *HOST) if asked.only in n):
        count, took = repeat(each, asked.size, asked.times, asked.seconds)
        print(f"{each}: {count} calls of {asked.size} in {took:.1f} s", flush=True)
