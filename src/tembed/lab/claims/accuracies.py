"""The claims of §4.1 and §4.2, judged on accuracies: the paper's own, or the measured cells of a regime.

A claim gets the two verdicts of `tembed.lab.claims.claim`. *For these weights*: over the choice of test images.
*For the method*: over trained seeds.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tembed.lab.claims.claim import SEEDS, Claim, Judgement, corrected, decide, not_measured
from tembed.lab.claims.contrast import Contrast
from tembed.lab.claims.statistics import at_least, detectable_gap
from tembed.lab.grid.cells import Sample, data_title
from tembed.paper import ACCURACY, CLAIMS, DATASETS, TEST_IMAGES, Comparison

Accuracies = Mapping[tuple[str, str], Sample]
"""The accuracies by network and dataset."""


def judged(text: str, reading: str, contrasts: Sequence[Contrast], *, missing: int = 0, mostly: bool = False) -> Claim:
    """The claim that all contrasts hold, or more than half of them if ``mostly``; ``missing`` counts those not made."""
    if not contrasts:
        return not_measured(text, text, "its networks were not all measured")
    total = len(contrasts) + missing
    needed, reversals = (len(contrasts) // 2 + 1, total - total // 2) if mostly else (len(contrasts), 1)
    weights = _over_images(contrasts, needed, reversals, missing)
    return Claim(text, text, reading, weights=weights, method=_over_seeds(contrasts, needed, reversals))


def _over_images(contrasts: Sequence[Contrast], needed: int, reversals: int, missing: int) -> Judgement:
    p, against = _p_values([one.image_tails() for one in contrasts], needed, reversals)
    right = sum(one.has_the_sign for one in contrasts)
    words = [f"claimed sign in {right} of {len(contrasts)} comparison{'s' if len(contrasts) > 1 else ''}"]
    words += [f"{missing} missing"] if missing else []
    return Judgement(decide(p, against), f"{', '.join(words)}; {_weakest(contrasts)}", p, against)


def _over_seeds(contrasts: Sequence[Contrast], needed: int, reversals: int) -> Judgement:
    n = min(one.n for one in contrasts)
    if n < 2:
        least = detectable_gap(1.0, SEEDS, SEEDS)
        why = (
            f"n = {n}, which shows no spread between seeds and so detects no gap; n = {SEEDS} of each network could "
            f"detect one of {least:.1f} standard deviations"
        )
        return Judgement("unclear", why)
    gaps = [detectable_gap(error, 1, freedom=freedom) for error, freedom in (one.seed_error() for one in contrasts)]
    if not any(gaps):
        return Judgement("unclear", f"n = {n}, and all seeds of a network have the same result, which shows no spread")
    power = f"the smallest gap that n = {n} could detect is {max(gaps):.2f} points"
    if n < SEEDS:
        return Judgement("unclear", f"n = {n}, and {SEEDS} are needed; {power}")
    p, against = _p_values([one.seed_tails() for one in contrasts], needed, reversals)
    return Judgement(decide(p, against), f"n = {n}; p = {p:.2g} for and {against:.2g} against it; {power}", p, against)


def _p_values(tails: Sequence[tuple[float, float]], needed: int, reversals: int) -> tuple[float, float]:
    """For: ``needed`` statements are true. Against: ``reversals`` are reversed, so that the rest is not enough."""
    enough = reversals <= len(tails)
    return (
        at_least([p for p, _ in tails], needed),
        at_least([against for _, against in tails], reversals) if enough else 1.0,
    )


def _weakest(contrasts: Sequence[Contrast]) -> str:
    one = max(contrasts, key=lambda contrast: contrast.image_tails()[0])
    only = "" if len(contrasts) == 1 else "weakest: "
    return f"{only}{one.text}, {one.shown()}"


class Checked(NamedTuple):
    """A claim with its verdicts, and how many of its comparisons were not measured."""

    claim: Claim
    missing: int = 0

    @property
    def was_measured(self) -> bool:
        return self.claim.was_measured

    def text(self, judgement: Judgement) -> str:
        """The verdict; a claim holds ``so far`` if it holds in all measured comparisons and others are missing."""
        so_far = judgement.verdict == "holds" and self.missing
        return f"{judgement.verdict} so far" if so_far else judgement.verdict


def check_claims(accuracies: Accuracies, test_images: Mapping[str, int]) -> list[Checked]:
    """All claims about Table 1 on these accuracies; ``test_images`` names the datasets. Corrected across the claims."""
    found, absent = [], []
    for claim in CLAIMS:
        pairs = [(data, one) for data in test_images for one in claim.comparisons]
        there = [(data, one) for data, one in pairs if all((model, data) in accuracies for model in one.models)]
        made = [_contrast(one, data, accuracies, test_images[data]) for data, one in there]
        absent.append(len(pairs) - len(made))
        found.append(judged(claim.text, claim.reading, made, missing=absent[-1], mostly=claim.mostly))
    return [Checked(claim, missing) for claim, missing in zip(corrected(found), absent, strict=True)]


def check_paper() -> list[Checked]:
    """All claims on Table 1 as printed, with one value for each cell."""
    accuracies = {key: Sample((value,)) for key, value in ACCURACY.items()}
    return check_claims(accuracies, dict.fromkeys(DATASETS, TEST_IMAGES))


def _contrast(comparison: Comparison, data: str, accuracies: Accuracies, test_images: int) -> Contrast:
    plus, minus = (tuple(accuracies[model, data] for model in models) for models in (comparison.plus, comparison.minus))
    return Contrast(f"{comparison.text} on {data_title(data)}", plus, minus, test_images, comparison.on_par)
