"""Finite elements of elastic bodies in their own, accelerated frames."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from jaxgrip.fem._body import Body as Body
from jaxgrip.fem._body import Rayleigh as Rayleigh
from jaxgrip.fem._body import Support as Support
from jaxgrip.fem._dynamics import Load as Load
from jaxgrip.fem._dynamics import Response as Response
from jaxgrip.fem._dynamics import simulate as simulate
from jaxgrip.fem._inertia import FrameMotion as FrameMotion
from jaxgrip.fem._inertia import Inertia as Inertia
from jaxgrip.fem._inertia import inertia as inertia
from jaxgrip.fem._integrators import GeneralizedAlpha as GeneralizedAlpha
from jaxgrip.fem._integrators import Newmark as Newmark
from jaxgrip.fem._line import line_mesh as line_mesh
from jaxgrip.fem._loads import body_force as body_force
from jaxgrip.fem._loads import face_area as face_area
from jaxgrip.fem._loads import gravity as gravity
from jaxgrip.fem._loads import interface_loads as interface_loads
from jaxgrip.fem._loads import point_force as point_force
from jaxgrip.fem._loads import pressure as pressure
from jaxgrip.fem._loads import tip_wrench as tip_wrench
from jaxgrip.fem._loads import traction as traction
from jaxgrip.fem._matrices import apply_stiffness as apply_stiffness
from jaxgrip.fem._matrices import geometric_stiffness as geometric_stiffness
from jaxgrip.fem._matrices import mass as mass
from jaxgrip.fem._matrices import stiffness as stiffness
from jaxgrip.fem._mesh import Mesh as Mesh
from jaxgrip.fem._mesh import mesh as mesh
from jaxgrip.fem._mesh_file import read_mesh as read_mesh
from jaxgrip.fem._mesh_file import write_vtu as write_vtu
from jaxgrip.fem._mesh_file import write_vtu_series as write_vtu_series
from jaxgrip.fem._modes import Modes as Modes
from jaxgrip.fem._modes import frequencies as frequencies
from jaxgrip.fem._modes import modes as modes
from jaxgrip.fem._modes import rayleigh_ritz as rayleigh_ritz
from jaxgrip.fem._rotating import rotating_equilibrium as rotating_equilibrium
from jaxgrip.fem._rotating import rotating_frequencies as rotating_frequencies
from jaxgrip.fem._section_forces import section_forces as section_forces
from jaxgrip.fem._sparse import NodeMatrix as NodeMatrix
from jaxgrip.fem._stress import Peak as Peak
from jaxgrip.fem._stress import at_nodes as at_nodes
from jaxgrip.fem._stress import peak as peak
from jaxgrip.fem._stress import principal_stresses as principal_stresses
from jaxgrip.fem._stress import safety_factor as safety_factor
from jaxgrip.fem._stress import smooth_maximum as smooth_maximum
from jaxgrip.fem._stress import strain as strain
from jaxgrip.fem._stress import stress as stress
from jaxgrip.fem._stress import von_mises as von_mises
from jaxgrip.fem._structured import box_mesh as box_mesh
from jaxgrip.fem._structured import cylinder_mesh as cylinder_mesh
from jaxgrip.fem.elements import EulerBernoulli as EulerBernoulli
from jaxgrip.fem.elements import Hex8 as Hex8
from jaxgrip.fem.elements import Hex8BBar as Hex8BBar
from jaxgrip.fem.elements import Hex8Incompatible as Hex8Incompatible
from jaxgrip.fem.elements import Hex27 as Hex27
from jaxgrip.fem.elements import Tet4 as Tet4
from jaxgrip.fem.elements import Tet10 as Tet10
from jaxgrip.fem.elements import Timoshenko as Timoshenko
from jaxgrip.fem.material import Isotropic as Isotropic
from jaxgrip.fem.reduction import Reduced as Reduced
from jaxgrip.fem.reduction import craig_bampton as craig_bampton
from jaxgrip.fem.reduction import reduce as reduce
from jaxgrip.fem.section import BeamSection as BeamSection
from jaxgrip.fem.static import solve_static as solve_static

if TYPE_CHECKING:
    from jaxgrip.fem import structures as structures


def __getattr__(name: str) -> ModuleType:
    # Imported when first used: it needs `mechanism`, whose import takes a third of a second.
    if name == "structures":
        return importlib.import_module("jaxgrip.fem.structures")
    raise AttributeError(f"module 'jaxgrip.fem' has no attribute {name!r}")
