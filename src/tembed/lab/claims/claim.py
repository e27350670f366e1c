"""Claims of the paper and their verdicts, wherever they are judged: on features (§4.3) or on accuracies (§4.1-4.2).

A claim is one part of one sentence of the paper. It compares a number with *controls*: what the same measure gives
where the claim should be false. It gets two verdicts, which are kept apart. Controls that are only *shown* take no part
in them, and some claims get no verdict at all.

*For these weights*: the number beats every control on resampled test images. ``p`` of a control is the one-sided
p-value of "not beaten". The claim needs all of its controls, so its own p-value is the largest of theirs: an
intersection-union test, which needs no correction for the number of controls. The claim fails if some control beats
it; "some" does need a correction, so the p-value against the claim is the smallest one times the number of controls.

*For the method*: the same tests over trained seeds instead of images. With fewer than `SEEDS` seeds the verdict is
"unclear".

A sentence that can be read in several ways has several numbers. The claim holds if it holds in every reading, and does
not hold if it fails in every reading.

Several claims are judged at once, so `corrected` applies Holm's method across the claims, separately to the p-values
for and against them, and separately to the two kinds of verdict.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from tembed.common.errors import TembedError
from tembed.lab.claims.statistics import LEVEL, at_least, combined_error, detectable_gap, holm, one_sided

Verdict = Literal["holds", "does not hold", "unclear", "no verdict", "not measured"]
Part = Literal["descriptive", "mechanistic", "not before"]
"""What a part of a sentence says: that something is so, what causes it, or that it is not so before the block."""

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
class Seeds:
    """The claim's number over trained seeds, ``ours``, and a control's, ``theirs``.

    ``paired``: the control belongs to the same trainings, such as the block's input. Otherwise it is another network
    with its own trainings, and the numbers of seeds may differ.
    """

    control: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    paired: bool = True

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

    def tails(self) -> tuple[float, float]:
        """The p-values of "not ahead of the control" and of "not behind it"."""
        return one_sided(self.gap, *self.error())


@dataclass(frozen=True)
class Control:
    """What the measure of a claim gives where the claim should be false.

    ``difference``: how far the claim's number is ahead; positive supports the claim. ``p``: one-sided p-value of "not
    ahead". ``against``: one-sided p-value of "not behind". ``seeds``: the same over trained seeds. ``reading``: which
    number of the claim it is compared with, if the sentence can be read in several ways.
    """

    name: str
    value: Measure
    difference: Measure
    p: float
    against: float
    seeds: Seeds | None = None
    reading: str = ""

    @property
    def title(self) -> str:
        """Its name, with the reading if there are several."""
        return f"{self.name}, {self.reading}" if self.reading else self.name

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

    ``sentence``: the key of the paper's sentence, "" for a claim that is not the paper's. ``part``: which part of it
    this is. ``shown``: controls without influence. ``undefined``: the names of controls that are undefined on these
    images. ``not_given``: those of whose kind no network was given. ``over_seeds``: the claim's number for each seed.
    ``refuted``: for each seed, a reason why the claim fails whatever its number.
    """

    name: str
    paper: str
    definition: str
    value: Measure | None = None
    controls: tuple[Control, ...] = ()
    weights: Judgement = NOT_JUDGED
    method: Judgement = NO_SEEDS
    notes: dict[str, Measure] = field(default_factory=dict)
    sentence: str = ""
    part: Part = "descriptive"
    shown: tuple[Control, ...] = ()
    undefined: tuple[str, ...] = ()
    not_given: tuple[str, ...] = ()
    over_seeds: tuple[float, ...] = ()
    refuted: tuple[str | None, ...] = ()

    @property
    def was_measured(self) -> bool:
        return self.weights.verdict != "not measured"

    def to_json(self) -> dict[str, Any]:
        """The claim as JSON values."""
        found = asdict(self)
        for key in ("controls", "shown"):
            for entry, control in zip(found[key], getattr(self, key), strict=True):
                entry["beaten"] = control.beaten
        return found


def read_claim(found: Mapping[str, Any]) -> Claim:
    """A claim from an entry of ``claims.json``. Entries of earlier versions have no sentence and no seeds."""
    known = {one.name: found[one.name] for one in fields(Claim) if one.name in found}
    for key in ("controls", "shown"):
        known[key] = tuple(_read_control(one) for one in found.get(key, ()))
    known |= {key: Judgement(**found[key]) for key in ("weights", "method")}
    known["value"] = None if found["value"] is None else Measure(**found["value"])
    known["notes"] = {name: Measure(**one) for name, one in found["notes"].items()}
    known |= {key: tuple(found.get(key, ())) for key in ("undefined", "not_given", "over_seeds", "refuted")}
    return Claim(**known)


def _read_control(found: Mapping[str, Any]) -> Control:
    seeds = found.get("seeds")
    if seeds is not None:
        seeds = Seeds(**seeds | {key: tuple(seeds[key]) for key in ("ours", "theirs")})
    known = {key: Measure(**found[key]) for key in ("value", "difference")} | {"seeds": seeds}
    return Control(**{one.name: found[one.name] for one in fields(Control) if one.name in found} | known)


def not_measured(name: str, paper: str, why: str) -> Claim:
    """A claim that this run or this dataset cannot decide."""
    return without_verdict(Claim(name, paper, ""), "not measured", why)


def without_verdict(claim: Claim, verdict: Verdict, why: str) -> Claim:
    return replace(claim, weights=Judgement(verdict, why), method=Judgement(verdict, why))


# --- both verdicts


def with_verdicts(claim: Claim) -> Claim:
    """The claim with both verdicts, before `corrected`. They follow from its controls and ``refuted``."""
    readings = dict.fromkeys(control.reading for control in claim.controls)
    groups = {reading: [one for one in claim.controls if one.reading == reading] for reading in readings}
    weights = _in_all({reading: beats(controls) for reading, controls in groups.items()})
    seeds = {reading: [one.seeds for one in controls if one.seeds] for reading, controls in groups.items()}
    method = _in_all({reading: over_seeds(found) for reading, found in seeds.items()})
    if claim.undefined:
        weights, method = (_with_undefined(one, claim.undefined) for one in (weights, method))
    if claim.refuted and claim.refuted[0]:
        weights = Judgement("does not hold", claim.refuted[0])
    reasons = [reason for reason in claim.refuted if reason]
    if reasons and method.verdict == "holds":
        method = Judgement("does not hold", f"in {len(reasons)} of {len(claim.refuted)} seeds, {reasons[0]}")
    if claim.not_given:
        note = f"; not compared with {', '.join(claim.not_given)}, which were not given"
        weights, method = (replace(one, why=one.why + note) for one in (weights, method))
    return replace(claim, weights=weights, method=method)


def _in_all(readings: Mapping[str, Judgement]) -> Judgement:
    """The judgement of a claim from those of its readings: it needs all of them, and fails if all of them fail."""
    first, *more = readings.values()
    if not more or first.p is None:
        return first
    p, against = (max(getattr(one, key) for one in readings.values()) for key in ("p", "against"))
    return Judgement(decide(p, against), "; ".join(f"{name}: {one.why}" for name, one in readings.items()), p, against)


def _with_undefined(judgement: Judgement, lost: Sequence[str]) -> Judgement:
    """The same judgement, but a claim that is ahead of the other controls is unclear."""
    if judgement.verdict != "holds":
        return replace(judgement, p=None if judgement.p is None else 1.0)
    return Judgement("unclear", f"undefined on these images: {', '.join(lost)}", 1.0, judgement.against)


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


def over_seeds(comparisons: Sequence[Seeds]) -> Judgement:
    """The verdict for the method, before `corrected`: over seeds, the claim's number must be ahead of every control."""
    n = min(one.n for one in comparisons)
    if n < SEEDS:
        return Judgement("unclear", _too_few(comparisons, n))
    tails = [one.tails() for one in comparisons]
    p, against = max(tail for tail, _ in tails), at_least([tail for _, tail in tails], 1)
    verdict = decide(p, against)
    hows = {"holds": "ahead of all controls; least surely of", "does not hold": "behind"}
    how = hows.get(verdict, "not clearly ahead of")
    if verdict == "does not hold":
        shown = min(range(len(tails)), key=lambda i: tails[i][1])
    else:
        shown = max(range(len(tails)), key=lambda i: tails[i][0])
    return Judgement(
        verdict, f"n = {n}; {how}: {comparisons[shown].control}, {comparisons[shown].gap:+.3f}", p, against
    )


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
    """The claims with verdicts that are corrected across all of them. Judgements without p-values stay as they are."""
    weights = _corrected([claim.weights for claim in claims])
    method = _corrected([claim.method for claim in claims])
    return [replace(claim, weights=w, method=m) for claim, w, m in zip(claims, weights, method, strict=True)]


def recomputed(record: Mapping[str, Any]) -> list[Claim]:
    """The claims of a ``claims.json`` with verdicts that are computed again from the numbers in the file."""
    claims = [read_claim(one) for one in record["claims"]]
    if any(control.seeds is None for claim in claims for control in claim.controls):
        raise TembedError("these claims were written without the numbers of each seed: analyse the runs again")
    return corrected([with_verdicts(claim) if claim.controls else claim for claim in claims])


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
