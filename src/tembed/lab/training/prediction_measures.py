"""What a set of predictions says about a network: accuracy by class, confusions, calibration, the worst images."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats, Int64

BINS = 15
"""Bins of the calibration error, of equal width (Guo et al. 2017)."""


@dataclass(frozen=True)
class ClassMeasure:
    """One class. ``accuracy``: share of its images that are right. ``precision``: share of its predictions.

    Both are None where there is nothing to divide by. ``confused``: the most frequent wrong prediction for its images
    (None if all are right), and how often it occurs.
    """

    name: str
    images: int
    accuracy: float | None
    precision: float | None
    confused: str | None
    confused_images: int


@dataclass(frozen=True)
class CalibrationBin:
    """The images whose confidence is above ``low`` and at most ``low + 1 / BINS``; means are 0 without images."""

    low: float
    images: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Predictions:
    """The predictions for ``N`` images in ``C`` classes.

    ``labels``: ``(N,)``. ``probabilities``: ``(N, C)``, those of the head. ``losses``: ``(N,)``, the cross-entropy of
    each image. ``patches``: ``(N, C)``, the mean prediction of the patches, or None. ``files``: the name of each image.
    """

    classes: tuple[str, ...]
    labels: Int64
    probabilities: Floats
    losses: Floats
    patches: Floats | None
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def predicted(self) -> Int64:
        """The class of each image, according to the head: ``(N,)``."""
        return self.probabilities.argmax(1)

    @cached_property
    def confusion(self) -> Int64:
        """How many images of each class (row) are taken for each class (column): ``(C, C)``."""
        count = len(self.classes)
        return np.bincount(self.labels * count + self.predicted, minlength=count**2).reshape(count, count)

    def by_class(self) -> list[ClassMeasure]:
        """Each class, in the order of `classes`."""
        right, images, predictions = self.confusion.diagonal(), self.confusion.sum(1), self.confusion.sum(0)
        wrong = self.confusion - np.diag(right)
        return [
            ClassMeasure(
                name=name,
                images=int(images[k]),
                accuracy=float(right[k] / images[k]) if images[k] else None,
                precision=float(right[k] / predictions[k]) if predictions[k] else None,
                confused=self.classes[int(wrong[k].argmax())] if wrong[k].any() else None,
                confused_images=int(wrong[k].max()),
            )
            for k, name in enumerate(self.classes)
        ]

    def confusions(self, most: int) -> list[tuple[str, str, int]]:
        """The most frequent mistakes: true class, predicted class, number of images."""
        wrong = self.confusion - np.diag(self.confusion.diagonal())
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [(self.classes[a], self.classes[b], int(wrong[a, b])) for a, b in pairs if wrong[a, b]]

    def calibration(self) -> list[CalibrationBin]:
        """Confidence and accuracy of the images in each bin of confidence."""
        confidence, right = self._confidence, self.predicted == self.labels
        which = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
        bins = []
        for number in range(BINS):
            inside = which == number
            images = int(inside.sum())
            means = (float(confidence[inside].mean()), float(right[inside].mean())) if images else (0.0, 0.0)
            bins.append(CalibrationBin(number / BINS, images, *means))
        return bins

    @cached_property
    def calibration_error(self) -> float:
        """The expected calibration error: the mean over all images of |confidence - accuracy| of their bin."""
        gaps = [one.images * abs(one.confidence - one.accuracy) for one in self.calibration()]
        return sum(gaps) / max(1, len(self))

    @cached_property
    def overconfidence(self) -> float:
        """Mean confidence minus accuracy: positive if the network is too sure."""
        return float(self._confidence.mean() - (self.predicted == self.labels).mean())

    def worst(self, most: int) -> Int64:
        """The images with the highest loss, highest first."""
        return np.argsort(-self.losses, kind="stable")[:most]

    @property
    def _confidence(self) -> NDArray[np.float64]:
        return self.probabilities.max(1).astype(np.float64)
