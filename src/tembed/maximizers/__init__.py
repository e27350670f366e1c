"""Soft maximizers: ways to pick the best matching kernels at each pixel, or none (paper §3.1-3.2).

========== ======== ====================================================================
`one_hot`   P1      the best match, if it exceeds ``mu``; no gradient
`perturbed` P2      its expectation under Gaussian noise, exact or by the paper's sampling
`entropic`  P3      margin-augmented soft-max
`BNReLU`    §3.2    what networks usually have: an approximation of P1
========== ======== ====================================================================
"""

from collections.abc import Callable

from torch import nn

from tembed.errors import TembedError
from tembed.maximizers.bn_relu import BNReLU, implied_margin
from tembed.maximizers.calibrate import Calibration, calibrate
from tembed.maximizers.entropic import Entropic, entropic
from tembed.maximizers.margin import EPS, ETA, MU
from tembed.maximizers.one_hot import OneHot, one_hot
from tembed.maximizers.perturbed import Perturbed, perturbed

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
    "create",
    "entropic",
    "implied_margin",
    "one_hot",
    "perturbed",
]

_BY_NAME: dict[str, Callable[[int, float, float, float], nn.Module]] = {
    "bn-relu": lambda channels, mu, eta, eps: BNReLU(channels),
    "entropic": lambda channels, mu, eta, eps: Entropic(mu, eta, eps),
    "perturbed": lambda channels, mu, eta, eps: Perturbed(mu, eta, eps),
    "perturbed-sampled": lambda channels, mu, eta, eps: Perturbed(mu, eta, eps, method="sample"),
    "one-hot": lambda channels, mu, eta, eps: OneHot(mu, eta),
}


def create(name: str, channels: int, *, mu: float = MU, eta: float = ETA, eps: float = EPS) -> nn.Module:
    """A maximizer over ``channels`` kernels by name. BN-ReLU has margins and a scale of its own, and no constants."""
    if name not in _BY_NAME:
        raise TembedError(f"unknown maximizer {name!r}; there are: {', '.join(_BY_NAME)}")
    return _BY_NAME[name](channels, mu, eta, eps)
