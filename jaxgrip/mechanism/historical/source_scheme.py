"""The scheme of Webhofer 2005, for comparison: seven unknowns a part and its own elimination.

Every part has its position and a quaternion, whose unit norm is an equation. Joints are vector and
scalar products of the attachments' points. Parallel lines and lines at distance zero give three
equations, two of which are independent: either the one along the direction that is closest to a
coordinate axis is dropped before every step, or all three are kept and the elimination has to
choose.

Source: Webhofer 2005, sections 5.1 to 5.3 and 5.5, pp. 39-76, 80-93.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip import joints
from jaxgrip.checks import brief
from jaxgrip.mechanism.poses import Poses
from jaxgrip.mechanism.poses import start as start_of
from jaxgrip.mechanism.system import Connection, Part, System
from jaxgrip.spatial import quaternions

DISTANCE_BAR = 1e-6
ANGLE_BAR = 1e-6
NORM_BAR = 1e-10

FORMS = ("cross", "dot")
ROWS = ("selected", "all")
PIVOTS = ("column", "relative", "relative_guarded", "scaled", "least_squares")

KINDS = (
    joints.Fixed,
    joints.Hinge,
    joints.Guide,
    joints.Screw,
    joints.Sleeve,
    joints.Ball,
    joints.Distance,
    joints.Angle,
)

_NOISE = 1e-8
_CUTOFF = 1e-9


class Options(NamedTuple):
    """Variants of the scheme.

    - `form`: of parallel lines and of lines at distance zero, `"cross"` or `"dot"`.
    - `rows`: `"selected"` drops the equation with the largest direction cosine, before each
      step; `"all"` keeps it.
    - `pivot`: which row eliminates a column. `"relative"` is the source's: largest against the
      sum of the row's remaining entries. `"relative_guarded"` skips rows of which only rounding
      noise remains, `"scaled"` compares with the sum of the row before elimination, `"column"`
      takes the largest entry. `"least_squares"` does not eliminate.
    - `steps`: the largest number of them.
    """

    form: str = "cross"
    rows: str = "selected"
    pivot: str = "relative"
    steps: int = 50


PRINTED = Options()


class Equations(NamedTuple):
    """All equations at poses of the parts: those of the joints in their order, then unit norms.

    - `values`: (m,) [m, m², m³, m⁴ or 1].
    - `selected`: (m,), False where the equation has the largest direction cosine.
    - `misses`: errors of distances, angles and unit norms, in multiples of their bars.
    """

    values: Float[Array, " m"]
    selected: Bool[Array, " m"]
    misses: Float[Array, " misses"]


class SourceSolution(NamedTuple):
    """Outcome of the scheme.

    - `poses` of the parts at the end.
    - `history`: the largest residual at the start and after every step.
    - `converged`; `singular`, whether a column had no pivot.
    """

    poses: Poses
    history: np.ndarray
    converged: bool
    singular: bool

    @property
    def steps(self) -> int:
        """Newton steps made."""
        return len(self.history) - 1


def solve(system: System, start: Poses | None = None, options: Options = PRINTED) -> SourceSolution:
    """Assemble by the source's own scheme.

    **Arguments:**

    - `system`: parts and connections. Angles in the form `"signed"` are kept, which the source does
      not have; its products are the other forms.
    - `start`: poses of the parts, by default those they were given.
    - `options`.

    **Returns:** [`SourceSolution`][]; no convergence is no error.

    **Raises:** `ValueError` for joints that the source does not have, or unknown options.
    """
    _check(options)
    x = np.concatenate(start_of(system) if start is None else start, axis=1, dtype=float)
    history, converged, singular = [], False, False
    for count in range(options.steps + 1):
        now, slope = _linearised(system, x, options.form)
        history.append(np.max(np.abs(now.values)))
        converged = bool(np.all(np.asarray(now.misses) <= 1))
        if converged or count == options.steps or not np.isfinite(history[-1]):
            break
        rows = np.asarray(now.selected) if options.rows == "selected" else slice(None)
        step = eliminate(np.asarray(slope)[rows], -np.asarray(now.values)[rows], options.pivot)
        singular = step is None
        if singular:
            break
        x = x + step.reshape(x.shape)
    return SourceSolution(Poses(x[:, :3], x[:, 3:]), np.array(history), converged, singular)


def equations(system: System, poses: Poses, form: str = "cross") -> Equations:
    """The source's equations at poses with quaternions of any norm; `form` is one of `FORMS`."""
    return _equations(system, jnp.concatenate(poses, axis=1), form)


def jacobian(system: System, poses: Poses, form: str = "cross") -> Float[Array, "m unknowns"]:
    """Derivatives of `equations` by the seven numbers of every part, (m, 7 n)."""
    return _linearised(system, np.concatenate(poses, axis=1), form)[1]


def eliminate(matrix: np.ndarray, right: np.ndarray, pivot: str) -> np.ndarray | None:
    """Gaussian elimination, also of more rows than columns; None where a column has no pivot.

    Rows that are left over are ignored.

    Source: Webhofer 2005, sections 5.1.3, 5.1.4 and 5.5.2, pp. 45-52, 84.
    """
    if pivot == "least_squares":
        return np.linalg.lstsq(matrix, right, rcond=_CUTOFF)[0]
    with np.errstate(all="ignore"):
        return _gauss(matrix, right, pivot)


def _gauss(matrix: np.ndarray, right: np.ndarray, pivot: str) -> np.ndarray | None:
    columns = matrix.shape[1]
    a = np.column_stack([matrix, right])
    original = np.abs(matrix).sum(1)
    for k in range(columns):
        size = np.abs(a[k:, k])
        remaining = np.abs(a[k:, k:columns]).sum(1)
        if pivot == "relative_guarded":
            size = np.where(remaining < _NOISE * original[k:], 0.0, size)
        scale = {"column": np.ones_like(size), "scaled": original[k:]}.get(pivot, remaining)
        quotient = np.divide(size, scale, out=np.zeros_like(size), where=scale > 0)
        if not len(quotient) or not np.any(quotient > 0):
            return None
        p = k + int(np.argmax(quotient))
        a[[k, p]] = a[[p, k]]
        original[[k, p]] = original[[p, k]]
        a[k + 1 :, k:] -= np.outer(a[k + 1 :, k] / a[k, k], a[k, k:])
    x = np.zeros(columns)
    for k in reversed(range(columns)):
        x[k] = (a[k, columns] - a[k, k + 1 : columns] @ x[k + 1 :]) / a[k, k]
    return x


def selection(a: Float[Array, "3"], b: Float[Array, "3"]) -> Bool[Array, "3"]:
    """Which two of three components to keep for two lines that are to be parallel.

    Source: Webhofer 2005, eq. 5.88-5.92, pp. 81-84, with absolute values.
    """
    a, b = a / jnp.linalg.norm(a), b / jnp.linalg.norm(b)
    between = jnp.abs(jnp.where(a @ b >= 0, a + b, a - b))
    return jnp.arange(3) != jnp.argmax(between)


def parallel(a: Float[Array, "3"], b: Float[Array, "3"], form: str) -> Float[Array, "3"]:
    """Zero for parallel lines along a and b. Source: Webhofer 2005, eq. 5.36-5.46, pp. 57-60."""
    return jnp.cross(a, b) if form == "cross" else (a @ b) / (b @ b) * b - a


def offset(d: Float[Array, "3"], a: Float[Array, "3"], form: str) -> Float[Array, "3"]:
    """Zero for a distance vector d along the common direction a of two lines.

    Source: Webhofer 2005, eq. 5.47-5.54, pp. 61-63.
    """
    return jnp.cross(d, a) if form == "cross" else (d @ a) * a - (a @ a) * d


def included_angle(
    a: Float[Array, "3"], b: Float[Array, "3"], angle: Float[Array, ""], form: str
) -> Float[Array, ""]:
    """Zero where two lines include an angle [rad].

    `form` is `"cross"`, `"dot"` or `"auto"`, the one that is steeper at the angle.

    Source: Webhofer 2005, eq. 5.56-5.59, pp. 64-66, and section 5.5.3, pp. 84-89.
    """
    size = jnp.linalg.norm(a) * jnp.linalg.norm(b)
    cross = _length(jnp.cross(a, b)) - size * jnp.sin(angle)
    dot = a @ b - size * jnp.cos(angle)
    return {"cross": cross, "dot": dot, "auto": jnp.where(_steep(angle), cross, dot)}[form]


def screw_turn(
    n1: Float[Array, "3"], n2: Float[Array, "3"], angle: Float[Array, ""], form: str
) -> Float[Array, ""]:
    """The coupling of a screw as printed, wrong beyond the first quadrant.

    Source: Webhofer 2005, eq. 5.76-5.79, p. 75.
    """
    size = jnp.linalg.norm(n1) * jnp.linalg.norm(n2)
    cross = _length(jnp.cross(n1, n2)) - size * jnp.sin(angle)
    dot = jnp.abs(n1 @ n2) - size * jnp.cos(angle)
    return {"cross": cross, "dot": dot, "auto": jnp.where(_steep(angle), cross, dot)}[form]


class _Lines(NamedTuple):
    """An attachment in the ground frame: its first point, and of a_12 and a_13 those it has."""

    point: Array
    along: Array | None
    beside: Array | None

    @property
    def normal(self) -> Array:
        return jnp.cross(self.along, self.beside)


class _Rows(NamedTuple):
    values: Array
    misses: Array
    selected: Array | None = None


@eqx.filter_jit
def _linearised(system: System, x: Array, form: str) -> tuple[Equations, Array]:
    def values(flat: Array) -> tuple[Array, Equations]:
        now = _equations(system, flat.reshape(x.shape), form)
        return now.values, now

    slope, now = jax.jacfwd(values, has_aux=True)(jnp.asarray(x).reshape(-1))
    return now, slope


def _equations(system: System, x: Array, form: str) -> Equations:
    still = jnp.eye(1, 7, 3, dtype=x.dtype)
    bodies = jnp.concatenate([x, still])

    def lines(end: str) -> _Lines:
        index, points = system.attachment(end)
        matrix = quaternions.to_matrix(bodies[index, 3:])
        sides = [matrix @ (p - points[0]) for p in points[1:]]
        origin = bodies[index, :3] + matrix @ points[0]
        return _Lines(origin, *sides, *[None] * (2 - len(sides)))

    rows = []
    for each in system.connections:
        if isinstance(each.joint, joints.Clamp):
            part = system.part(each.first)
            rows.append(_clamp(x[part], system.parts[part]))
        else:
            rows.extend(_joint(each, lines, form))
    norm = jnp.sum(x[:, 3:] ** 2, axis=1) - 1
    rows.append(_Rows(norm, norm / NORM_BAR))
    return Equations(
        jnp.concatenate([r.values for r in rows]),
        jnp.concatenate(
            [jnp.ones(len(r.values), bool) if r.selected is None else r.selected for r in rows]
        ),
        jnp.concatenate([jnp.abs(r.misses) for r in rows]),
    )


def _joint(connection: Connection, lines: Callable[[str], _Lines], form: str) -> Iterator[_Rows]:
    joint = connection.joint
    if not isinstance(joint, KINDS):
        raise ValueError(
            f"The source has no joint such as {connection.name!r}, a {type(joint).__name__}."
        )
    a, b = lines(connection.first), lines(connection.second)
    d = b.point - a.point
    match joint:
        case joints.Fixed():
            yield _fixed(a, b)
            yield _coincident(d)
        case joints.Hinge():
            yield _parallel(a, b, form)
            yield _coincident(d)
        case joints.Ball():
            yield _coincident(d)
        case joints.Sleeve():
            yield _parallel(a, b, form)
            yield _collinear(d, a, b, form)
        case joints.Guide():
            yield _parallel(a, b, form)
            yield _collinear(d, a, b, form)
            yield _Rows(
                _length(jnp.cross(a.normal, b.normal))[None],
                _lines_angle(a.normal, b.normal)[None] / ANGLE_BAR,
            )
        case joints.Screw():
            yield _parallel(a, b, form)
            yield _collinear(d, a, b, form)
            yield _screw(joint, d, a, b)
        case joints.Distance():
            yield _Rows(
                (d @ d - joint.length**2)[None],
                (jnp.linalg.norm(d) - joint.length)[None] / DISTANCE_BAR,
            )
        case joints.Angle():
            yield _angle(joint, a, b)


def _clamp(x: Array, part: Part) -> _Rows:
    rotation = quaternions.product(x[3:], quaternions.conjugate(part.quaternion))[1:]
    displacement = x[:3] - part.position
    return _Rows(
        jnp.concatenate([displacement, rotation]),
        jnp.concatenate([displacement / DISTANCE_BAR, 2 * rotation / ANGLE_BAR]),
    )


def _coincident(d: Array) -> _Rows:
    return _Rows(-d, jnp.linalg.norm(d)[None] / DISTANCE_BAR)


def _parallel(a: _Lines, b: _Lines, form: str) -> _Rows:
    return _Rows(
        parallel(a.along, b.along, form),
        _lines_angle(a.along, b.along)[None] / ANGLE_BAR,
        selection(a.along, b.along),
    )


def _collinear(d: Array, a: _Lines, b: _Lines, form: str) -> _Rows:
    distance = jnp.linalg.norm(jnp.cross(d, a.along)) / jnp.linalg.norm(a.along)
    return _Rows(
        offset(d, a.along, form), distance[None] / DISTANCE_BAR, selection(a.along, b.along)
    )


def _fixed(a: _Lines, b: _Lines) -> _Rows:
    normal = jnp.cross(a.beside, a.along)
    cross = jnp.cross(a.along, b.along)
    square = cross @ cross
    # The norm as printed has no derivative at its root; the product with the normal does.
    last = jnp.where(square > 0, _length(cross), cross @ normal / jnp.linalg.norm(normal))
    return _Rows(
        jnp.stack([normal @ b.along, normal @ b.beside, last]),
        jnp.stack([_lines_angle(a.along, b.along), _lines_angle(a.normal, b.normal)]) / ANGLE_BAR,
    )


def _screw(joint: joints.Screw, d: Array, a: _Lines, b: _Lines) -> _Rows:
    angle = (_length(d) - joint.start) * 2 * np.pi / joint.lead
    normals = a.normal, b.normal
    rotation = jnp.arctan2(_length(jnp.cross(*normals)), normals[0] @ normals[1])
    error = jnp.arctan2(jnp.sin(rotation - angle), jnp.cos(rotation - angle))
    return _Rows(screw_turn(*normals, angle, "auto")[None], error[None] / ANGLE_BAR)


def _angle(joint: joints.Angle, a: _Lines, b: _Lines) -> _Rows:
    if joint.form == "signed":
        return _signed_angle(joint, a, b)
    value = included_angle(a.along, b.along, joint.angle, joint.form)
    sine, cosine = _length(jnp.cross(a.along, b.along)), a.along @ b.along
    # Neither product tells an angle from its negative, nor the vector product from its supplement.
    by_sine = jnp.arctan2(sine, jnp.abs(cosine)) - jnp.arctan2(
        jnp.sin(joint.angle), jnp.abs(jnp.cos(joint.angle))
    )
    by_cosine = jnp.arctan2(sine, cosine) - jnp.arctan2(
        jnp.abs(jnp.sin(joint.angle)), jnp.cos(joint.angle)
    )
    steep = jnp.where(_steep(joint.angle), by_sine, by_cosine)
    error = {"cross": by_sine, "dot": by_cosine, "auto": steep}[joint.form]
    return _Rows(value[None], error[None] / ANGLE_BAR)


def _signed_angle(joint: joints.Angle, a: _Lines, b: _Lines) -> _Rows:
    axis = a.along / jnp.linalg.norm(a.along)
    x, y = (v - (v @ axis) * axis for v in (a.beside, b.beside))
    size = jnp.linalg.norm(x) * jnp.linalg.norm(y)
    sine, cosine = axis @ jnp.cross(x, y) / size, x @ y / size
    value = sine * jnp.cos(joint.angle) - cosine * jnp.sin(joint.angle)
    along = cosine * jnp.cos(joint.angle) + sine * jnp.sin(joint.angle)
    return _Rows(value[None], jnp.arctan2(value, along)[None] / ANGLE_BAR)


def _lines_angle(a: Array, b: Array) -> Array:
    """Angle of two lines without direction [rad]."""
    return jnp.arctan2(jnp.linalg.norm(jnp.cross(a, b)), jnp.abs(a @ b))


def _steep(angle: Array) -> Array:
    return jnp.abs(jnp.cos(angle)) >= np.sqrt(0.5)


def _length(v: Array) -> Array:
    """Euclidean norm, with a derivative of zero at zero."""
    square = v @ v
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _check(options: Options) -> None:
    for key, allowed in (("form", FORMS), ("rows", ROWS), ("pivot", PIVOTS)):
        value = getattr(options, key)
        if value not in allowed:
            raise ValueError(
                f"The option {key} is {brief(value)}; it must be one of {', '.join(allowed)}."
            )
