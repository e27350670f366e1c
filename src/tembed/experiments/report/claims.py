"""The claims of §4.2, each judged on a table of accuracies: the paper's own, or the measured cells of a regime."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tembed.experiments.report.statistics import Difference, Sample, contrast
from tembed.paper import CLAIMS, TABLE1, Claim, Comparison

LEVEL = 0.05
TIE = 1e-6
"""Accuracies are printed to 0.01: sums that differ by less than this are equal."""

Values = Mapping[tuple[str, str], Sample]
"""The accuracies by model and dataset."""


@dataclass(frozen=True)
class Judged:
    """A comparison on one dataset; None where a cell is missing."""

    comparison: Comparison
    data: str
    difference: Difference | None

    @property
    def holds(self) -> bool:
        return self.difference is not None and self.difference.value > TIE


@dataclass(frozen=True)
class Verdict:
    """A claim and its comparisons."""

    claim: Claim
    judged: tuple[Judged, ...]

    @property
    def made(self) -> list[Judged]:
        return [one for one in self.judged if one.difference is not None]

    def word(self) -> str:
        """``holds`` means in every comparison, ``mostly holds`` in more than half; ``so far`` if some are missing."""
        made, right = len(self.made), sum(one.holds for one in self.made)
        if not made:
            return "cannot be judged"
        word = "holds" if right == made else "mostly holds" if 2 * right > made else "does not hold"
        return word if made == len(self.judged) else f"{word} so far"

    def count(self) -> str:
        """How many comparisons agree, and how many could not be made."""
        made, missing = len(self.made), len(self.judged) - len(self.made)
        text = f"{sum(one.holds for one in self.made)} of {made} comparisons"
        return f"{text}, {missing} missing" if missing else text

    def chance(self) -> str:
        """What the tests say of the comparisons that were made."""
        tested = [one for one in self.made if one.difference is not None and one.difference.p is not None]
        if not self.made:
            return "-"
        if not tested:
            return f"may be chance: a test {self.made[0].difference.why_not}" if self.made[0].difference else "-"
        sure = [one for one in tested if one.difference and one.difference.p is not None and one.difference.p < LEVEL]
        agree, against = sum(one.holds for one in sure), sum(not one.holds for one in sure)
        return f"{agree} agree and {against} disagree at p < {LEVEL}, of {len(tested)} tested"


def judge(values: Values, datasets: Iterable[str]) -> list[Verdict]:
    """All claims on these accuracies."""
    datasets = list(datasets)
    return [
        Verdict(claim, tuple(_judge(one, data, values) for data in datasets for one in claim.comparisons))
        for claim in CLAIMS
    ]


def judge_paper() -> list[Verdict]:
    """All claims on Table 1 as printed."""
    values = {key: Sample((value,)) for key, value in TABLE1.items()}
    return judge(values, dict.fromkeys(data for _, data in TABLE1))


def _judge(comparison: Comparison, data: str, values: Values) -> Judged:
    if any((model, data) not in values for model in comparison.models):
        return Judged(comparison, data, None)
    plus, minus = ([values[model, data] for model in models] for models in (comparison.plus, comparison.minus))
    return Judged(comparison, data, contrast(plus, minus))
