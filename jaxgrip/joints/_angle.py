"""Angle between two frames."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.checks import brief, numbers
from jaxgrip.joints.joint import ANGLE, Frame, Joint, Measure, length, twist

FORMS = ("signed", "dot", "cross", "auto")


class Angle(Joint):
    """A given angle, as a drive of a hinge.

    **Arguments:**

    - `angle` [rad].
    - `form`: `"signed"`, the rotation from the first x axis to the second about the common z axis,
      which a hinge or sleeve between the same attachments provides. The others take the angle
      between the z axes, without sign: `"dot"` and `"cross"` by their scalar or vector product,
      `"auto"` by the one that is steeper at the angle asked for.

    **Raises:** `ValueError` for another form, or a number that is none or not finite.

    Source: Webhofer 2005, eq. 5.56-5.59, pp. 64-66, and section 5.5.3, pp. 84-89; own derivation of
    the signed form.
    """

    angle: Float[Array, ""]
    form: str = eqx.field(static=True)

    equations: ClassVar[int] = 1
    lengths: ClassVar[int] = 0
    points: ClassVar[int] = 2
    parameter: ClassVar[str | None] = "angle"
    measure: ClassVar[Measure] = ANGLE

    def __init__(self, angle, form: str = "signed"):
        if form not in FORMS:
            raise ValueError(
                f"The form of an angle is {brief(form)}; it must be one of {', '.join(FORMS)}."
            )
        self.angle = numbers("The angle", angle, ())
        self.form = form

    @property
    def is_signed(self) -> bool:
        """Only in the signed form."""
        return self.form == "signed"

    def residual(self, place: Frame) -> Float[Array, "1"]:
        """Sine of the angle that is missing; for other forms the difference of their products."""
        if self.form == "signed":
            sine, cosine = twist(place)
            return (sine * jnp.cos(self.angle) - cosine * jnp.sin(self.angle))[None]
        sine, cosine = _between_axes(place)
        cross, dot = sine - jnp.sin(self.angle), cosine - jnp.cos(self.angle)
        return jnp.where(self._by_sine(), cross, dot)[None]

    def motions(self, place: Frame) -> Float[Array, "5 6"]:
        """Translations along x, y and z; rotations about the two axes normal to the angle's."""
        if self.form == "signed":
            return jnp.eye(6, dtype=place.origin.dtype)[:5]
        z = place.rotation[:, 2]
        rows = jnp.zeros((5, 6), z.dtype).at[:3, :3].set(jnp.eye(3, dtype=z.dtype))
        first = jnp.array([0.0, 0.0, 1.0], z.dtype)
        return rows.at[3:, 3:].set(jnp.stack([first, z]))

    def facing(self, place: Frame) -> Float[Array, ""]:
        """Cosine of the angle that is missing, or negative for the supplement of an angle."""
        if self.form != "signed":
            # The sine is that of the supplement, too; the cosine is not.
            side = place.rotation[2, 2] * jnp.cos(self.angle)
            return jnp.where(self._by_sine(), side, jnp.ones_like(side))
        sine, cosine = twist(place)
        return cosine * jnp.cos(self.angle) + sine * jnp.sin(self.angle)

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Rotation from the first x axis to the second [rad]; else that between the z axes."""
        return jnp.arctan2(*(twist(place) if self.form == "signed" else _between_axes(place)))

    def _by_sine(self) -> Bool[Array, ""]:
        """Whether the form, none but the signed one, is the vector product."""
        if self.form == "auto":
            return jnp.abs(jnp.cos(self.angle)) >= np.sqrt(0.5)
        return jnp.asarray(self.form == "cross")


def _between_axes(place: Frame) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sine, not negative, and cosine of the angle between the z axes."""
    return length(place.rotation[:2, 2]), place.rotation[2, 2]
