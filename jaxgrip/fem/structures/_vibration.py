"""Natural frequencies and modes of structures."""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.checks import brief, concrete, is_whole
from jaxgrip.fem._modes import Modes
from jaxgrip.fem.structures import _eigenpairs as eigenpairs
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures._analysis import check_loads, raised, solve_linear
from jaxgrip.fem.structures._condense import Condensed
from jaxgrip.fem.structures._coupling import Numbering, coupling, matrix, rows_of
from jaxgrip.fem.structures._results import RESULTS, Solution, StructureError
from jaxgrip.fem.structures._stability import geometric_stiffness
from jaxgrip.fem.structures._structure import Structure, check_whole
from jaxgrip.fem.structures._zero_modes import zero_modes
from jaxgrip.fem.structures.loads import Load, as_loads
from jaxgrip.mechanism import Poses

# Shares of the mass, dense and sparse, added to the stiffness so that free structures have factors:
# a small one costs digits of high frequencies, a large one Lanczos's method its speed. Energies of
# scaled shapes of length 1 that are rounding.
SHIFTS, RIGID = (1e-5, 1e-8), 1e-14
# Difference of the rotations of a beam's ends, by the largest rotation, that is no rounding.
BENT = 1e-6


def frequencies(
    structure: Structure | Condensed, poses: Poses, k: int, loads: Load | Iterable[Load] = ()
) -> Float[Array, " k"]:
    """The k lowest natural circular frequencies [rad/s], ascending; arguments as for `modes`."""
    return modes(structure, poses, k, loads).frequency


def modes(
    structure: Structure | Condensed, poses: Poses, k: int, loads: Load | Iterable[Load] = ()
) -> Modes:
    """The k lowest natural vibrations of a structure, undamped.

    Beams and bars have consistent mass, beams with rotary inertia. Motions that need no force, such
    as those of a structure without supports, have the frequency 0. Ropes act as bars, unless
    `loads` leave them slack.

    **Arguments:**

    - `structure`, or what `condense` made of it, whose inner nodes then follow as they do at rest:
      frequencies come out a little too high.
    - `poses` of all parts of its system, assembled.
    - `k`: how many.
    - `loads` about whose equilibrium it vibrates, of a structure that is whole: their linear stress
      stiffens or softens it, and slewing does as seen by who slews along. Coriolis forces are left
      out.

    **Returns:** `Modes`, whose shapes (k, nodes, 6) are displacements [m] and rotations in axes of
    the ground, with modal mass 1 kg. Where fewer degrees of freedom have mass, the frequencies
    beyond are infinite.

    Derivatives in all numbers, of frequencies in first order and of those of small structures in
    any. Of equal frequencies their sum has the right one, a frequency of 0 has the derivative 0.
    Shapes have derivatives where frequencies are single and the structure is small, else NaN.

    **Raises:** `ValueError` for a `k` that is no number of modes, or loads that are none;
    `StructureError` when the loads find no equilibrium, or one that is not stable, or a motion has
    neither stiffness nor mass; within `jit` frequencies are NaN then.

    Source: Przemieniecki 1968, chapters 11 and 12, for mass and frequencies; stress as for
    `buckling`.
    """
    whole = structure.structure if isinstance(structure, Condensed) else structure
    check_whole(whole, "or what condense has made of one")
    whole.check(poses)
    loads = as_loads(loads)
    check_loads(structure, loads)
    count = whole.degrees_of_freedom if structure is whole else structure.numbering.count
    if not is_whole(k, 1, count):
        raise ValueError(
            f"The number of modes is {brief(k)}; give a whole number from 1 to {count}, that of "
            "the degrees of freedom."
        )
    if loads and structure is not whole:
        raise ValueError("A condensed structure has no modes under loads; give it whole.")
    first = raised(solve_linear(structure, poses, loads)[0]) if loads else None
    # Lanczos's method finds a part of them only.
    is_large = structure is whole and linear.is_large(count)
    is_large = is_large and 3 * k < count - whole.layout.equations
    # A program of its own, so that memory for the elements is free again for the factors.
    system = _system(structure, poses, loads, first, is_large)
    found = _modes(structure, poses, system, first, int(k), is_large)
    if concrete(found.frequency) and np.isnan(found.frequency).any():
        raise StructureError(_why_none(whole, poses, first, found), first)
    return found


def _why_none(structure: Structure, poses: Poses, first: Solution | None, found: Modes) -> str:
    if first is not None:
        return RESULTS[RESULTS.buckled]
    if np.any(np.isnan(found.frequency) & np.asarray(_bends(structure, found.shape))):
        return (
            "Rounding hides the lowest frequencies: elements are too short for what they are part "
            "of; use fewer of them."
        )
    loose = zero_modes(structure, poses)
    says = "No natural frequencies were found."
    if loose.count:
        says += " Has what can move without force no mass?"
    return " ".join([says, *loose.sentences])


@eqx.filter_jit
def _modes(
    structure: Structure | Condensed,
    poses: Poses,
    system: eigenpairs.Matrices,
    first: Solution | None,
    k: int,
    is_large: bool,
) -> Modes:
    stiffness, mass, equations = system
    scale, _ = linear.scales(stiffness, equations)
    heavy = mass.diagonal() if is_large else jnp.diagonal(mass)
    shift = jax.lax.stop_gradient(SHIFTS[is_large] * len(scale) / jnp.sum(heavy * scale**2))
    found = eigenpairs.lowest((stiffness + shift * mass, -1.0 * mass, equations), k)
    frozen, elastic = jax.lax.stop_gradient((found.shape, stiffness))
    each = jax.lax.map if is_large else lambda f, x: jax.vmap(f)(x)
    energy = jnp.sum(frozen * each(elastic.__matmul__, frozen), axis=1)
    is_rigid = found.exists & (
        jnp.abs(energy) < RIGID * jnp.sum((frozen / scale[None, :]) ** 2, axis=1)
    )
    squared = found.value - shift
    is_moving = found.exists & ~is_rigid
    frequency = jnp.sqrt(jnp.where(is_moving & (squared > 0), squared, 1.0))
    frequency = jnp.where(is_moving, jnp.where(squared > 0, frequency, jnp.nan), 0.0)
    frequency = jnp.where(found.exists, frequency, jnp.inf)
    if first is not None:
        frequency = jnp.where(first.succeeded, frequency, jnp.nan)
    shape = found.shape * jnp.sqrt(jnp.where(found.exists, found.value, 1.0))[:, None]
    if isinstance(structure, Condensed):
        none = jnp.zeros((len(structure.structure.names), 12))
        shape = jax.vmap(lambda q: structure.all(q, none))(shape)
        structure = structure.structure
    moved = jax.vmap(
        lambda q: model.in_ground(structure, poses, model.displacements(structure, q))
    )(shape)
    hidden = is_rigid & _bends(structure, jax.lax.stop_gradient(moved))
    return Modes(jnp.where(hidden, jnp.nan, frequency), moved)


def _bends(structure: Structure, moved: Float[Array, "z k 6"]) -> Bool[Array, " z"]:
    """Whether the two ends of a beam without releases rotate by different angles."""
    found = jnp.zeros(len(moved), dtype=bool)
    for group in model.beam_groups(structure):
        if group.mask is None:
            turn = moved[:, group.ends, 3:]
            bent = jnp.max(jnp.abs(turn[:, :, 1] - turn[:, :, 0]), axis=(1, 2))
            found |= bent > BENT * jnp.max(jnp.abs(turn), axis=(1, 2, 3))
    return found


@eqx.filter_jit
def _system(
    structure: Structure | Condensed,
    poses: Poses,
    loads: tuple[Load, ...],
    first: Solution | None,
    is_large: bool,
) -> eigenpairs.Matrices:
    whole = structure.structure if isinstance(structure, Condensed) else structure
    return matrices(structure, poses, model.elements(whole), loads, first, is_large)


def matrices(
    structure: Structure | Condensed,
    poses: Poses,
    elements: model.Elements,
    loads: tuple[Load, ...],
    first: Solution | None,
    is_large: bool,
) -> eigenpairs.Matrices:
    """Stiffness, mass and equations."""
    whole = structure.structure if isinstance(structure, Condensed) else structure
    rotations = whole.rotations(poses)
    tied = coupling(whole, poses, elements.bars)
    mass = model.mass(whole, poses, elements)
    spring = tied.springs.stiffness
    if isinstance(structure, Condensed):
        own = structure.numbering
        stiffness, mass = structure.stiffness, structure.projected(mass)
    else:
        own = Numbering(whole.layout.dof, whole.degrees_of_freedom)
        stiffness = model.stiffness(whole, elements)
        if first is not None:
            stiffness = stiffness + geometric_stiffness(whole, poses, loads, first)
            spring = jnp.where(first.taut, spring, 0.0)
        if not is_large:
            stiffness, mass = stiffness.dense(), mass.dense()
    rows = rows_of if is_large else matrix
    stretch, equations = (
        rows(whole, rotations, of, own) for of in (tied.springs.rows, tied.equations)
    )
    return linear.with_springs(stiffness, stretch, spring), mass, equations
