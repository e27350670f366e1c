"""A claim of the paper as numbers: what it says, how it is measured, what came out, and whether it holds."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tembed.arrays import Int64

Array = NDArray[np.float64]
Verdict = Literal["holds", "does not hold", "unclear", "no claim", "not measured"]

RESAMPLES = 400
"""Bootstrap samples behind an interval."""


@dataclass(frozen=True)
class Measure:
    """A number, and the 95 % interval that chance in the choice of the images gives it, where that was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        text = f"{self.value:.3f}"
        return text if self.low is None else f"{text} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Claim:
    """``paper``: what the paper says. ``definition``: how it is measured. ``why``: what the verdict rests on."""

    name: str
    paper: str
    definition: str
    verdict: Verdict
    why: str
    values: dict[str, Measure] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def not_measured(name: str, paper: str, why: str) -> Claim:
    """A claim that this run or this dataset cannot decide."""
    return Claim(name, paper, "", "not measured", why)


class Bootstrap:
    """Intervals by drawing images anew, class by class; all points of an image stay together."""

    def __init__(self, labels: Int64, seed: int = 0, resamples: int = RESAMPLES):
        dice = np.random.default_rng(seed)
        self.labels = labels
        self.weights = np.zeros((resamples, len(labels)))  # how often each image is drawn
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            self.weights[:, members] = dice.multinomial(
                len(members), np.full(len(members), 1 / len(members)), resamples
            )

    def measure(self, statistic: Callable[[Array], Array]) -> Measure:
        """``statistic`` maps weights of the images ``(B, N)`` to a number for each of the ``B``."""
        value = float(statistic(np.ones((1, len(self.labels))))[0])
        drawn = statistic(self.weights)
        drawn = drawn[np.isfinite(drawn)]
        if not np.isfinite(value) or len(drawn) < len(self.weights) / 2:
            return Measure(value)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return Measure(value, float(low), float(high))

    def mean(self, points: NDArray[np.floating]) -> Measure:
        """The mean over the points ``(P,)``, or over those of them that are not NaN."""
        return self.measure(weighted_mean(points, len(self.labels)))


def weighted_mean(points: NDArray[np.floating], images: int) -> Callable[[Array], Array]:
    """The mean over points that are not NaN, as a function of the images' weights."""
    by_image = points.reshape(images, -1).astype(np.float64)
    there = ~np.isnan(by_image)
    total, count = np.where(there, by_image, 0).sum(1), there.sum(1)

    def statistic(weights: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return (weights @ total) / (weights @ count)

    return statistic


def decided(gain: Measure, what: str) -> tuple[Verdict, str]:
    """Whether a difference that should be positive is."""
    said = f"{what} {gain.value:+.3f}"
    if gain.low is None or gain.high is None:
        return ("holds" if gain.value > 0 else "does not hold"), said
    said += f" [{gain.low:+.3f}, {gain.high:+.3f}]"
    if gain.low > 0:
        return "holds", said
    return ("does not hold" if gain.high < 0 else "unclear"), said


def jointly(verdicts: list[tuple[Verdict, str]]) -> tuple[Verdict, str]:
    """The verdict on a claim with several parts: it holds if all do."""
    found = [verdict for verdict, _ in verdicts]
    worst: Verdict = "does not hold" if "does not hold" in found else "unclear" if "unclear" in found else "holds"
    return worst, "; ".join(why for _, why in verdicts)
