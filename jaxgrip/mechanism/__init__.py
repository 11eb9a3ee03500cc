from jaxgrip.mechanism.compiled import Compiled as Compiled
from jaxgrip.mechanism.compiled import compiled as compiled
from jaxgrip.mechanism.motion import Motion as Motion
from jaxgrip.mechanism.motion import simulate as simulate
