"""Differentiable, batched simulation and certified optimal control of mechanisms."""

from jaxgrip import actuators as actuators
from jaxgrip import assembly as assembly
from jaxgrip import fem as fem
from jaxgrip import fitting as fitting
from jaxgrip import flexible as flexible
from jaxgrip import joints as joints
from jaxgrip import models as models
from jaxgrip import ocp as ocp
from jaxgrip import rigid as rigid
from jaxgrip import spatial as spatial
from jaxgrip import structures as structures
from jaxgrip.precision import enable_x64 as enable_x64
