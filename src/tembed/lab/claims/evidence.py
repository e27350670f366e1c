"""What a claim rests on: its own number and those of its controls, over seeds and half-samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tembed.lab.claims.claim import Control, Measure, Seeds
from tembed.lab.claims.half_samples import Draws, measure, standard_error
from tembed.lab.claims.statistics import combined_error, half_width, one_sided

QUANTILE = 0.95
"""Of the other groupings or pairs: what is shown beside the paper's."""


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

    def control(self, own: Sequence[Draws], reading: str = "") -> Control:
        """The control, for these weights and over the seeds. ``own``: the claim's number, over the seeds of the run."""
        others = [one for draws in self.seeds for one in draws] if self.pooled else self.seeds[0]
        counted = f"{self.name} ({len(others)} {'seeds' if self.pooled else 'draws'})"
        found = control(counted if len(others) > 1 else self.name, own[0], others)
        ours = tuple(float(draws[0]) for draws in own)
        theirs = tuple(float(np.mean([one[0] for one in draws])) for draws in self.seeds)
        return replace(found, seeds=Seeds(self.name, ours, theirs, self.paired), reading=reading)


def ranked(name: str, own: Sequence[Draws], others: Sequence[NDArray[np.float64]]) -> Rival:
    """The `QUANTILE` of all other groupings or pairs, ``(1 + R, G)`` for each seed, with the rank of the paper's."""
    rank, count = int((others[0][0] >= own[0][0]).sum()) + 1, others[0].shape[1] + 1
    quantiles = [[np.quantile(some, QUANTILE, axis=1)] for some in others]
    return Rival(f"{QUANTILE:.0%} of {name} (rank {rank} of {count})", quantiles)


def control(name: str, own: Draws, others: Sequence[Draws]) -> Control:
    """A control that is measured on the same half-samples as the claim, or on the first few of them.

    Several ``others`` are networks or draws of one kind: could the claim's number be that of another one? They differ
    from each other by more than the choice of images. So the error of the difference has two parts: that of the
    half-samples, and the spread of a further one around the mean of these.
    """
    mean = np.mean(others, axis=0)
    apart = own[: len(mean)] - mean
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


def is_defined(control: Control) -> bool:
    """Whether all numbers of a control exist, for these weights and over the seeds."""
    assert control.seeds is not None
    numbers = [control.value.value, control.difference.value, *control.seeds.ours, *control.seeds.theirs]
    return bool(np.isfinite(numbers).all())
