"""Finite elements, one a file."""

from jaxgrip.fem.elements.element import Element as Element
from jaxgrip.fem.elements.hex8 import Hex8 as Hex8
