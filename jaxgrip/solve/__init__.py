"""Solvers that are independent of mechanisms: small dense systems in batches."""

from jaxgrip.solve import dense as dense
