"""Solvers that are independent of mechanisms: small dense systems in batches, Newton's method."""

from jaxgrip.solve import dense as dense
