from jaxgrip.mechanism.historical import planar as planar
from jaxgrip.mechanism.historical import rod as rod
from jaxgrip.mechanism.historical import source_scheme as source_scheme
