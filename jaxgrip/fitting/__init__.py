"""Identification of parameters from data, with uncertainties."""

from jaxgrip.fitting.bounds import Bound as Bound
from jaxgrip.fitting.bounds import constrain as constrain
from jaxgrip.fitting.bounds import unconstrain as unconstrain
from jaxgrip.fitting.evolution import Search as Search
from jaxgrip.fitting.evolution import differential_evolution as differential_evolution
from jaxgrip.fitting.evolution import mu_plus_lambda as mu_plus_lambda
from jaxgrip.fitting.fisher import Direction as Direction
from jaxgrip.fitting.fisher import Uncertainty as Uncertainty
from jaxgrip.fitting.fisher import information as information
from jaxgrip.fitting.fisher import uncertainty as uncertainty
from jaxgrip.fitting.fit import RESULTS as RESULTS
from jaxgrip.fitting.fit import Fit as Fit
from jaxgrip.fitting.fit import Starts as Starts
from jaxgrip.fitting.fit import fit as fit
from jaxgrip.fitting.fit import maximize_likelihood as maximize_likelihood
from jaxgrip.fitting.series import read_series as read_series
