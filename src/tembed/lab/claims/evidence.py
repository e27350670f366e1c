"""What a claim rests on: its own number and those of its controls, over seeds and half-samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tembed.lab.claims.claim import (
    Claim,
    Control,
    Judgement,
    Measure,
    Seeds,
    beats,
    not_measured,
    over_seeds,
)
from tembed.lab.claims.half_samples import Draws, measure, standard_error
from tembed.lab.claims.statistics import combined_error, half_width, one_sided

QUANTILE = 0.95
"""Of the other groupings or pairs: what the paper's should exceed."""


@dataclass(frozen=True)
class Rival:
    """The numbers of a control. The first seed has all draws; the others only need the value on all images.

    ``seeds``: for each seed, the draws of a random change, or a single one. ``paired``: the control belongs to the same
    trainings as the claim's number, or to none; otherwise it has seeds of its own. ``pooled``: the seeds are random
    networks, which count together like the draws of a random change.
    """

    name: str
    seeds: Sequence[Sequence[Draws]]
    paired: bool = True
    pooled: bool = False

    def control(self, own: Draws, *, less: bool = False) -> Control:
        """The control for these weights."""
        others = [one for draws in self.seeds for one in draws] if self.pooled else self.seeds[0]
        counted = f"{self.name} ({len(others)} {'seeds' if self.pooled else 'draws'})"
        return control(counted if len(others) > 1 else self.name, own, others, less=less)

    def over_seeds(self, ours: tuple[float, ...]) -> Seeds:
        theirs = tuple(float(np.mean([one[0] for one in draws])) for draws in self.seeds)
        return Seeds(self.name, ours, theirs, self.paired)


@dataclass(frozen=True)
class Ranked:
    """All other groupings or pairs, over the seeds of the run: ``(1 + R, G)`` each."""

    name: str
    seeds: Sequence[NDArray[np.float64]]

    def control(self, own: Draws, *, less: bool = False) -> Control:
        return rank_control(self.name, own, self.seeds[0])

    def over_seeds(self, ours: tuple[float, ...]) -> Seeds:
        """Ahead above the 95 % quantile of the others, behind below their 5 % quantile."""
        best, worst = (
            tuple(float(np.quantile(some[0], level)) for some in self.seeds) for level in (QUANTILE, 1 - QUANTILE)
        )
        return Seeds(f"{QUANTILE:.0%} of {self.name}", ours, best, worst=worst)


def control(name: str, own: Draws, others: Sequence[Draws], *, less: bool = False) -> Control:
    """A control that is measured on the same half-samples as the claim.

    Several ``others`` are networks or draws of one kind: could the claim's number be that of another one? They differ
    from each other by more than the choice of images. So the error of the difference has two parts: that of the
    half-samples, and the spread of a further one around the mean of these.
    """
    mean = np.mean(others, axis=0)
    apart = mean - own if less else own - mean
    error, freedom = standard_error(apart)
    value, gap = measure(mean), float(apart[0])
    if not freedom or len(others) < 2:
        p, against = one_sided(gap, error, freedom) if freedom else (1.0, 1.0)
        return Control(name, value, measure(apart), p, against)
    spread = float(np.std([draws[0] for draws in others], ddof=1))
    error, freed = combined_error([(error**2, freedom), (spread**2 * (1 + 1 / len(others)), len(others) - 1)])
    reach, middle = half_width(error, freed), float(mean[0])
    p, against = one_sided(gap, error, freed)
    return Control(
        name, Measure(middle, middle - reach, middle + reach), Measure(gap, gap - reach, gap + reach), p, against
    )


def rank_control(name: str, own: Draws, others: NDArray[np.float64]) -> Control:
    """All other groupings or pairs, ``(1 + R, G)``: the paper's must exceed their `QUANTILE`.

    Its rank would be a p-value too, but not a small one where there are few others. The p-value against the claim is
    that rank: the share of the others that are at least as bad, averaged over the half-samples.
    """
    own, count = own[: len(others)], others.shape[1]
    rank = int((others[0] >= own[0]).sum()) + 1
    found = control(f"{name} (rank {rank} of {count + 1})", own, [np.quantile(others, QUANTILE, axis=1)])
    known = np.isfinite(own) & np.isfinite(others).all(1)
    if not known[0]:
        return found
    as_bad = ((others[known] <= own[known, None]).sum(1) + 1) / (count + 1)
    return replace(found, against=float(as_bad.mean()))


def judge(
    name: str,
    paper: str,
    definition: str,
    own: Sequence[Draws],
    rivals: Sequence[Rival | Ranked],
    *,
    less: bool = False,
    notes: Mapping[str, Measure] | None = None,
) -> Claim:
    """The claim with its controls and both verdicts, before the correction across claims.

    ``own``: the claim's number, over the seeds of the run. The claim cannot hold if one of its controls is undefined on
    these images.
    """
    if not np.isfinite(own[0][0]):
        return not_measured(name, paper, "its number is undefined on these images")
    ours = tuple(float(draws[0]) for draws in own)
    controls = [rival.control(own[0], less=less) for rival in rivals]
    seeds = [rival.over_seeds(ours) for rival in rivals]
    known = [one for one in controls if np.isfinite([one.value.value, one.difference.value]).all()]
    known_seeds = [one for one in seeds if np.isfinite([*one.ours, *one.theirs]).all()]
    if not known or not known_seeds:
        return not_measured(name, paper, "its controls are undefined on these images")
    weights, method = beats(known), over_seeds(known_seeds, less=less)
    if lost := [one.name for one in controls if one not in known]:
        weights = _with_undefined(weights, lost)
    if lost := [one.control for one in seeds if one not in known_seeds]:
        method = _with_undefined(method, lost)
    shown = {named: found for named, found in (notes or {}).items() if np.isfinite(found.value)}
    return Claim(name, paper, definition, measure(own[0]), tuple(known), weights, method, less, shown)


def _with_undefined(judgement: Judgement, lost: Sequence[str]) -> Judgement:
    """The same judgement, but a claim that is ahead of the other controls is unclear."""
    if judgement.verdict != "holds":
        return replace(judgement, p=None if judgement.p is None else 1.0)
    return Judgement("unclear", f"undefined on these images: {', '.join(lost)}", 1.0, judgement.against)
