"""Means, spreads, and how likely a difference is by chance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Sample:
    """The test accuracies of the seeds of a cell, in %."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / self.n

    @property
    def std(self) -> float | None:
        """With n - 1; None for one value."""
        if self.n < 2:
            return None
        return math.sqrt(math.fsum((value - self.mean) ** 2 for value in self.values) / (self.n - 1))


class Difference(NamedTuple):
    """A difference of means, and the two-sided p-value that it is zero; None where n does not allow a test."""

    value: float
    p: float | None
    why_not: str = ""


def contrast(plus: Sequence[Sample], minus: Sequence[Sample]) -> Difference:
    """The sum of some means less the sum of others. For two samples the test is Welch's."""
    difference = math.fsum(s.mean for s in plus) - math.fsum(s.mean for s in minus)
    samples = [*plus, *minus]
    if any(sample.n < 2 for sample in samples):
        return Difference(difference, None, "needs two seeds or more of each")
    parts = [(sample.std or 0.0) ** 2 / sample.n for sample in samples]
    if sum(parts) == 0:
        return Difference(difference, None, "needs seeds that differ")
    freedom = sum(parts) ** 2 / sum(part**2 / (s.n - 1) for part, s in zip(parts, samples, strict=True))
    return Difference(difference, two_sided(difference / math.sqrt(sum(parts)), freedom))


def two_sided(t: float, freedom: float, steps: int = 4096) -> float:
    """P(|T| > |t|) of Student's distribution.

    With ``t = sqrt(freedom) tan(x)`` its density is ``cos(x) ** (freedom - 1)``, which Simpson's rule integrates over
    the part inside ±t; the whole is a ratio of gamma functions.
    """
    end = math.atan(abs(t) / math.sqrt(freedom))
    width = end / steps
    weights = (1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1))
    inside = math.fsum(w * math.cos(i * width) ** (freedom - 1) for i, w in enumerate(weights)) * width / 3
    whole = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    return min(1.0, max(0.0, 1 - inside / whole))


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for their number, by Holm's method."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = highest
    return corrected
