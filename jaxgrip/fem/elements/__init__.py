"""Finite elements, one per file."""

from jaxgrip.fem.elements._euler_bernoulli import EulerBernoulli as EulerBernoulli
from jaxgrip.fem.elements._hex8_bbar import Hex8BBar as Hex8BBar
from jaxgrip.fem.elements._hex8_incompatible import Hex8Incompatible as Hex8Incompatible
from jaxgrip.fem.elements._hex27 import Hex27 as Hex27
from jaxgrip.fem.elements._tet4 import Tet4 as Tet4
from jaxgrip.fem.elements._tet10 import Tet10 as Tet10
from jaxgrip.fem.elements.element import Element as Element
from jaxgrip.fem.elements.hex8 import Hex8 as Hex8
from jaxgrip.fem.elements.timoshenko import Timoshenko as Timoshenko
