"""The paper's claims about features (§4.3, appendix B) and units (§3.2), measured on an `Analysis`.

Each family of claims is a file that registers its claims, in the order of the report. A claim or a control from outside
the package calls `register_claim` or `register_control` as well.
"""

from importlib import import_module

from tembed.lab.claims.claim import Claim, Measure, recomputed
from tembed.lab.claims.controls import register_control
from tembed.lab.claims.half_samples import measure
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, measure_claims, register_claim

__all__ = [
    "Claim",
    "ClaimSpec",
    "Found",
    "Measure",
    "Subject",
    "measure",
    "measure_claims",
    "recomputed",
    "register_claim",
    "register_control",
]

for _family in ("separation", "look_alikes", "uncertainty", "hull", "mixed_words", "recognised_parts", "soft_argmax"):
    import_module(f"tembed.lab.claims.{_family}")
