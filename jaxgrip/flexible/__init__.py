"""Trees with elastic bodies, joints and deformations solved together."""

from jaxgrip.flexible._dynamics import forward_dynamics as forward_dynamics
from jaxgrip.flexible._dynamics import inverse_dynamics as inverse_dynamics
from jaxgrip.flexible._dynamics import mass_matrix as mass_matrix
from jaxgrip.flexible._dynamics import quasi_static as quasi_static
from jaxgrip.flexible._energy import dissipated_power as dissipated_power
from jaxgrip.flexible._energy import kinetic_energy as kinetic_energy
from jaxgrip.flexible._energy import momentum as momentum
from jaxgrip.flexible._energy import potential_energy as potential_energy
from jaxgrip.flexible._kinematics import displacement as displacement
from jaxgrip.flexible._kinematics import forward_kinematics as forward_kinematics
from jaxgrip.flexible._kinematics import tip_position as tip_position
from jaxgrip.flexible._link import ElasticLink as ElasticLink
from jaxgrip.flexible._link import Interface as Interface
from jaxgrip.flexible._link import Stiffening as Stiffening
from jaxgrip.flexible._link import elastic_link as elastic_link
from jaxgrip.flexible._one_way import JointMotion as JointMotion
from jaxgrip.flexible._one_way import LinkMotion as LinkMotion
from jaxgrip.flexible._one_way import link_load as link_load
from jaxgrip.flexible._shapes import shapes as shapes
from jaxgrip.flexible._simulation import Motion as Motion
from jaxgrip.flexible._simulation import simulate as simulate
from jaxgrip.flexible._tree import FlexibleTree as FlexibleTree
from jaxgrip.flexible._tree import with_link_inertia as with_link_inertia
