"""A quick analysis, for tests that ask for its files and not for its numbers."""

import importlib
from pathlib import Path

QUICK = {
    "tembed.lab.analysis.maps.EARLY": 5,
    "tembed.lab.analysis.maps.LATE": 5,
    "tembed.lab.analysis.effective_fields.POSITIONS": 2,
    "tembed.lab.analysis.effective_fields.INSIDES": 3,
    "tembed.lab.analysis.analyzing.WORDS": 5,
    "tembed.lab.analysis.analyzing.COUNT": 2,
    "tembed.lab.analysis.analyzing.MANY": 3,
    "tembed.lab.claims.half_samples.RESAMPLES": 10,
}
"""Shorter maps, and fewer positions, words, untrained networks and half-samples; `quick_analysis` sets them."""
PROGRAM = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
from support.quick import quicken
sys.path.pop()
quicken()
"""
"""The first lines of a program whose analyses are quick."""


def quicken() -> None:
    """Make all analyses of this process quick."""
    for name, value in QUICK.items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
