"""Pictures of results: signals, certificates, mechanisms and elastic bodies in space, animation."""

from jaxgrip.viz.curves import Curve as Curve
from jaxgrip.viz.curves import Panel as Panel
from jaxgrip.viz.curves import curves as curves
from jaxgrip.viz.frame import animate_frame as animate_frame
from jaxgrip.viz.frame import frame as frame
from jaxgrip.viz.linkage import animate_linkage as animate_linkage
from jaxgrip.viz.linkage import linkage as linkage
from jaxgrip.viz.mechanism import Animation as Animation
from jaxgrip.viz.mechanism import animate as animate
from jaxgrip.viz.mechanism import stroboscope as stroboscope
from jaxgrip.viz.proof import certificate as certificate
from jaxgrip.viz.proof import checks as checks
from jaxgrip.viz.sampling import refine as refine
from jaxgrip.viz.signals import controls as controls
from jaxgrip.viz.signals import hamiltonian as hamiltonian
from jaxgrip.viz.signals import lines as lines
from jaxgrip.viz.signals import multipliers as multipliers
from jaxgrip.viz.solid import animate_solid as animate_solid
from jaxgrip.viz.solid import solid as solid
from jaxgrip.viz.solid import solid_components as solid_components
from jaxgrip.viz.solid import solid_series as solid_series
from jaxgrip.viz.style import pace as pace
from jaxgrip.viz.style import readable as readable
