from jaxgrip.mechanism.compiled import Compiled as Compiled
from jaxgrip.mechanism.compiled import compiled as compiled
from jaxgrip.mechanism.motion import Motion as Motion
from jaxgrip.mechanism.motion import simulate as simulate
from jaxgrip.mechanism.robots import read_system as read_system
from jaxgrip.mechanism.robots import system_of as system_of
