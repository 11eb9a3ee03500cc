from jaxgrip.models import crane as crane
from jaxgrip.models import ocp_problems as ocp_problems
from jaxgrip.models.crane import reference_crane as reference_crane
from jaxgrip.models.gripper import Finger as Finger
from jaxgrip.models.gripper import gripper_finger as gripper_finger
from jaxgrip.models.gripper import two_finger_gripper as two_finger_gripper
from jaxgrip.models.servo import servo_ax12 as servo_ax12
from jaxgrip.models.servo import servo_ax12_arm as servo_ax12_arm
