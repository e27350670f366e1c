"""Bootstrap intervals over images, and the verdicts that follow from them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tembed.arrays import Int64
from tembed.claims import Measure, Verdict

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""Maps weights of the images ``(B, N)`` to one number per row: ``(B,)``."""

RESAMPLES = 400
"""Bootstrap samples behind an interval."""


class Bootstrap:
    """95 % intervals from resampling the images of each class; all points of an image stay together."""

    def __init__(self, labels: Int64, seed: int = 0, resamples: int = RESAMPLES):
        rng = np.random.default_rng(seed)
        self.labels = labels
        self.weights = np.zeros((resamples, len(labels)))  # how often each image is drawn
        for label in np.unique(labels):
            images = np.flatnonzero(labels == label)
            self.weights[:, images] = rng.multinomial(len(images), np.full(len(images), 1 / len(images)), resamples)

    def measure(self, statistic: Statistic) -> Measure:
        """The statistic on all images, with its interval unless it is undefined for half of the resamples."""
        value = float(statistic(np.ones((1, len(self.labels))))[0])
        resampled = statistic(self.weights)
        resampled = resampled[np.isfinite(resampled)]
        if not np.isfinite(value) or len(resampled) < len(self.weights) / 2:
            return Measure(value)
        low, high = np.quantile(resampled, [0.025, 0.975])
        return Measure(value, float(low), float(high))

    def mean(self, points: NDArray[np.floating]) -> Measure:
        """The mean over the points ``(P,)`` that are not NaN."""
        return self.measure(weighted_mean(points, len(self.labels)))

    def difference(self, first: Statistic, second: Statistic) -> Measure:
        """``first`` minus ``second``, on the same resamples."""
        return self.measure(lambda weights: first(weights) - second(weights))


def weighted_mean(points: NDArray[np.floating], images: int) -> Statistic:
    """The mean over the points ``(P,)`` that are not NaN, as a function of the images' weights."""
    by_image = points.reshape(images, -1).astype(np.float64)
    present = ~np.isnan(by_image)
    total, count = np.where(present, by_image, 0).sum(1), present.sum(1)

    def statistic(weights: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return (weights @ total) / (weights @ count)

    return statistic


def decide(gain: Measure, label: str) -> tuple[Verdict, str]:
    """The verdict on a difference that should be positive, and the numbers behind it."""
    why = f"{label} {gain.value:+.3f}"
    if gain.low is None or gain.high is None:
        return ("holds" if gain.value > 0 else "does not hold"), why
    why += f" [{gain.low:+.3f}, {gain.high:+.3f}]"
    if gain.low > 0:
        return "holds", why
    return ("does not hold" if gain.high < 0 else "unclear"), why


def combine(verdicts: list[tuple[Verdict, str]]) -> tuple[Verdict, str]:
    """The verdict on a claim that needs several differences: it holds if all of them do."""
    found = [verdict for verdict, _ in verdicts]
    worst: Verdict = "does not hold" if "does not hold" in found else "unclear" if "unclear" in found else "holds"
    return worst, "; ".join(why for _, why in verdicts)
