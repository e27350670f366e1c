"""The claims of §4.2, checked on a table of accuracies: the paper's own, or the measured cells of a regime."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tembed.experiments.report.statistics import Difference, Sample, contrast
from tembed.paper import ACCURACY, CLAIMS, DATASETS, Comparison, PaperClaim

LEVEL = 0.05
TIE = 1e-6
"""Sums of accuracies that differ by less than this count as equal; the paper prints two decimals."""

Accuracies = Mapping[tuple[str, str], Sample]
"""The accuracies by network and dataset."""


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison on one dataset. ``difference`` is None if a network was not measured."""

    comparison: Comparison
    data: str
    difference: Difference | None

    @property
    def holds(self) -> bool:
        return self.difference is not None and self.difference.value > TIE


@dataclass(frozen=True)
class ClaimResult:
    """A claim of the paper, and the results of its comparisons."""

    claim: PaperClaim
    results: tuple[ComparisonResult, ...]

    @property
    def made(self) -> list[ComparisonResult]:
        """The comparisons whose networks were all measured."""
        return [one for one in self.results if one.difference is not None]

    def verdict(self) -> str:
        """``holds``: in every comparison; ``mostly holds``: in more than half; ``so far``: some are missing."""
        made, right = len(self.made), sum(one.holds for one in self.made)
        if not made:
            return "cannot be judged"
        word = "holds" if right == made else "mostly holds" if 2 * right > made else "does not hold"
        return word if made == len(self.results) else f"{word} so far"

    def agreement(self) -> str:
        """How many comparisons hold, and how many are missing."""
        made, missing = len(self.made), len(self.results) - len(self.made)
        text = f"{sum(one.holds for one in self.made)} of {made} comparisons"
        return f"{text}, {missing} missing" if missing else text

    def significance(self) -> str:
        """How many of the differences are significant, in either direction."""
        differences = [one.difference for one in self.made if one.difference is not None]
        if not differences:
            return "-"
        tested = [difference for difference in differences if difference.p is not None]
        if not tested:
            return f"may be chance: a test {differences[0].why_not}"
        significant = [difference for difference in tested if difference.p is not None and difference.p < LEVEL]
        agree = sum(difference.value > TIE for difference in significant)
        return f"{agree} agree and {len(significant) - agree} disagree at p < {LEVEL}, of {len(tested)} tested"


def check_claims(accuracies: Accuracies, datasets: Iterable[str]) -> list[ClaimResult]:
    """All claims on these accuracies."""
    datasets = list(datasets)
    return [
        ClaimResult(claim, tuple(_compare(one, data, accuracies) for data in datasets for one in claim.comparisons))
        for claim in CLAIMS
    ]


def check_paper() -> list[ClaimResult]:
    """All claims on Table 1 as printed."""
    return check_claims({key: Sample((value,)) for key, value in ACCURACY.items()}, DATASETS)


def _compare(comparison: Comparison, data: str, accuracies: Accuracies) -> ComparisonResult:
    if any((model, data) not in accuracies for model in comparison.models):
        return ComparisonResult(comparison, data, None)
    plus, minus = ([accuracies[model, data] for model in models] for models in (comparison.plus, comparison.minus))
    return ComparisonResult(comparison, data, contrast(plus, minus))
