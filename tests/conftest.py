import jax
import pytest

import jaxgrip as jg

jg.enable_x64()
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def key():
    return jax.random.key(2007)
