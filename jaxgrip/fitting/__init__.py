"""Identification of parameters from data, with uncertainties."""

from jaxgrip.fitting._bounds import Bound as Bound
from jaxgrip.fitting._bounds import constrain as constrain
from jaxgrip.fitting._bounds import unconstrain as unconstrain
from jaxgrip.fitting._evolution import Search as Search
from jaxgrip.fitting._evolution import differential_evolution as differential_evolution
from jaxgrip.fitting._evolution import mu_plus_lambda as mu_plus_lambda
from jaxgrip.fitting._fisher import Direction as Direction
from jaxgrip.fitting._fisher import Uncertainty as Uncertainty
from jaxgrip.fitting._fisher import information as information
from jaxgrip.fitting._fisher import uncertainty as uncertainty
from jaxgrip.fitting._fit import RESULTS as RESULTS
from jaxgrip.fitting._fit import Fit as Fit
from jaxgrip.fitting._fit import Starts as Starts
from jaxgrip.fitting._fit import fit as fit
from jaxgrip.fitting._fit import maximize_likelihood as maximize_likelihood
from jaxgrip.fitting._intervals import Interval as Interval
from jaxgrip.fitting._intervals import Intervals as Intervals
from jaxgrip.fitting._intervals import intervals as intervals
from jaxgrip.fitting._series import read_series as read_series
