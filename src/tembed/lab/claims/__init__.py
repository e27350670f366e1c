"""The paper's claims about features (§4.3, appendix B), measured on an `Analysis`.

Each family of claims is a file that registers itself. A family from outside the package calls `register_claim` as well.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from tembed.common.errors import TembedError
from tembed.lab.claims.claim import Claim, corrected

if TYPE_CHECKING:
    from tembed.lab.analysis.analyzing import Analysis

Measurement = Callable[["Analysis"], list[Claim]]
"""Reads ``networks``, ``samples``, ``features``, ``words``, ``group_of``, ``dataset``, ``seed`` and more."""

_MEASUREMENTS: dict[str, Measurement] = {}


def register_claim(name: str, measure: Measurement) -> None:
    """Add a family of claims: every later analysis reports what ``measure`` returns."""
    if name in _MEASUREMENTS:
        raise TembedError(f"the claims {name!r} are already registered: choose another name")
    _MEASUREMENTS[name] = measure


def claim_families() -> list[str]:
    """The names of the registered families, in the order of the report."""
    return list(_MEASUREMENTS)


def measure_claims(analysis: "Analysis") -> list[Claim]:
    """The claims of all registered families, with verdicts that are corrected across all of them."""
    return corrected([claim for measure in _MEASUREMENTS.values() for claim in measure(analysis)])


# The built-in families, in the order of the report.
for _family in ("separation", "look_alikes", "uncertainty", "hull", "mixed_words", "recognised_parts", "soft_argmax"):
    import_module(f"tembed.lab.claims.{_family}")
