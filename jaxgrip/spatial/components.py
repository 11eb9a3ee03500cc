"""Vectors and matrices as tuples of scalars.

A recursion written over scalars becomes, under `vmap`, a chain of elementwise operations on the
batch, which the compiler fuses; stacked 3x3 algebra does not. The Python floats 0.0 and 1.0 are
known to the functions below and never become an operation, so that a fixed joint, a base at rest
or a massless column cost nothing.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

Scalar = Any
Vector = tuple[Scalar, Scalar, Scalar]
Matrix = tuple[Vector, Vector, Vector]
Symmetric = tuple[Scalar, Scalar, Scalar, Scalar, Scalar, Scalar]

ZERO: Vector = (0.0, 0.0, 0.0)
IDENTITY: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def _known(a: Scalar, value: float) -> bool:
    return type(a) is float and a == value


def add(a: Scalar, b: Scalar) -> Scalar:
    """Sum of two scalars."""
    if _known(a, 0.0):
        return b
    if _known(b, 0.0):
        return a
    return a + b if type(a) is float or type(b) is float else lax.add(a, b)


def sub(a: Scalar, b: Scalar) -> Scalar:
    """Difference of two scalars."""
    if _known(b, 0.0):
        return a
    if _known(a, 0.0):
        return neg(b)
    return a - b if type(a) is float or type(b) is float else lax.sub(a, b)


def neg(a: Scalar) -> Scalar:
    """Negative of a scalar."""
    if _known(a, 0.0):
        return a
    return -a if type(a) is float else lax.neg(a)


def mul(a: Scalar, b: Scalar) -> Scalar:
    """Product of two scalars."""
    if _known(a, 0.0) or _known(b, 0.0):
        return 0.0
    if _known(a, 1.0):
        return b
    if _known(b, 1.0):
        return a
    return a * b if type(a) is float or type(b) is float else lax.mul(a, b)


def vadd(a: Vector, b: Vector) -> Vector:
    """Sum of two vectors."""
    return add(a[0], b[0]), add(a[1], b[1]), add(a[2], b[2])


def vsub(a: Vector, b: Vector) -> Vector:
    """Difference of two vectors."""
    return sub(a[0], b[0]), sub(a[1], b[1]), sub(a[2], b[2])


def scale(k: Scalar, a: Vector) -> Vector:
    """Scalar times vector."""
    return mul(k, a[0]), mul(k, a[1]), mul(k, a[2])


def dot(a: Vector, b: Vector) -> Scalar:
    """Inner product."""
    return add(add(mul(a[0], b[0]), mul(a[1], b[1])), mul(a[2], b[2]))


def cross(a: Vector, b: Vector) -> Vector:
    """Vector product a x b."""
    return (
        sub(mul(a[1], b[2]), mul(a[2], b[1])),
        sub(mul(a[2], b[0]), mul(a[0], b[2])),
        sub(mul(a[0], b[1]), mul(a[1], b[0])),
    )


def transpose(r: Matrix) -> Matrix:
    """Transpose of a 3x3 matrix."""
    return tuple(zip(*r, strict=True))


def matvec(r: Matrix, v: Vector) -> Vector:
    """Matrix times vector."""
    return dot(r[0], v), dot(r[1], v), dot(r[2], v)


def matmul(a: Matrix, b: Matrix) -> Matrix:
    """Matrix times matrix."""
    return transpose(tuple(matvec(a, column) for column in transpose(b)))


def turn_z(r: Matrix, c: Scalar, s: Scalar) -> Matrix:
    """R Rot(z) from the cosine c and the sine s of the angle."""
    return tuple(
        (add(mul(c, row[0]), mul(s, row[1])), sub(mul(c, row[1]), mul(s, row[0])), row[2])
        for row in r
    )


def full(i: Symmetric) -> Matrix:
    """3x3 matrix of the six components xx, xy, xz, yy, yz, zz."""
    xx, xy, xz, yy, yz, zz = i
    return (xx, xy, xz), (xy, yy, yz), (xz, yz, zz)


def symvec(i: Symmetric, v: Vector) -> Vector:
    """Symmetric matrix times vector."""
    return matvec(full(i), v)


def sadd(a: Symmetric, b: Symmetric) -> Symmetric:
    """Sum of two symmetric matrices."""
    return tuple(add(x, y) for x, y in zip(a, b, strict=True))


def congruence(r: Matrix, i: Symmetric) -> Symmetric:
    """R I R^T of a symmetric matrix I."""
    a = matmul(r, full(i))
    return (
        dot(a[0], r[0]),
        dot(a[0], r[1]),
        dot(a[0], r[2]),
        dot(a[1], r[1]),
        dot(a[1], r[2]),
        dot(a[2], r[2]),
    )


def parallel_axis(a: Vector, b: Vector) -> Symmetric:
    """2 (a.b) E - a b^T - b a^T, what a shift by b adds to an inertia of first moment a."""
    xx, yy, zz = (mul(2.0, mul(x, y)) for x, y in zip(a, b, strict=True))

    def off(j: int, k: int) -> Scalar:
        return neg(add(mul(a[j], b[k]), mul(a[k], b[j])))

    return add(yy, zz), off(0, 1), off(0, 2), add(xx, zz), off(1, 2), add(xx, yy)


def steiner(m: Scalar, a: Vector) -> Symmetric:
    """m ((a.a) E - a a^T), the inertia of a mass m at a (Schanzer 2007, eq. 2.3)."""
    b = scale(m, a)
    xx, yy, zz = mul(a[0], b[0]), mul(a[1], b[1]), mul(a[2], b[2])
    return (
        add(yy, zz),
        neg(mul(a[0], b[1])),
        neg(mul(a[0], b[2])),
        add(xx, zz),
        neg(mul(a[1], b[2])),
        add(xx, yy),
    )


def madd(a: Matrix, b: Matrix) -> Matrix:
    """Sum of two 3x3 matrices."""
    return tuple(vadd(x, y) for x, y in zip(a, b, strict=True))


def ssub(a: Symmetric, b: Symmetric) -> Symmetric:
    """Difference of two symmetric matrices."""
    return tuple(sub(x, y) for x, y in zip(a, b, strict=True))


def outer(a: Vector, b: Vector) -> Matrix:
    """a b^T."""
    return tuple(scale(x, b) for x in a)


def scaled_square(k: Scalar, a: Vector) -> Symmetric:
    """k a a^T."""
    x, y, z = a
    kx, ky, kz = scale(k, a)
    return mul(kx, x), mul(kx, y), mul(kx, z), mul(ky, y), mul(ky, z), mul(kz, z)


def cross_matrix(a: Vector) -> Matrix:
    """Matrix of the product a x ."""
    x, y, z = a
    return (0.0, neg(z), y), (z, 0.0, neg(x)), (neg(y), x, 0.0)


def symmetric_part(m: Matrix) -> Symmetric:
    """(M + M^T) / 2."""

    def mean(j: int, k: int) -> Scalar:
        return mul(0.5, add(m[j][k], m[k][j]))

    return m[0][0], mean(0, 1), mean(0, 2), m[1][1], mean(1, 2), m[2][2]


def unstack(x: Any) -> tuple:
    """Scalars along the first axis of an array."""
    if x.shape[0] == 0:
        return ()
    return tuple(lax.squeeze(p, (0,)) for p in lax.split(x, (1,) * x.shape[0]))


def stack(values: Any, like: Any) -> Any:
    """Array of the scalars, known constants included, in the type of the array `like`."""
    if not len(values):
        return jnp.zeros((0,), like.dtype)
    return jnp.stack([jnp.asarray(v, like.dtype) for v in values])
