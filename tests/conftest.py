import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from jaxgrip import _process

# On matrices of a hundred rows OpenBLAS's threads fight with XLA's for the cores: a hundredfold
# slowdown under load. It reads this once, when jax loads it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Modules share compiled programs through the disk, since the memory is cleared after each. The
# process that starts the workers chooses the folder; those older than a month are removed.
if "JAXGRIP_TEST_PROGRAMS" not in os.environ:
    _caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    _programs = _caches / "jaxgrip" / "tests"
    _programs.mkdir(parents=True, exist_ok=True)
    for _program in _programs.iterdir():
        if _program.stat().st_mtime < time.time() - 30 * 86400:
            _program.unlink(missing_ok=True)
    os.environ["JAXGRIP_TEST_PROGRAMS"] = str(_programs)
    # Programs that run once spend their time in the compiler, which is nearly twice as fast with
    # XLA's plain emitters. A jaxlib that does not know the flag would end the process.
    _plain = {"XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"} | os.environ
    _trial = [sys.executable, "-c", "import jax; jax.devices()"]
    if subprocess.run(_trial, env=_plain, capture_output=True, check=False).returncode == 0:
        os.environ.update(_plain)
    # As the command line does: without it batched LAPACK calls may wait for each other for ever.
    os.environ["XLA_FLAGS"] = _process.xla_flags(os.environ)

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.interpreters import batching

import jaxgrip as jg

jg.enable_x64()
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", os.environ["JAXGRIP_TEST_PROGRAMS"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def _refuse_batched_lapack():
    """No test may make a batch of LAPACK's calls by `vmap`: they can wait for each other for ever.

    What has a batch in its own shape the linter refuses.
    """

    def primitives(jaxpr):
        for equation in jaxpr.eqns:
            inner = [x.jaxpr for x in equation.params.values() if hasattr(x, "jaxpr")]
            yield from (p for x in inner for p in primitives(x))
            yield equation.primitive

    def call(a):
        factored = (lax.linalg.lu(a), lax.linalg.qr(a), lax.linalg.svd(a), lax.linalg.eigh(a))
        solved = lax.linalg.triangular_solve(a, a, left_side=True)
        return factored, solved, lax.linalg.cholesky(a, symmetrize_input=False)

    def refused(name):
        def batched(*_, **__):
            raise AssertionError(f"{name} of a batch by JAX: use jaxgrip.solve.dense")

        return batched

    for primitive in set(primitives(jax.make_jaxpr(call)(jnp.eye(2)).jaxpr)):
        if primitive.name in _LAPACK:
            batching.primitive_batchers[primitive] = refused(primitive.name)


_LAPACK = {"cholesky", "lu", "triangular_solve", "eigh", "svd", "qr", "geqrf"}
_refuse_batched_lapack()


# Programs of the ordinary run, those read from the disk too: each costs a tenth of a second in
# compilation, and more of them would take the run beyond ten minutes.
BUDGET = 18_500
COMPILED = "/jax/core/compile/backend_compile_duration"
_compiled = {"programs": 0}


def _count(event, duration, **_):
    _compiled["programs"] += event == COMPILED


jax.monitoring.register_event_duration_secs_listener(_count)


def pytest_testnodedown(node, error):
    _compiled["programs"] += getattr(node, "workeroutput", {}).get("programs", 0)


def pytest_sessionfinish(session):
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker |= _compiled
    elif "not long" in session.config.option.markexpr and _compiled["programs"] > BUDGET:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    found = _compiled["programs"]
    terminalreporter.write_line(f"{found} programs compiled or read; {BUDGET} by default at most.")


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Thousands of programs in one process use up the memory maps that Linux allows it."""
    yield
    jax.clear_caches()
    if sys.platform == "linux":
        # The allocator keeps a gigabyte of what compiling freed, in every worker.
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture
def compilations():
    """Context that fills a list with the programs compiled in it, those read from the disk too."""

    @contextlib.contextmanager
    def listed():
        found = []

        def listen(event, duration, **_):
            if event == COMPILED:
                found.append(duration)

        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            yield found
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)

    return listed


@pytest.fixture
def key():
    return jax.random.key(2007)


@pytest.fixture
def projects():
    """Leaves no `experiments` of another project behind for the tests that follow."""
    kept = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "experiments"}
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] == "experiments"]:
        del sys.modules[name]
    sys.modules.update(kept)


@pytest.fixture
def no_file_longer_than():
    """Context in which this process meets what a full disk does, from so many bytes on."""

    @contextlib.contextmanager
    def limited(size):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
