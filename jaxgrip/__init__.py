"""Differentiable, batched simulation and certified optimal control of mechanisms."""

from jaxgrip.precision import enable_x64 as enable_x64
