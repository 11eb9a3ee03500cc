"""Trees with elastic bodies, joints and deformations solved together."""

from jaxgrip.flexible.dynamics import forward_dynamics as forward_dynamics
from jaxgrip.flexible.dynamics import inverse_dynamics as inverse_dynamics
from jaxgrip.flexible.dynamics import mass_matrix as mass_matrix
from jaxgrip.flexible.dynamics import quasi_static as quasi_static
from jaxgrip.flexible.energy import dissipated_power as dissipated_power
from jaxgrip.flexible.energy import kinetic_energy as kinetic_energy
from jaxgrip.flexible.energy import momentum as momentum
from jaxgrip.flexible.energy import potential_energy as potential_energy
from jaxgrip.flexible.kinematics import displacement as displacement
from jaxgrip.flexible.kinematics import forward_kinematics as forward_kinematics
from jaxgrip.flexible.kinematics import tip_position as tip_position
from jaxgrip.flexible.link import ElasticLink as ElasticLink
from jaxgrip.flexible.link import Interface as Interface
from jaxgrip.flexible.link import Stiffening as Stiffening
from jaxgrip.flexible.link import elastic_link as elastic_link
from jaxgrip.flexible.one_way import JointMotion as JointMotion
from jaxgrip.flexible.one_way import LinkMotion as LinkMotion
from jaxgrip.flexible.one_way import link_load as link_load
from jaxgrip.flexible.shapes import shapes as shapes
from jaxgrip.flexible.simulation import Motion as Motion
from jaxgrip.flexible.simulation import simulate as simulate
from jaxgrip.flexible.tree import FlexibleTree as FlexibleTree
from jaxgrip.flexible.tree import with_link_inertia as with_link_inertia
