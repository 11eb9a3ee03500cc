import os
import tempfile

# On matrices of a hundred rows OpenBLAS's threads fight with XLA's for the cores: a hundredfold
# slowdown under load. It reads this once, when jax loads it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest

import jaxgrip as jg

jg.enable_x64()
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


# Modules share programs through the disk, since the memory is cleared after each.
_programs = tempfile.TemporaryDirectory()
jax.config.update("jax_compilation_cache_dir", _programs.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Thousands of programs in one process use up the memory maps that Linux allows it."""
    yield
    jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(2007)
