"""Forces between two frames, as functions of their relative position and velocity.

A new kind of force is a subclass of `Force`.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import brief, non_negative, numbers
from jaxgrip.joints import Frame, Joint, displaced
from jaxgrip.joints.joint import length


class Force(eqx.Module):
    """A force between two frames, one on either part.

    - `acts`: "between" two attachments, "on" one attachment, the first frame being the ground's,
      or "along" the coordinate of a joint.
    - `parameter`: name of a field that a motion may replace by a function of time, or None.

    A force with a state of its own defines `start`, `rates` and `stored` too.
    """

    acts: ClassVar[str]
    parameter: ClassVar[str | None] = None

    @abc.abstractmethod
    def wrench(self, place: Frame, rate: Float[Array, "6"]) -> Float[Array, "6"]:
        """Force [N] and moment [N m] on the second frame at its origin, in axes of the first.

        **Arguments:** `place`: the second frame seen from the first; `rate` (6,): velocity of the
        second origin relative to the first frame [m/s], then angular velocity [rad/s], in axes of
        the first.
        """

    def energy(self, place: Frame) -> Float[Array, ""]:
        """Potential energy [J], zero for a force that has none."""
        return jnp.zeros_like(place.origin[0])

    def start(self, place: Frame) -> Any:
        """State at the first time, arrays in any structure; None for a force without a state."""
        return None

    def rates(
        self, place: Frame, rate: Float[Array, "6"], state: Any
    ) -> tuple[Float[Array, "6"], Any]:
        """Wrench in a state, as of `wrench`, and the rates of the state [per s]."""
        return self.wrench(place, rate), state

    def stored(self, place: Frame, state: Any) -> Float[Array, ""]:
        """Energy [J], that of the state included."""
        return self.energy(place)

    def along(self, joint: Joint) -> "Force":
        """The force bound to its joint, for a kind that acts along a joint."""
        return self


class Spring(Force):
    """A spring and a damper along the line between the first points of two attachments.

    **Arguments:** `stiffness` [N/m]; unstressed `length` [m]; `damping` [N s/m].

    **Raises:** `ValueError` for a negative number.
    """

    stiffness: Float[Array, ""]
    length: Float[Array, ""]
    damping: Float[Array, ""]

    acts: ClassVar[str] = "between"

    def __init__(self, stiffness, length=0.0, damping=0.0):
        self.stiffness = non_negative("The stiffness of a spring", stiffness, ())
        self.length = non_negative("The length of a spring", length, ())
        self.damping = non_negative("The damping of a spring", damping, ())

    def wrench(self, place: Frame, rate: Float[Array, "6"]) -> Float[Array, "6"]:
        """Tension along the line."""
        _, direction = _line(place)
        # Linear in the origin, so that a spring without length has its derivative at length 0.
        force = -self.stiffness * place.origin
        force += (self.stiffness * self.length - self.damping * (direction @ rate[:3])) * direction
        return jnp.concatenate([force, jnp.zeros_like(direction)])

    def energy(self, place: Frame) -> Float[Array, ""]:
        """Energy of the spring [J]."""
        return 0.5 * self.stiffness * (_line(place)[0] - self.length) ** 2


class AlongJoint(Force):
    """A torque or force along the coordinate of a joint, to which `along` binds it.

    A subclass has `effort_at`, and `start` and `stored` if it has a state.
    """

    joint: eqx.AbstractVar[Joint | None]

    acts: ClassVar[str] = "along"

    @abc.abstractmethod
    def effort_at(
        self, value: Float[Array, ""], rate: Float[Array, ""], state: Any
    ) -> tuple[Float[Array, ""], Any]:
        """Torque or force [N m or N] at value [rad or m] and rate [per s] of the coordinate, and
        the rates of the state [per s]."""

    def along(self, joint: Joint) -> "AlongJoint":
        """The force bound to its joint."""
        return eqx.tree_at(lambda f: f.joint, self, joint, is_leaf=lambda x: x is None)

    def wrench(self, place: Frame, rate: Float[Array, "6"]) -> Float[Array, "6"]:
        """Wrench that does the work of the effort along the coordinate, in the state at first."""
        return self.rates(place, rate, self.start(place))[0]

    def rates(
        self, place: Frame, rate: Float[Array, "6"], state: Any
    ) -> tuple[Float[Array, "6"], Any]:
        """Wrench in a state, and the rates of the state [per s]."""
        along = gradient(self.joint, place)
        effort, change = self.effort_at(self.joint.coordinate(place), along @ rate, state)
        return effort * along, change


class JointForce(AlongJoint):
    """Torque or force along the coordinate of a joint.

    It is effort - stiffness · (value - rest) - damping · rate; the difference of angles is taken
    within half a turn.

    **Arguments:** `effort` [N m or N]; `stiffness` [N m/rad or N/m]; `rest` [rad or m]; `damping`
    [N m s/rad or N s/m].

    **Raises:** `ValueError` for a negative stiffness or damping, or a number that is not finite.
    """

    effort: Float[Array, ""]
    stiffness: Float[Array, ""]
    rest: Float[Array, ""]
    damping: Float[Array, ""]
    joint: Joint | None

    def __init__(self, effort=0.0, stiffness=0.0, rest=0.0, damping=0.0, *, joint=None):
        self.effort = numbers("The effort of a joint force", effort, ())
        self.stiffness = non_negative("The stiffness of a joint force", stiffness, ())
        self.rest = numbers("The rest of a joint force", rest, ())
        self.damping = non_negative("The damping of a joint force", damping, ())
        self.joint = joint

    def effort_at(
        self, value: Float[Array, ""], rate: Float[Array, ""], state: Any
    ) -> tuple[Float[Array, ""], Any]:
        """Effort, spring and damper."""
        return self.effort - self.stiffness * self._beyond(value) - self.damping * rate, state

    def energy(self, place: Frame) -> Float[Array, ""]:
        """Energy of the spring [J]; an effort has none."""
        return 0.5 * self.stiffness * self._beyond(self.joint.coordinate(place)) ** 2

    def _beyond(self, value: Float[Array, ""]) -> Float[Array, ""]:
        return self.joint.measure.wrapped(value - self.rest)


class Load(Force):
    """A force and a moment on a part, at the first point of an attachment.

    **Arguments:** `force` (3,) [N] and `moment` (3,) [N m], in axes of the ground, or of the
    attachment where `follows`.

    **Raises:** `ValueError` for another shape, or a number that is not finite.
    """

    force: Float[Array, "3"]
    moment: Float[Array, "3"]
    follows: bool = eqx.field(static=True)

    acts: ClassVar[str] = "on"

    def __init__(self, force=(0.0, 0.0, 0.0), moment=(0.0, 0.0, 0.0), follows=False):
        self.force = numbers("The force of a load", force, (3,))
        self.moment = numbers("The moment of a load", moment, (3,))
        if not isinstance(follows, bool):
            raise ValueError(f"The load follows {brief(follows)}; give True or False.")
        self.follows = follows

    def wrench(self, place: Frame, rate: Float[Array, "6"]) -> Float[Array, "6"]:
        """Force and moment."""
        if self.follows:
            return jnp.concatenate([place.rotation @ self.force, place.rotation @ self.moment])
        return jnp.concatenate([self.force, self.moment])

    def energy(self, place: Frame) -> Float[Array, ""]:
        """Energy of a force in a fixed direction [J]; a moment has none."""
        if self.follows:
            return jnp.zeros_like(place.origin[0])
        return -self.force @ place.origin


class Applied(eqx.Module):
    """A force and where it acts.

    **Arguments:** `name`; `force`; `first` and `second`: two attachments, `"part.attachment"` or
    `"ground.attachment"`, for a force between them. A load has one attachment, and a force along a
    joint the name of a connection, as `first`, and no `second`.
    """

    name: str = eqx.field(static=True)
    force: Force
    first: str = eqx.field(static=True)
    second: str | None = eqx.field(static=True, default=None)

    def __init__(self, name: str, force: Force, first: str, second: str | None = None):
        self.name, self.force, self.first, self.second = name, force, first, second


def gradient(joint: Joint, place: Frame) -> Float[Array, "6"]:
    """Derivative of a joint's coordinate by displacement and rotation of its second frame.

    (6,) in axes of the first frame; also force and moment of a unit effort on the second frame.
    """
    still = jnp.zeros(6, place.origin.dtype)
    return jax.grad(lambda step: joint.coordinate(displaced(place, step)))(still)


def _line(place: Frame) -> tuple[Array, Array]:
    """Distance of the origins and unit vector from first to second, zero where they coincide."""
    distance = length(place.origin)
    return distance, place.origin / jnp.where(distance > 0, distance, 1.0)
