from jaxgrip.assembly.system import Connection as Connection
from jaxgrip.assembly.system import Part as Part
