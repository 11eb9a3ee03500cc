"""An elastic link: the inertia and stiffness terms of its shapes, as small arrays."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.fem import Body, geometric_stiffness, inertia, interface_loads, stiffness
from jaxgrip.fem.reduction import project, reduce_inertia
from jaxgrip.fem.static import responses
from jaxgrip.spatial import skew


class Interface(eqx.Module):
    """Mean rigid motion of some faces, linear in the shapes' coordinates.

    **Fields:** `names` of the faces; `centre` (faces, 3) of the undeformed faces [m];
    `translation` (faces, 3, k) [m] and `rotation` (faces, 3, k) [rad] per coordinate.
    """

    centre: Float[Array, "faces 3"]
    translation: Float[Array, "faces 3 k"]
    rotation: Float[Array, "faces 3 k"]
    names: tuple[str, ...] = eqx.field(static=True)

    def index(self, name: str) -> int:
        """Index of the face called `name`; `ValueError` when there is none."""
        if name not in self.names:
            raise ValueError(f"The link has no interface {name!r}; it has {', '.join(self.names)}.")
        return self.names.index(name)


class Stiffening(eqx.Module):
    """Second-order displacements ½ ηᵀ Ψ η, through which axial forces on a bent link do work.

    **Fields:** `first` (3, k, k), ∫ρΨ [kg m]; `translation` (faces, 3, k, k) [m] and `rotation`
    (faces, 3, k, k) [rad] of the interfaces; all per product of two coordinates.
    """

    first: Float[Array, "3 k k"]
    translation: Float[Array, "faces 3 k k"]
    rotation: Float[Array, "faces 3 k k"]


class ElasticLink(eqx.Module):
    """A body that deforms in k given shapes Φ; `elastic_link` makes one.

    With positions R of the undeformed body in the frame of the link:

    **Fields:**

    - `mass` [kg], `first` (3,) ∫ρR [kg m], `second` (3, 3) ∫ρRRᵀ [kg m^2].
    - `shape_first` (3, k) ∫ρΦ; `shape_second` (3, 3, k) ∫ρΦRᵀ.
    - `products` (3, 3, k, k), entry a, b, i, j ∫ρΦ_iaΦ_jb, with stiffening plus ∫ρΨ_ijaR_b.
    - `modal_mass`, `stiffness`, `damping` (k, k).
    - `interface`: motion of the faces that carry joints or are observed.
    - `stiffening`: second-order displacements, or None.

    A coordinate is a length when the shapes are dimensionless.

    Source: Schanzer 2007, section 4.3, pp. 47-57; Shabana 2013, chapter 5.
    """

    mass: Float[Array, ""]
    first: Float[Array, "3"]
    second: Float[Array, "3 3"]
    shape_first: Float[Array, "3 k"]
    shape_second: Float[Array, "3 3 k"]
    products: Float[Array, "3 3 k k"]
    modal_mass: Float[Array, "k k"]
    stiffness: Float[Array, "k k"]
    damping: Float[Array, "k k"]
    interface: Interface
    stiffening: Stiffening | None

    @property
    def k(self) -> int:
        """Number of shapes."""
        return self.modal_mass.shape[0]

    def face(self, f: int) -> tuple[Float[Array, "6 k"], Float[Array, "6 k k"] | None]:
        """Translation and rotation of a face per coordinate, and their change with stiffening."""
        on, more = self.interface, self.stiffening
        linear = jnp.concatenate([on.translation[f], on.rotation[f]])
        if more is None:
            return linear, None
        return linear, jnp.concatenate([more.translation[f], more.rotation[f]])


@eqx.filter_jit
def elastic_link(
    body: Body,
    shapes: Float[Array, "k n d"],
    faces: Sequence[str] = ("x1",),
    *,
    stiffening: bool = True,
) -> ElasticLink:
    """Reduce an elastic body to given shapes.

    Differentiable in every number of the body; the shapes, a Ritz basis, may be kept constant.

    **Arguments:**

    - `body`: clamped at its joint, its nodes in the frame of the link.
    - `shapes` (k, n, d): displacements, zero at the supports, as from `shapes`.
    - `faces`: faces, for beams node sets, that carry a joint or whose motion is needed.
    - `stiffening`: whether to include second-order displacements, by which fast rotation and axial
      forces stiffen the link. Without them a link that rotates faster than its lowest natural
      frequency diverges. They take k (k + 1) / 2 static solutions when the link is made.

    **Returns:** the `ElasticLink`.

    **Raises:** `ValueError` for a wrong shape or an unknown face.

    Source: Schanzer 2007, section 4.3, pp. 47-57, and remark 3.7, pp. 32-34.
    """
    phi = numbers("The array of shapes", shapes, (np.shape(shapes)[0], *body.free.shape))
    terms, matrix = inertia(body), stiffness(body)
    zero, patterns = jnp.zeros(3), -terms.patterns()
    uniform, by_position = patterns[:3], patterns[3:].reshape(3, 3, *body.free.shape)
    reduced, k = reduce_inertia(terms, phi), project(matrix, phi)
    products = reduced.products
    modal_mass = jnp.trace(products)
    loads = jnp.stack([interface_loads(body, face) for face in faces])
    motion = jnp.einsum("fand,ind->fai", loads, phi)
    x = body.mesh.nodes
    interface = Interface(
        jnp.einsum("fn,nb->fb", loads[:, 0, :, 0], x), motion[:, :3], motion[:, 3:], tuple(faces)
    )
    extra = None
    if stiffening:
        psi = _second_order(body, phi)
        products = products + jnp.einsum("abnd,ijnd->abij", by_position, psi)
        extra = _stiffening(body, psi, uniform, loads, interface)
    cross = jax.vmap(skew)(jnp.eye(3))
    rigid = jnp.zeros((3, *body.free.shape)).at[:, :, :3].set(jnp.einsum("abc,nc->anb", cross, x))
    if body.dofs == 6:
        rigid = rigid.at[:, :, 3:].set(jnp.eye(3)[:, None, :])
    moment = jnp.einsum("and,bnd->ab", rigid, jax.vmap(lambda t: terms.load(zero, t))(cross))
    return ElasticLink(
        mass=uniform[0, :, 0].sum(),
        first=by_position[0, :, :, 0].sum(axis=1),
        second=0.5 * jnp.trace(moment) * jnp.eye(3) - moment,
        shape_first=reduced.translation,
        shape_second=reduced.rotation,
        products=products,
        modal_mass=modal_mass,
        stiffness=k,
        damping=body.damping.mass * modal_mass + body.damping.stiffness * k,
        interface=interface,
        stiffening=extra,
    )


def _second_order(body: Body, phi: Float[Array, "k n d"]) -> Float[Array, "k k n d"]:
    """Static displacements from the quadratic part of the strain (modal derivatives)."""

    def cubic_energy(u):
        return 0.5 * jnp.vdot(u, geometric_stiffness(body, u) @ u)

    def force(u, v):
        return jax.jvp(jax.grad(cubic_energy), (u,), (v,))[1]

    # Symmetric in the two shapes.
    first, second = np.triu_indices(len(phi))
    psi = -responses(body, jax.vmap(force)(phi[first], phi[second]))
    index = np.zeros((len(phi), len(phi)), dtype=int)
    index[first, second] = index[second, first] = np.arange(len(first))
    return psi[index]


def _stiffening(
    body: Body, psi: Array, uniform: Array, loads: Array, interface: Interface
) -> Stiffening:
    motion = jnp.einsum("fand,ijnd->faij", loads, psi)
    # The second-order displacement of a rotated face has a mean rotation of its own: subtract it.
    small = jax.vmap(jax.vmap(skew, -1), 0)(interface.rotation)
    twice = jnp.einsum("fiab,fjbc->fijac", small, small)
    arms = body.mesh.nodes[None] - interface.centre[:, None, :]
    quadratic = 0.5 * jnp.einsum("fijac,fnc->fijna", twice + twice.swapaxes(1, 2), arms)
    apparent = jnp.einsum("fand,fijnd->faij", loads[:, 3:, :, :3], quadratic)
    return Stiffening(
        jnp.einsum("and,ijnd->aij", uniform, psi), motion[:, :3], motion[:, 3:] - apparent
    )
