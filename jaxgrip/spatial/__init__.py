from jaxgrip.spatial import dual_quaternions as dual_quaternions
from jaxgrip.spatial._rotations import aligning_z as aligning_z
from jaxgrip.spatial._rotations import axis_angle as axis_angle
from jaxgrip.spatial._rotations import rotation_x as rotation_x
from jaxgrip.spatial._rotations import rotation_z as rotation_z
from jaxgrip.spatial._rotations import skew as skew
