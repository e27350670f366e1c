"""Means, spreads, and tests of differences between the accuracies of several seeds."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tembed.extras import needs


@dataclass(frozen=True)
class Sample:
    """The test accuracies of a cell's seeds, in %."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation with n - 1; None for a single value."""
        return statistics.stdev(self.values) if self.n > 1 else None


class Difference(NamedTuple):
    """A difference of means, and the two-sided p-value of the hypothesis that it is zero.

    ``p`` is None where the samples do not allow a test; ``why_not`` then says what a test needs.
    """

    value: float
    p: float | None
    why_not: str = ""


def contrast(plus: Sequence[Sample], minus: Sequence[Sample]) -> Difference:
    """The summed means of ``plus`` minus those of ``minus``, tested without the assumption of equal variances.

    For two samples this is Welch's t-test; for more, the degrees of freedom follow Satterthwaite in the same way.
    """
    difference = math.fsum(s.mean for s in plus) - math.fsum(s.mean for s in minus)
    samples = [*plus, *minus]
    if any(sample.n < 2 for sample in samples):
        return Difference(difference, None, "needs two or more seeds of each network")
    variances = [(sample.std or 0.0) ** 2 / sample.n for sample in samples]
    total = sum(variances)
    if total == 0:
        return Difference(difference, None, "needs seeds with different results")
    freedom = total**2 / sum(v**2 / (sample.n - 1) for v, sample in zip(variances, samples, strict=True))
    p = 2 * needs("scipy.stats").t.sf(abs(difference) / math.sqrt(total), freedom)
    return Difference(difference, float(p))


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for multiple testing by Holm's method, which SciPy does not have."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = highest
    return corrected
