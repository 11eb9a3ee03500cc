"""Small dense systems in batches against JAX's own, which call LAPACK on the whole batch."""

import functools
import time

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

from experiments.benchmarks.table import Row, timed
from jaxgrip.solve import dense

BATCH = 4096
ROUNDS = 5
SIZES = (3, 6, 12, 24, 48)
NOTE = (
    f"Time per matrix of {BATCH}, one right side, float64, least of {ROUNDS} runs in turn with the "
    "peer's, the batch in the first axis."
)
WORK = {
    "positive definite": (
        functools.partial(dense.solve, positive=True),
        lambda a, b: jsl.cho_solve(jsl.cho_factor(a), b),
    ),
    "general": (dense.solve, jnp.linalg.solve),
}
EIGENVALUES = (lambda a, b: dense.eigvalsh(a), lambda a, b: jnp.linalg.eigvalsh(a))


def main(_: str) -> list[Row]:
    """Rows of ours against `jax.numpy.linalg` in this process, seconds per matrix."""
    cases = [(f"{name}, {n} unknowns", pair, n) for name, pair in WORK.items() for n in SIZES]
    cases.append(("eigenvalues, 3 rows", EIGENVALUES, 3))
    return [_row(what, *pair, n) for what, pair, n in cases]


def _row(what: str, own, peer, n: int) -> Row:
    rng = np.random.default_rng(2007)
    a, b = rng.normal(size=(BATCH, n, n)), jnp.asarray(rng.normal(size=(BATCH, n)))
    a = jnp.asarray(a @ a.transpose(0, 2, 1) / n + np.eye(n))
    calls = [functools.partial(jax.jit(jax.vmap(f)), a, b) for f in (own, peer)]
    compile_s, setup_s = (timed(call, repeats=1)[0] for call in calls)
    least = [np.inf, np.inf]
    for _ in range(ROUNDS):
        for k, call in enumerate(calls):
            start = time.perf_counter()
            jax.block_until_ready(call())
            least[k] = min(least[k], time.perf_counter() - start)
    ours, theirs = (np.asarray(call()) for call in calls)
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    return Row(
        what,
        least[0] / BATCH,
        compile_s,
        peer="jax.numpy.linalg",
        peer_run_s=least[1] / BATCH,
        peer_setup_s=setup_s,
        answer=f"agrees to {error:.0e}",
        target=1.0,
        note=NOTE,
    )
