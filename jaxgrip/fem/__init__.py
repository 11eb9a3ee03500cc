"""Finite elements of elastic bodies in their own, accelerated frames."""

from jaxgrip.fem.body import Body as Body
from jaxgrip.fem.body import Rayleigh as Rayleigh
from jaxgrip.fem.body import Support as Support
from jaxgrip.fem.elements import Hex8 as Hex8
from jaxgrip.fem.inertia import FrameMotion as FrameMotion
from jaxgrip.fem.inertia import Inertia as Inertia
from jaxgrip.fem.inertia import inertia as inertia
from jaxgrip.fem.loads import body_force as body_force
from jaxgrip.fem.loads import face_area as face_area
from jaxgrip.fem.loads import gravity as gravity
from jaxgrip.fem.loads import point_force as point_force
from jaxgrip.fem.loads import pressure as pressure
from jaxgrip.fem.loads import tip_wrench as tip_wrench
from jaxgrip.fem.loads import traction as traction
from jaxgrip.fem.material import Isotropic as Isotropic
from jaxgrip.fem.matrices import apply_stiffness as apply_stiffness
from jaxgrip.fem.matrices import geometric_stiffness as geometric_stiffness
from jaxgrip.fem.matrices import mass as mass
from jaxgrip.fem.matrices import stiffness as stiffness
from jaxgrip.fem.mesh import Mesh as Mesh
from jaxgrip.fem.mesh import mesh as mesh
from jaxgrip.fem.sparse import NodeMatrix as NodeMatrix
from jaxgrip.fem.static import solve_static as solve_static
from jaxgrip.fem.structured import box_mesh as box_mesh
from jaxgrip.fem.structured import cylinder_mesh as cylinder_mesh
