"""Half-samples of the images, and the intervals that follow from what a measure gives on them.

*Draws* are the values of a measure ``(1 + B,)``: on all images, then on each of ``B`` half-samples. Means over half of
``n`` images, drawn without replacement, vary around the mean of all by ``s^2 / n``, the variance of the mean of all. So
the spread of the half-samples estimates the error of the value on all images.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Int64
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.statistics import half_width

Draws = NDArray[np.float64]
Points = NDArray[np.floating | np.bool_]
"""A number, or yes or no, for each point: ``(P,)``."""

RESAMPLES = 100
"""Half-samples behind an interval."""
RANKED = 20
"""Half-samples on which the other groupings and pairs are ranked."""


@dataclass(frozen=True)
class HalfSamples:
    """``rows``: ``(1 + B, N)``, which images each draw uses; the first row has all of them. ``labels``: ``(N,)``."""

    labels: Int64
    classes: int
    rows: NDArray[np.bool_]

    @classmethod
    def draw(cls, labels: Int64, classes: int, seed: int = 0, resamples: int | None = None) -> "HalfSamples":
        """Half of the images of each class; of an odd number, one more or one less than half, at random.

        ``resamples``: by default `RESAMPLES`.
        """
        resamples = RESAMPLES if resamples is None else resamples
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
    reach = half_width(error, freedom)
    return Measure(float(draws[0]), float(draws[0]) - reach, float(draws[0]) + reach)


def standard_error(draws: Draws) -> tuple[float, int]:
    """The standard error of the value on all images, and its degrees of freedom; 0 of them if it is unknown."""
    halves = draws[1:][np.isfinite(draws[1:])]
    if not np.isfinite(draws[0]) or len(halves) < max(2, len(draws[1:]) / 2):
        return 0.0, 0
    return float(halves.std(ddof=1)), len(halves) - 1
