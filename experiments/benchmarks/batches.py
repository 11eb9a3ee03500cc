"""Every public function that takes batches, as a call of any size.

`CASES` has, by the name of the function, what makes a function of batched arguments and the
arguments for a batch; `NOT_BATCHED` has the others, with what they are. Together they are all
functions that the rooms offer.
"""

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import jaxgrip as jg

Case = Callable[[int], tuple[Callable, tuple]]
CASES: dict[str, Case] = {}

READS = "reads or writes a file"
BUILDS = "makes a model, whose numbers may be batched, without solving anything"
LOOKS = "looks at numbers on the host"
SEARCHES = "a search on the host, whose programs are those of the functions it is given"
NOT_BATCHED = {
    "rigid.from_dh": BUILDS,
    "rigid.from_placements": BUILDS,
    "rigid.read_urdf": READS,
    "actuators.dahl": BUILDS,
    "actuators.hooke": BUILDS,
    "actuators.kelvin_voigt": BUILDS,
    "actuators.maxwell": BUILDS,
    "actuators.newton": BUILDS,
    "actuators.stack": BUILDS,
    "actuators.standard_solid": BUILDS,
    "actuators.standard_solid_series": BUILDS,
    "actuators.passivity": LOOKS,
    "assembly.assemble_nested": LOOKS,
    "assembly.closures": LOOKS,
    "assembly.mobility": LOOKS,
    "assembly.read": READS,
    "assembly.write": READS,
    "mechanisms.closed_at": BUILDS,
    "mechanisms.mobility": LOOKS,
    "mechanisms.read_mjcf": READS,
    "mechanisms.read_urdf": READS,
    "structures.zero_modes": LOOKS,
    "fem.mesh": BUILDS,
    "fem.read_mesh": READS,
    "fem.rotating_frequencies": LOOKS,
    "fem.write_vtu": READS,
    "fem.write_vtu_series": READS,
    "flexible.link_load": BUILDS,
    "fitting.differential_evolution": SEARCHES,
    "fitting.mu_plus_lambda": SEARCHES,
    "fitting.read_series": READS,
    "fitting.uncertainty": LOOKS,
    "ocp.join": BUILDS,
    "ocp.split": LOOKS,
    "models.andrews_squeezer": BUILDS,
    "models.servo_ax12": BUILDS,
    "models.servo_ax12_arm": BUILDS,
    "models.reference_crane": BUILDS,
    "models.double_wishbone": BUILDS,
    "models.four_bar": BUILDS,
    "models.gripper_finger": BUILDS,
    "models.linkage_finger": BUILDS,
    "models.slider_crank": BUILDS,
    "models.two_finger_gripper": BUILDS,
}


def names() -> set[str]:
    """Names of all public functions, `room.function`."""
    rooms = ("rigid", "actuators", "assembly", "mechanisms", "structures", "fem", "flexible")
    found = set()
    for room in (*rooms, "fitting", "ocp", "models", "spatial", "joints"):
        for name, value in vars(getattr(jg, room)).items():
            if callable(value) and not name.startswith("_") and not isinstance(value, type):
                found.add(f"{room}.{name}")
    return found


def case(name: str) -> Callable[[Case], Case]:
    """Register a case."""

    def register(make: Case) -> Case:
        CASES[name] = make
        return make

    return register


def mapped(
    name: str, call: Callable, fixed: Callable[[], Any], *shapes: tuple[int, ...], spread=0.1
) -> None:
    """A case of `call(fixed, *arrays)`, vmapped over arrays of random numbers of these shapes."""

    def make(size: int) -> tuple[Callable, tuple]:
        rng = np.random.default_rng(size)
        arrays = [jnp.asarray(spread * rng.normal(size=(size, *shape))) for shape in shapes]
        return jax.vmap(call, in_axes=(None, *(0 for _ in shapes))), (fixed(), *arrays)

    CASES[name] = make


once = functools.cache


def _function(name: str) -> Callable:
    room, _, function = name.partition(".")
    return getattr(getattr(jg, room), function)


# Rigid bodies: a tree that is unrolled, and one of as many joints and more bodies that is not.


@once
def gripper() -> jg.rigid.Tree:
    return jg.models.two_finger_gripper()


@once
def arm() -> jg.rigid.Tree:
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


for _suffix, _tree, _n in (("", gripper, 6), (" of nine bodies", arm, 9)):
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
