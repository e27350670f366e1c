"""Soft maximizers: ways to pick the best matching kernels at each pixel, or none (paper §3.1-3.2).

=========== ======== =====================================================================
`one_hot`   P1       the best match, if it exceeds ``mu``; its gradient is zero
`perturbed` P2       its expectation under Gaussian noise, exact or by the paper's sampling
`entropic`  P3       margin-augmented soft-max
`BNReLU`    §3.2     what networks usually have: an approximation of P1
=========== ======== =====================================================================

Each file registers its maximizer under a name, with its constants: see `register`, `names`, `constants` and `create`.
"""

from tembed.maximizers.bn_relu import BNReLU, implied_margin
from tembed.maximizers.calibrate import Calibration, calibrate
from tembed.maximizers.entropic import Entropic, entropic
from tembed.maximizers.lookup import constants, create, names, register
from tembed.maximizers.one_hot import OneHot, one_hot
from tembed.maximizers.perturbed import Perturbed, perturbed
from tembed.paper import EPS, ETA, MU

__all__ = [
    "EPS",
    "ETA",
    "MU",
    "BNReLU",
    "Calibration",
    "Entropic",
    "OneHot",
    "Perturbed",
    "calibrate",
    "constants",
    "create",
    "entropic",
    "implied_margin",
    "names",
    "one_hot",
    "perturbed",
    "register",
]
