"""Claims of the paper and their verdicts, wherever they are judged: on features (§4.3) or on accuracies (§4.1-4.2).

A claim compares a number with *controls*: what the same measure gives where the claim should be false. It gets two
verdicts, which are kept apart.

*For these weights*: the number beats every control on resampled test images. ``p`` of a control is the one-sided
p-value of "not beaten". The claim needs all of its controls, so its own p-value is the largest of theirs: an
intersection-union test, which needs no correction for the number of controls. The claim fails if some control beats
it; "some" does need a correction, so the p-value against the claim is the smallest one times the number of controls.

*For the method*: the same tests over trained seeds instead of images. With fewer than `SEEDS` seeds the verdict is
"unclear".

Several claims are judged at once, so `corrected` applies Holm's method across the claims, separately to the p-values
for and against them, and separately to the two kinds of verdict.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from tembed.lab.claims.statistics import LEVEL, at_least, combined_error, detectable_gap, holm, one_sided

Verdict = Literal["holds", "does not hold", "unclear", "not measured"]

SEEDS = 3
"""Fewest trained seeds for a verdict on the method."""


@dataclass(frozen=True)
class Measure:
    """A number with its 95 % interval, or without one where none was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        text = f"{self.value:.3f}"
        return text if self.low is None else f"{text} [{self.low:.3f}, {self.high:.3f}]"

    def signed(self) -> str:
        """The same for a difference."""
        text = f"{self.value:+.3f}"
        return text if self.low is None else f"{text} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True)
class Control:
    """What the measure of a claim gives where the claim should be false.

    ``difference``: how far the claim's number is ahead; positive supports the claim. ``p``: one-sided p-value of "not
    ahead". ``against``: one-sided p-value of "not behind".
    """

    name: str
    value: Measure
    difference: Measure
    p: float
    against: float

    @property
    def beaten(self) -> bool:
        return self.p < LEVEL


@dataclass(frozen=True)
class Judgement:
    """A verdict and its reason in one line. ``p`` and ``against`` are None if it does not rest on a test."""

    verdict: Verdict
    why: str
    p: float | None = None
    against: float | None = None


NOT_JUDGED = Judgement("not measured", "it has no controls")
NO_SEEDS = Judgement("not measured", "it was not compared over trained seeds")


@dataclass(frozen=True)
class Claim:
    """``paper``: what the paper says. ``definition``: how ``value`` is measured. ``notes``: numbers without influence.

    ``less``: the claim is that ``value`` is smaller than the controls, not larger.
    """

    name: str
    paper: str
    definition: str
    value: Measure | None = None
    controls: tuple[Control, ...] = ()
    weights: Judgement = NOT_JUDGED
    method: Judgement = NO_SEEDS
    less: bool = False
    notes: dict[str, Measure] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The claim as JSON values."""
        found = asdict(self)
        for shown, control in zip(found["controls"], self.controls, strict=True):
            shown["beaten"] = control.beaten
        return found


def not_measured(name: str, paper: str, why: str) -> Claim:
    """A claim that this run or this dataset cannot decide."""
    missing = Judgement("not measured", why)
    return Claim(name, paper, "", weights=missing, method=missing)


# --- for these weights


def beats(controls: Sequence[Control]) -> Judgement:
    """The verdict for these weights, before `corrected`: the claim's number must be ahead of every control."""
    p, against = max(control.p for control in controls), at_least([control.against for control in controls], 1)
    verdict = decide(p, against)
    if verdict == "does not hold":
        how, shown = "behind", min(controls, key=lambda control: control.against)
    else:
        shown = max(controls, key=lambda control: (control.p, -control.difference.value))
        all_of_them = "its only control" if len(controls) == 1 else f"all {len(controls)} controls; least surely of"
        how = f"ahead of {all_of_them}" if verdict == "holds" else "not clearly ahead of"
    return Judgement(verdict, f"{how}: {shown.name}, {shown.difference.signed()}", p, against)


def decide(p: float, against: float) -> Verdict:
    """The verdict that follows from the p-values for and against a claim."""
    return "holds" if p < LEVEL else "does not hold" if against < LEVEL else "unclear"


# --- for the method


@dataclass(frozen=True)
class Seeds:
    """The claim's number over trained seeds, ``ours``, and a control's, ``theirs``.

    ``paired``: the control belongs to the same trainings, such as the block's input. Otherwise it is another network
    with its own trainings, and the numbers of seeds may differ. ``worst``: the claim counts as behind only if it
    is worse than these numbers; between them and ``theirs`` it is neither ahead nor behind.
    """

    control: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    paired: bool = True
    worst: tuple[float, ...] | None = None

    @property
    def n(self) -> int:
        return min(len(self.ours), len(self.theirs))

    @property
    def gap(self) -> float:
        return statistics.fmean(self.ours) - statistics.fmean(self.theirs)

    def error(self) -> tuple[float, float]:
        """Standard error of the gap and its degrees of freedom: of paired differences, or Welch's."""
        if self.paired:
            apart = [a - b for a, b in zip(self.ours, self.theirs, strict=True)]
            return statistics.stdev(apart) / math.sqrt(len(apart)), len(apart) - 1
        both = (self.ours, self.theirs)
        return combined_error([(statistics.variance(values) / len(values), len(values) - 1) for values in both])

    def tails(self, *, less: bool = False) -> tuple[float, float]:
        """The p-values of "not ahead of the control" and of "not behind it"."""
        p, against = one_sided(-self.gap if less else self.gap, *self.error())
        if self.worst is not None:
            against = replace(self, theirs=self.worst, worst=None).tails(less=less)[1]
        return p, against


def over_seeds(comparisons: Sequence[Seeds], *, less: bool = False) -> Judgement:
    """The verdict for the method, before `corrected`: over seeds, the claim's number must be ahead of every control."""
    n = min(one.n for one in comparisons)
    if n < SEEDS:
        return Judgement("unclear", _too_few(comparisons, n))
    gaps = [-one.gap if less else one.gap for one in comparisons]
    tails = [one.tails(less=less) for one in comparisons]
    p, against = max(tail for tail, _ in tails), at_least([tail for _, tail in tails], 1)
    verdict = decide(p, against)
    hows = {"holds": "ahead of all controls; least surely of", "does not hold": "behind"}
    how = hows.get(verdict, "not clearly ahead of")
    if verdict == "does not hold":
        shown = min(range(len(tails)), key=lambda i: tails[i][1])
    else:
        shown = max(range(len(tails)), key=lambda i: tails[i][0])
    return Judgement(verdict, f"n = {n}; {how}: {comparisons[shown].control}, {gaps[shown]:+.3f}", p, against)


def _too_few(comparisons: Sequence[Seeds], n: int) -> str:
    """Why there is no verdict, with the smallest gap that this many seeds could detect."""
    if n < 2:
        unpaired = SEEDS if any(not one.paired for one in comparisons) else None
        least = detectable_gap(1.0, SEEDS, unpaired)
        return (
            f"n = {n}, which shows no spread and so detects no gap; n = {SEEDS} could detect one of {least:.1f} "
            "standard deviations between seeds"
        )
    least = max(
        detectable_gap(error * math.sqrt(one.n), one.n, freedom=freedom)
        for one in comparisons
        for error, freedom in (one.error(),)
    )
    return f"n = {n}, and {SEEDS} are needed; the smallest gap that n = {n} could detect is {least:.2g}"


# --- several claims at once


def corrected(claims: Sequence[Claim]) -> list[Claim]:
    """The claims with verdicts that are corrected across all of them.

    A claim without a verdict for these weights gets one from its controls. Judgements without p-values stay as they
    are.
    """
    judged = [
        replace(claim, weights=beats(claim.controls)) if claim.weights == NOT_JUDGED and claim.controls else claim
        for claim in claims
    ]
    weights = _corrected([claim.weights for claim in judged])
    method = _corrected([claim.method for claim in judged])
    return [replace(claim, weights=w, method=m) for claim, w, m in zip(judged, weights, method, strict=True)]


def _corrected(judgements: list[Judgement]) -> list[Judgement]:
    ps = [one.p for one in judgements if one.p is not None]
    againsts = [one.against for one in judgements if one.against is not None]
    tests = zip(holm(ps), holm(againsts), strict=True)
    return [one if one.p is None else _redecided(one, *next(tests), len(ps)) for one in judgements]


def _redecided(old: Judgement, p: float, against: float, claims: int) -> Judgement:
    verdict = decide(p, against)
    why = old.why
    if verdict != old.verdict:
        why += f" (taken alone: {old.verdict}; corrected for {claims} claims, p = {p:.2g} and {against:.2g} against)"
    return Judgement(verdict, why, p, against)
