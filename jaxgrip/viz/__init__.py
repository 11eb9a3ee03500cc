"""Pictures of results: signals, certificates, mechanisms and elastic bodies in space, animation."""

from jaxgrip.viz._curves import Curve as Curve
from jaxgrip.viz._curves import Panel as Panel
from jaxgrip.viz._curves import curves as curves
from jaxgrip.viz._frame import animate_frame as animate_frame
from jaxgrip.viz._frame import frame as frame
from jaxgrip.viz._linkage import animate_linkage as animate_linkage
from jaxgrip.viz._linkage import linkage as linkage
from jaxgrip.viz._mechanism import Animation as Animation
from jaxgrip.viz._mechanism import animate as animate
from jaxgrip.viz._mechanism import film as film
from jaxgrip.viz._mechanism import stroboscope as stroboscope
from jaxgrip.viz._proof import certificate as certificate
from jaxgrip.viz._proof import checks as checks
from jaxgrip.viz._sampling import refine as refine
from jaxgrip.viz._signals import controls as controls
from jaxgrip.viz._signals import hamiltonian as hamiltonian
from jaxgrip.viz._signals import lines as lines
from jaxgrip.viz._signals import multipliers as multipliers
from jaxgrip.viz._solid import animate_solid as animate_solid
from jaxgrip.viz._solid import solid as solid
from jaxgrip.viz._solid import solid_components as solid_components
from jaxgrip.viz._solid import solid_series as solid_series
from jaxgrip.viz.style import pace as pace
from jaxgrip.viz.style import readable as readable
