import jax
import jax.numpy as jnp
import pytest
from jax import lax

from experiments.benchmarks import batches, lapack_calls

EVERYTHING = sorted((*batches.CASES, *batches.HOST))
# Of every kind of system, through small kernels and through LAPACK.
ORDINARY = (
    "fem.principal_stresses",
    "fem.reduce",
    "flexible.shapes",
    "mechanism.loops.forward_dynamics",
    "rigid.forward_dynamics of nine bodies, gradient",
    "rigid.forward_dynamics_derivatives of nine bodies",
    "fem.structures.solve, gradient",
)


def test_every_public_function_is_named():
    """`python -m experiments.benchmarks.batches` calls all that take batches."""
    called = {
        name.partition(",")[0].partition(" of ")[0] for name in (*batches.CASES, *batches.HOST)
    }
    assert called | set(batches.NOT_BATCHED) == batches.names()
    assert not called & set(batches.NOT_BATCHED)


@pytest.mark.long
@pytest.mark.parametrize("name", ORDINARY)
def test_no_call_waits_for_others(name):
    assert not [x for x in lapack_calls.of_case(name, 4096) if x.is_divided]


@pytest.mark.soak
@pytest.mark.parametrize("name", EVERYTHING)
def test_no_call_of_any_function_waits_for_others(name):
    for size in (64, 4096, 16384):
        assert not [x for x in lapack_calls.of_case(name, size) if x.is_divided]


# Operations of a matrix by the source of jaxlib 0.10, by hand.
@pytest.mark.parametrize(
    ("call", "shape", "operations"),
    [
        (jnp.linalg.cholesky, (6, 6), {"potrf": 72}),
        (jnp.linalg.eigh, (7, 7), {"syevd": 1715}),
        (jnp.linalg.qr, (5, 3), {"geqrf": 72, "orgqr": 72}),
        (jnp.linalg.svd, (5, 3), {"gesdd": 450}),
        (lax.linalg.lu, (9, 9), {"getrf": 729}),
        (lambda a: lax.linalg.triangular_solve(a, a[..., :2, :]), (9, 9), {"trsm": 162}),
    ],
)
def test_calls_that_jaxlib_divides_are_found(call, shape, operations):
    def found(count):
        matrices = jax.ShapeDtypeStruct((count, *shape), jnp.float64)
        return lapack_calls.calls(jax.jit(call).lower(matrices).as_text())

    assert {x.routine: x.operations for x in found(1)} == operations
    assert not any(x.is_divided for x in found(1))
    for routine, each in operations.items():
        alone = -(-200_000 // each)
        for count, is_divided in ((alone, False), (alone + 1, True)):
            calls = [x for x in found(count) if x.routine == routine]
            assert calls
            assert all(x.count == count and x.is_divided == is_divided for x in calls)


def test_a_call_of_unknown_size_is_an_error():
    matrices = jax.ShapeDtypeStruct((4, 3, 3), jnp.complex128)
    program = jax.jit(jnp.linalg.cholesky).lower(matrices).as_text()
    with pytest.raises(ValueError, match="not known whether it is divided"):
        lapack_calls.calls(program)
