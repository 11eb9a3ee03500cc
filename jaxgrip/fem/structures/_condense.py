"""Parts as superelements: only the degrees of freedom at their joints and loads are left."""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem.element_sum import ElementSum, Rows
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures._coupling import Numbering
from jaxgrip.fem.structures._elements import Bars
from jaxgrip.fem.structures._structure import Structure, check_whole
from jaxgrip.fem.structures.loads import Load, NodalForce, as_loads
from jaxgrip.fem.topology import Constant
from jaxgrip.solve import dense


class Condensed(eqx.Module):
    """A structure whose parts follow the degrees of freedom at their joints and loads.

    - `stiffness` (b, b), `inertia` (b, 12): of the `kept` degrees of freedom, as in `model` of all.
    - `follow` (i, b), `sag` (i, 12): displacements of the others by those kept, and by inertia
      loads while these rest.
    """

    structure: Structure
    stiffness: Float[Array, "b b"]
    inertia: Float[Array, "b 12"]
    follow: Float[Array, "i b"]
    sag: Float[Array, "i 12"]
    _kept: Constant = eqx.field(static=True)

    @property
    def kept(self) -> np.ndarray:
        """(n,) whether a degree of freedom is kept."""
        return self._kept.array

    @property
    def numbering(self) -> Numbering:
        """Numbers of the kept degrees of freedom among themselves."""
        count = int(self.kept.sum())
        number = np.append(np.where(self.kept, np.cumsum(self.kept) - 1, count), count)
        return Numbering(number[self.structure.layout.dof], count)

    def all(self, q: Float[Array, " b"], amounts: Float[Array, "p 12"]) -> Float[Array, " n"]:
        """All degrees of freedom by those kept and the accelerations of the parts."""
        kept, others = np.flatnonzero(self.kept), np.flatnonzero(~self.kept)
        part = self.structure.layout.part_of_dof[others]
        sag = jnp.sum(self.sag * amounts[part], axis=1)
        whole = jnp.zeros(len(self.kept)).at[kept].set(q)
        return whole.at[others].set(self.follow @ q - sag)

    def on_kept(self, force: Float[Array, " n"]) -> Float[Array, " b"]:
        """Forces on all degrees of freedom as forces on those kept."""
        return force[self.kept] + self.follow.T @ force[~self.kept]

    def projected(self, matrix: ElementSum) -> Float[Array, "b b"]:
        """Quadratic form of all degrees of freedom on those kept, which the others follow."""
        kept, others = np.flatnonzero(self.kept), np.flatnonzero(~self.kept)
        every = jnp.zeros((len(self.kept), len(kept))).at[kept].set(jnp.eye(len(kept)))
        every = every.at[others].set(self.follow)
        product = every.T @ jax.vmap(lambda u: matrix @ u, in_axes=1, out_axes=1)(every)
        return (product + product.T) / 2


def condense(structure: Structure, loads: Load | Iterable[Load] = ()) -> Condensed:
    """Condense every part to where it is joined, supported, roped and loaded.

    Nothing here depends on where the parts are: condense once, solve at many poses. The result of
    `solve` is that of the whole structure.

    **Arguments:** `structure`; `loads`, of which only the places of `NodalForce`s matter: those on
    other nodes later are an error.

    **Returns:** `Condensed`, for `solve` in place of the structure. It has NaN where a part has an
    inner motion without force.

    **Raises:** `ValueError` for what is no structure or no load.
    """
    check_whole(structure)
    loads = as_loads(loads)
    keep = _kept(structure, loads)
    return _condense(structure, Constant(keep), linear.is_large(int(np.sum(~keep))))


@eqx.filter_jit
def _condense(structure: Structure, keep: Constant, sparse: bool) -> Condensed:
    kept, others = np.flatnonzero(keep.array), np.flatnonzero(~keep.array)
    own = model.elements(structure)
    whole, load = model.stiffness(structure, own), model.inertia_loads(structure, own)
    if sparse:
        stiffness, across = whole.part(kept, kept), whole.part(others, kept)
        number = np.full(len(keep.array), len(others))
        number[others] = np.arange(len(others))
        inner = whole.renumbered(number, len(others))
        none = Rows(0, len(others), [])
        factor = linear.factorise(inner, none)

        def found_for(force: Array) -> Array:
            return linear.solve(inner, none, factor, force, jnp.zeros(0))[0]

        right = jnp.concatenate([across, load[others]], axis=1)
        found = jax.vmap(found_for, in_axes=1, out_axes=1)(right)
    else:
        whole = whole.dense()
        stiffness, across = whole[np.ix_(kept, kept)], whole[np.ix_(others, kept)]
        inner = whole[np.ix_(others, others)]
        scale = 1 / jnp.sqrt(jnp.diagonal(inner))
        lower = dense.cholesky(inner * scale[:, None] * scale[None, :])
        right = jnp.concatenate([across, load[others]], axis=1)
        found = scale[:, None] * dense.cho_solve(lower, scale[:, None] * right)
    follow, sag = -found[:, : len(kept)], found[:, len(kept) :]
    stiffness = stiffness + across.T @ follow
    inertia = load[kept] + follow.T @ load[others]
    stiffness = (stiffness + stiffness.T) / 2
    return Condensed(structure, stiffness, inertia, follow, sag, keep)


def _kept(structure: Structure, loads: tuple[Load, ...]) -> np.ndarray:
    layout = structure.layout
    wanted = np.zeros((len(layout.dof), 6), dtype=bool)
    for block in layout.blocks:
        own = np.array([s for side in block.stations for s in side], dtype=int)
        wanted[own, :3] = True
        wanted[own, 3:] |= block.kind == "carried"
        for pair, turns in zip(zip(*block.stations, strict=False), block.turns, strict=False):
            wanted[list(pair), 3:] |= turns
        for station, component in block.fixed:
            wanted[station, component] = True
    for span in layout.spans:
        wanted[np.array(span.ends), :3] = True
    for offset, frame in zip(layout.offsets, structure.models, strict=True):
        for group in frame.elements:
            if isinstance(group, Bars) and group.kind.tension_only:
                wanted[offset + group.ends.array, :3] = True
    for load in loads:
        if isinstance(load, NodalForce):
            wanted[structure.node(load.place), : 3 if load.moment is None else 6] = True
    # A node that follows another one moves by all of that one's degrees of freedom.
    followers = np.flatnonzero(layout.root != np.arange(len(layout.root)))
    wanted[followers] = wanted[followers].any(axis=1, keepdims=True)
    keep = np.zeros(layout.dofs + 1, dtype=bool)
    keep[layout.dof[wanted]] = True
    return keep[:-1]
