"""Anchor to the ground."""

from typing import ClassVar

from jaxgrip.joints._fixed import Fixed


class Clamp(Fixed):
    """Anchor of a body to the ground where it is at the start.

    Source: Webhofer 2005, section 4.3.1, p. 33.
    """

    to_ground: ClassVar[bool] = True
