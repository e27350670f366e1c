"""Tests and corrections behind all verdicts: over test images, half-samples and seeds. Distributions are SciPy's.

SciPy has no Satterthwaite error of more than two samples, no power of a t-test, no correction by Holm and no test of
"at least k effects exist"; these are written out here. Tests compare them with SciPy where it has a special case.
"""

import math
from collections.abc import Sequence

import numpy as np

from tembed.common.extras import needs

LEVEL = 0.05
"""Significance level of every verdict, after correction."""
POWER = 0.8
"""How often a test should find the smallest gap that it is said to detect."""


def one_sided(gap: float, error: float, freedom: float) -> tuple[float, float]:
    """The one-sided p-values of a t-test: of "the gap is not positive", and of "it is not negative"."""
    if error == 0:
        return (0.0, 1.0) if gap > 0 else (1.0, 0.0) if gap < 0 else (1.0, 1.0)
    t = needs("scipy.stats").t
    return float(t.sf(gap / error, freedom)), float(t.cdf(gap / error, freedom))


def half_width(error: float, freedom: float) -> float:
    """Half of the width of a 95 % interval."""
    return error * float(needs("scipy.stats").t.ppf(0.975, freedom))


def combined_error(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The standard error of a sum of independent terms, and its degrees of freedom (Welch, Satterthwaite).

    ``parts``: the squared error of each term and its degrees of freedom. Without any error, the degrees of freedom are
    the fewest of the terms.
    """
    total = sum(variance for variance, _ in parts)
    freedom = total**2 / sum(variance**2 / f for variance, f in parts) if total else min(f for _, f in parts)
    return math.sqrt(total), freedom


def detectable_gap(spread: float, n: int, m: int | None = None, *, freedom: float | None = None) -> float:
    """The smallest gap that a one-sided t-test at `LEVEL` finds with probability `POWER`.

    ``spread``: the standard deviation between seeds. ``n`` seeds are compared in pairs, or with ``m`` other ones.
    """
    stats, optimize = needs("scipy.stats"), needs("scipy.optimize")
    df = freedom or (n - 1 if m is None else n + m - 2)
    critical = stats.t.ppf(1 - LEVEL, df)
    with np.errstate(divide="ignore"):  # SciPy before 1.14 divides by zero on the way to the right value
        shift = optimize.brentq(lambda shift: stats.nct.sf(critical, df, shift) - POWER, 0, 20 * critical)
    return float(shift * spread * math.sqrt(1 / n if m is None else 1 / n + 1 / m))


def at_least(ps: Sequence[float], needed: int) -> float:
    """The p-value of "fewer than ``needed`` of these effects exist" (Benjamini and Heller 2008).

    ``needed = len(ps)`` gives the largest p-value; ``needed = 1`` gives Bonferroni's.
    """
    return min(1.0, (len(ps) - needed + 1) * sorted(ps)[needed - 1])


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for multiple testing by Holm's method."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    result, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        result[i] = highest
    return result
