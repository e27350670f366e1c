"""Half-samples of the images, and the claims that follow from what a measure gives on them.

*Draws* are the values of a measure ``(1 + B,)``: on all images, then on each of ``B`` half-samples. Means over half of
``n`` images, drawn without replacement, vary around the mean of all by ``s^2 / n``, the variance of the mean of all. So
the spread of the half-samples estimates the error of the value on all images.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Int64
from tembed.common.extras import needs
from tembed.lab.claims.claim import (
    Claim,
    Control,
    Judgement,
    Measure,
    Seeds,
    beats,
    not_measured,
    one_sided,
    over_seeds,
)

Draws = NDArray[np.float64]
Points = NDArray[np.floating | np.bool_]
"""A number, or yes or no, for each point: ``(P,)``."""

RESAMPLES = 100
"""Half-samples behind an interval."""
RANKED = 20
"""Half-samples on which the other groupings and pairs are ranked."""
UNTRAINED = "untrained network"
QUANTILE = 0.95
"""Of the other groupings or pairs: what the paper's should exceed."""


@dataclass(frozen=True)
class HalfSamples:
    """``rows``: ``(1 + B, N)``, which images each draw uses; the first row has all of them. ``labels``: ``(N,)``."""

    labels: Int64
    classes: int
    rows: NDArray[np.bool_]

    @classmethod
    def draw(cls, labels: Int64, classes: int, seed: int = 0, resamples: int = RESAMPLES) -> "HalfSamples":
        """Half of the images of each class; of an odd number, one more or one less than half, at random."""
        rng = np.random.default_rng(seed)
        rows = np.zeros((1 + resamples, len(labels)), bool)
        rows[0] = True
        for label in np.unique(labels):
            images = np.flatnonzero(labels == label)
            half, odd = divmod(len(images), 2)
            for row in rows[1:]:
                row[rng.permutation(images)[: half + odd * int(rng.integers(2))]] = True
        return cls(labels, classes, rows)

    def first(self, resamples: int) -> "HalfSamples":
        """Only the first few half-samples."""
        return replace(self, rows=self.rows[: 1 + resamples])

    def over_seeds(self, count: int) -> list["HalfSamples"]:
        """These half-samples for the first of several trained seeds, and all images alone for the others."""
        return [self] + [self.first(0)] * (count - 1)

    def of_points(self, per_image: int) -> Iterable[NDArray[np.bool_]]:
        """The rows for points instead of images: ``(P,)`` each."""
        return (np.repeat(row, per_image) for row in self.rows)

    def ratio(self, top: Points, bottom: Points) -> Draws:
        """The sum of ``top`` over that of ``bottom``, both ``(P,)``."""
        above, below = (values.reshape(len(self.labels), -1).sum(1, dtype=np.float64) for values in (top, bottom))
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.rows @ above) / (self.rows @ below)

    def mean(self, points: Points) -> Draws:
        """The mean over the points ``(P,)``."""
        return self.ratio(points, np.ones(len(points)))

    def constant(self, value: float) -> Draws:
        return np.full(len(self.rows), value)


# --- numbers from draws


def measure(draws: Draws) -> Measure:
    """The value on all images with its interval, unless it is undefined on half of the half-samples."""
    error, freedom = standard_error(draws)
    if freedom < 1:
        return Measure(float(draws[0]))
    reach = error * float(needs("scipy.stats").t.ppf(0.975, freedom))
    return Measure(float(draws[0]), float(draws[0]) - reach, float(draws[0]) + reach)


def standard_error(draws: Draws) -> tuple[float, int]:
    """The standard error of the value on all images, and its degrees of freedom; 0 of them if it is unknown."""
    halves = draws[1:][np.isfinite(draws[1:])]
    if not np.isfinite(draws[0]) or len(halves) < max(2, len(draws[1:]) / 2):
        return 0.0, 0
    return float(halves.std(ddof=1)), len(halves) - 1


def control(name: str, own: Draws, other: Draws, *, less: bool = False) -> Control:
    """A control that is measured on the same half-samples as the claim."""
    apart = other - own if less else own - other
    error, freedom = standard_error(apart)
    p, against = one_sided(float(apart[0]), error, freedom) if freedom else (1.0, 1.0)
    return Control(name, measure(other), measure(apart), p, against)


def rank_control(name: str, own: Draws, others: NDArray[np.float64]) -> Control:
    """All other groupings or pairs, ``(1 + R, G)``: the paper's must exceed their `QUANTILE`.

    Its rank would be a p-value too, but not a small one where there are few others. The p-value against the claim is
    that rank: the share of the others that are at least as bad, averaged over the half-samples.
    """
    own, count = own[: len(others)], others.shape[1]
    rank = int((others[0] >= own[0]).sum()) + 1
    found = control(f"{name} (rank {rank} of {count + 1})", own, np.quantile(others, QUANTILE, axis=1))
    known = np.isfinite(own) & np.isfinite(others).all(1)
    if not known[0]:
        return found
    as_bad = ((others[known] <= own[known, None]).sum(1) + 1) / (count + 1)
    return replace(found, against=float(as_bad.mean()))


def random_control(name: str, own: Draws, others: Sequence[Draws], *, less: bool = False) -> Control:
    """Several networks or draws of one kind: could the claim's number be that of another one?

    They differ from each other by more than the choice of images. So the error of the difference has two parts: that
    of the half-samples, and the spread of a further one around the mean of these.
    """
    mean = np.mean(others, axis=0)
    apart = mean - own if less else own - mean
    error, freedom = standard_error(apart)
    value, gap = measure(mean), float(apart[0])
    if not freedom or len(others) < 2:
        p, against = one_sided(gap, error, freedom) if freedom else (1.0, 1.0)
        return Control(name, value, measure(apart), p, against)
    spread = float(np.std([draws[0] for draws in others], ddof=1))
    parts = [(error**2, freedom), (spread**2 * (1 + 1 / len(others)), len(others) - 1)]
    total = sum(variance for variance, _ in parts)
    freed = total**2 / sum(variance**2 / f for variance, f in parts) if total else freedom
    reach = math.sqrt(total) * float(needs("scipy.stats").t.ppf(0.975, freed))
    middle = float(mean[0])
    p, against = one_sided(gap, math.sqrt(total), freed)
    return Control(
        name, Measure(middle, middle - reach, middle + reach), Measure(gap, gap - reach, gap + reach), p, against
    )


def _ranked_seeds(name: str, ours: tuple[float, ...], others: Sequence[NDArray[np.float64]]) -> Seeds:
    """`rank_control` over seeds: ahead above the 95 % quantile of the others, behind below their 5 % quantile."""
    best, worst = (tuple(float(np.quantile(some, level)) for some in others) for level in (QUANTILE, 1 - QUANTILE))
    return Seeds(f"{QUANTILE:.0%} of {name}", ours, best, worst=worst)


# --- claims from numbers


@dataclass(frozen=True)
class Evidence:
    """What a claim rests on. The first training has all draws; the others only need the value on all images.

    ``own``: the claim's number, over the seeds of the run. ``within``: controls that belong to the same trainings or
    to none, over the same seeds. ``between``: controls that are other networks, over seeds of their own. ``random``:
    several draws of a random change, over the seeds of the run. ``ranked``: the other groupings or pairs
    ``(1 + R, G)``, over the seeds of the run. ``untrained``: the same number of untrained networks.
    """

    own: list[Draws]
    within: Mapping[str, list[Draws]] = field(default_factory=dict)
    between: Mapping[str, list[Draws]] = field(default_factory=dict)
    random: Mapping[str, list[list[Draws]]] = field(default_factory=dict)
    ranked: Mapping[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    untrained: Sequence[Draws] = ()


def claim(
    name: str,
    paper: str,
    definition: str,
    evidence: Evidence,
    *,
    less: bool = False,
    notes: Mapping[str, Measure] | None = None,
) -> Claim:
    """The claim with its controls and both verdicts, before the correction across claims.

    It cannot hold if one of its controls is undefined on these images.
    """
    own = evidence.own[0]
    if not np.isfinite(own[0]):
        return not_measured(name, paper, "its number is undefined on these images")
    controls = [control(named, own, found[0], less=less) for named, found in evidence.within.items()]
    controls += [control(named, own, found[0], less=less) for named, found in evidence.between.items()]
    controls += [
        random_control(_counted(named, len(found[0]), "draws"), own, found[0], less=less)
        for named, found in evidence.random.items()
    ]
    if blank := evidence.untrained:
        controls.append(random_control(_counted(UNTRAINED, len(blank), "seeds"), own, blank, less=less))
    controls += [rank_control(named, own, found[0]) for named, found in evidence.ranked.items()]
    ours = tuple(float(draws[0]) for draws in evidence.own)
    seeds = [Seeds(named, ours, tuple(float(draws[0]) for draws in found)) for named, found in evidence.within.items()]
    seeds += [
        Seeds(named, ours, tuple(float(draws[0]) for draws in found), paired=False)
        for named, found in evidence.between.items()
    ]
    seeds += [
        Seeds(named, ours, tuple(float(np.mean([draws[0] for draws in some])) for some in found))
        for named, found in evidence.random.items()
    ]
    if blank:
        seeds.append(Seeds(UNTRAINED, ours, tuple(float(draws[0]) for draws in blank), paired=False))
    seeds += [_ranked_seeds(named, ours, [draws[0] for draws in found]) for named, found in evidence.ranked.items()]
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
    return Claim(
        name,
        paper,
        definition,
        measure(own),
        tuple(known),
        weights,
        method,
        less,
        shown,
    )


def _counted(name: str, count: int, what: str) -> str:
    return f"{name} ({count} {what})" if count > 1 else name


def _with_undefined(judgement: Judgement, lost: Sequence[str]) -> Judgement:
    """The same judgement, but a claim that is ahead of the other controls is unclear."""
    if judgement.verdict != "holds":
        return replace(judgement, p=None if judgement.p is None else 1.0)
    return Judgement("unclear", f"undefined on these images: {', '.join(lost)}", 1.0, judgement.against)
