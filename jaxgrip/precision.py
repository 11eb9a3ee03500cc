"""Double precision: switched on by the user, required where accuracy is claimed."""

import jax


def enable_x64() -> None:
    """Switch JAX to 64-bit floating point for the whole process.

    Call it before the first array is made; the command line does so itself.
    """
    jax.config.update("jax_enable_x64", True)


def require_x64(what: str) -> None:
    """Raise unless JAX computes in 64-bit floating point.

    **Arguments:** `what`, the name of the computation that needs it, used in the message.

    **Raises:** `RuntimeError` when 64-bit mode is off.
    """
    if not jax.config.jax_enable_x64:
        raise RuntimeError(
            f"{what} needs 64-bit floating point: call jaxgrip.enable_x64() before making arrays."
        )
