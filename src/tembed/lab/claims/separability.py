"""How well a space of features separates classes and super-classes: neighbours, silhouette and linear classifiers.

Each number is computed again in every half-sample, from what one pass over the distances leaves: each query's nearest
points and its mean distance to every image. Results for classes give those for any grouping of the classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats, Int64
from tembed.lab.analysis.neighbours import Neighbourhood, neighbourhood
from tembed.lab.claims.half_samples import Draws, HalfSamples

K = 10
"""Number of neighbours per patch for purity."""
LISTED = 128
"""Neighbours that are listed per patch: a half-sample takes the first `K` whose image it has."""
ALONG = 4
"""Queries along each side of the map."""
VALUES = 1 << 22
"""Values per batch of groupings: 16 MB."""
RIDGE = 1e-3
"""Penalty of the probe, as a share of the number of points; the features have unit variance."""


@dataclass(frozen=True)
class Separability:
    """The numbers of one space. ``joint``: ``(1 + B, C, C)``, the share of the neighbours that belong to each pair of a
    patch's class and its neighbour's. ``images``: ``(1 + B, C)``, the number of images of each class. ``lda``: the
    accuracy of a linear discriminant analysis of the classes. ``silhouette`` and ``probe``: of the super-classes, if
    there are any. The ``other`` ones: of other groupings, ``(1 + R, G)``.
    """

    joint: NDArray[np.float64]
    images: Int64
    lda: Draws
    silhouette: Draws | None = None
    probe: Draws | None = None
    other_silhouettes: NDArray[np.float64] | None = None
    other_probes: NDArray[np.float64] | None = None

    def purity(self, group_of: Int64) -> Draws:
        """The share of the neighbours in the patch's own group; NaN where no group has two images."""
        share = (self.joint * (group_of[:, None] == group_of[None])).sum((1, 2))
        largest = (self.images @ np.eye(int(group_of.max()) + 1, dtype=np.int64)[group_of]).max(1)
        return np.where(largest > 1, share, np.nan)


def queries_of(map_size: tuple[int, int], images: int) -> Int64:
    """Evenly spaced points of each image, at most `ALONG` along each side."""
    rows, columns = (_spaced(side) for side in map_size)
    pixels = (rows[:, None] * map_size[1] + columns[None]).reshape(-1)
    return (np.arange(images)[:, None] * (map_size[0] * map_size[1]) + pixels[None]).reshape(-1)


def _spaced(side: int) -> Int64:
    step = -(-side // ALONG)
    count = -(-side // step)
    return np.arange(count) * step + (side - 1 - (count - 1) * step) // 2


def separability(
    space: Floats,
    map_size: tuple[int, int],
    samples: HalfSamples,
    group_of: Int64 | None = None,
    others: Int64 | None = None,
    ranked: int = 0,
) -> Separability:
    """All numbers of a space ``(P, d)``. ``others``: ``(G, C)``, groupings to rank on ``ranked`` half-samples."""
    per_image = map_size[0] * map_size[1]
    found = neighbourhood(space, per_image, queries_of(map_size, len(samples.labels)), LISTED)
    joint = neighbour_classes(found, per_image, samples)
    images = samples.rows @ np.eye(samples.classes, dtype=np.int64)[samples.labels]
    image_of = found.queries // per_image
    points = space[found.queries]
    if group_of is None:
        return Separability(joint, images, probes(points, image_of, samples)[1])
    few, own = samples.first(ranked), group_of[None]
    probe, lda = probes(points, image_of, samples, own)
    return Separability(
        joint,
        images,
        lda,
        silhouettes(found.distances, image_of, samples, own)[:, 0],
        probe[:, 0],
        None if others is None else silhouettes(found.distances, image_of, few, others),
        None if others is None else probes(points, image_of, few, others)[0],
    )


def neighbour_classes(found: Neighbourhood, per_image: int, samples: HalfSamples) -> NDArray[np.float64]:
    """The share of the `K` nearest neighbours for each class of the patch and of the neighbour: ``(1 + B, C, C)``."""
    classes = samples.classes
    image_of, near = found.queries // per_image, found.nearest // per_image
    pairs = samples.labels[image_of][:, None] * classes + samples.labels[near]
    joint = np.empty((len(samples.rows), classes, classes))
    for draw, row in enumerate(samples.rows):
        asked = row[image_of]
        present = row[near[asked]]
        present &= present.cumsum(1, np.uint8) <= K  # the list is shorter than 256
        counts = np.bincount(pairs[asked][present], minlength=classes**2)
        joint[draw] = (counts / max(1, counts.sum())).reshape(classes, classes)
    return joint


def silhouettes(distances: Floats, image_of: Int64, samples: HalfSamples, groupings: Int64) -> NDArray[np.float64]:
    """The mean of ``(b - a) / max(a, b)`` for each grouping: ``(1 + B, G)``.

    ``a``: a patch's mean distance to the images of its own group; ``b``: to the nearest other group.
    """
    labels, classes = samples.labels, groupings.shape[1]
    result = np.empty((len(samples.rows), len(groupings)))
    for draw, row in enumerate(samples.rows):
        asked = row[image_of]
        truth = labels[image_of[asked]]
        member = np.eye(classes, dtype=np.float32)[labels] * row[:, None]  # (N, C)
        sums = distances[asked] @ member
        counts = member.sum(0)[None] - np.eye(classes, dtype=np.float32)[truth]  # without the patch's own image
        for some, indicator, groups in _in_batches(groupings, len(truth)):
            with np.errstate(invalid="ignore", divide="ignore"):
                means = ((sums @ indicator) / (counts @ indicator)).reshape(len(truth), -1, groups)
            result[draw, some] = _mean_silhouette(means, groupings[some][:, truth].T)
    return result


def _in_batches(groupings: Int64, points: int) -> Iterator[tuple[slice, Floats, int]]:
    """Batches of groupings, with the group of each class as an indicator ``(C, G * groups)``."""
    groups = int(groupings.max(initial=0)) + 1
    many = max(1, VALUES // (points * groups))
    for start in range(0, len(groupings), many):
        some = groupings[start : start + many]
        indicator = np.eye(groups, dtype=np.float32)[some].transpose(1, 0, 2).reshape(some.shape[1], -1)
        yield slice(start, start + len(some)), indicator, groups


def _mean_silhouette(means: Floats, own: Int64) -> NDArray[np.float64]:
    """From mean distances ``(Q, G, groups)`` and each point's own group ``(Q, G)``: ``(G,)``."""
    inside = np.take_along_axis(means, own[:, :, None], 2)[:, :, 0]
    others = np.where(np.isnan(means), np.inf, means)
    np.put_along_axis(others, own[:, :, None], np.inf, 2)
    outside = others.min(2)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (outside - inside) / np.maximum(inside, outside)
    known = np.isfinite(found)  # a patch without other images of its group has no silhouette
    count = known.sum(0)
    return np.where(count > 0, np.where(known, found, 0).sum(0, dtype=np.float64) / np.maximum(count, 1), np.nan)


def probes(
    points: Floats, image_of: Int64, samples: HalfSamples, groupings: Int64 | None = None
) -> tuple[NDArray[np.float64], Draws]:
    """The share of the points whose group a linear probe predicts correctly, for each grouping, ``(1 + B, G)``; and the
    share whose class a linear discriminant analysis predicts correctly, ``(1 + B,)``.

    Both are fitted on one half of the images and tested on the other, and vice versa. The probe is a ridge regression
    on the classes; the score of a group is the sum of its classes' scores, as a regression on the groups would give it.
    """
    groupings = np.empty((0, samples.classes), np.int64) if groupings is None else groupings
    result, lda = np.full((len(samples.rows), len(groupings)), np.nan), np.full(len(samples.rows), np.nan)
    for draw, row in enumerate(samples.rows):
        if not (np.bincount(samples.labels[row]) > 1).any():
            continue  # nothing is left to test on
        scores, discriminants, truth = _class_scores(points, image_of, samples, row)
        lda[draw] = (discriminants.argmax(1) == truth).mean()
        for some, indicator, groups in _in_batches(groupings, len(truth)):
            predicted = (scores @ indicator).reshape(len(truth), -1, groups).argmax(2)
            result[draw, some] = (predicted == groupings[some][:, truth].T).mean(0)
    return result, lda


def _class_scores(
    points: Floats, image_of: Int64, samples: HalfSamples, row: NDArray[np.bool_]
) -> tuple[Floats, Floats, Int64]:
    """Scores ``(Q', C)`` of the points of these images by a ridge regression and by a discriminant analysis, fitted on
    other images, and their classes ``(Q',)``. Both have the same penalty.
    """
    labels = samples.labels
    fold = np.full(len(labels), -1)
    for label in np.unique(labels):
        images = np.flatnonzero(row & (labels == label))
        fold[images] = np.arange(len(images)) % 2
    targets = np.eye(samples.classes, dtype=np.float32)
    scores, discriminants, truth = [], [], []
    for tested in (0, 1):
        fit, test = points[fold[image_of] == 1 - tested], points[fold[image_of] == tested]
        y = targets[labels[image_of[fold[image_of] == 1 - tested]]]
        mean, spread = fit.mean(0), fit.std(0) + np.float32(1e-6)
        x, asked = (fit - mean) / spread, (test - mean) / spread
        gram, penalty = (x.T @ x).astype(np.float64), RIDGE * len(x) * np.eye(x.shape[1])
        products = (x.T @ (y - y.mean(0))).astype(np.float64)
        scores.append(asked @ np.linalg.solve(gram + penalty, products).astype(np.float32) + y.mean(0))
        counts = y.sum(0, dtype=np.float64)
        centres = (y.T @ x).astype(np.float64) / np.maximum(counts, 1)[:, None]
        within = (gram + penalty - (centres.T * counts) @ centres) / len(x)
        axes = np.linalg.solve(within, centres.T)
        with np.errstate(divide="ignore"):  # a class without points is never predicted
            offset = np.log(counts / len(x)) - (centres.T * axes).sum(0) / 2
        discriminants.append(asked @ axes.astype(np.float32) + offset)
        truth.append(labels[image_of[fold[image_of] == tested]])
    return np.concatenate(scores), np.concatenate(discriminants), np.concatenate(truth)


def numbers_of(found: Separability, group_of: Int64 | None) -> dict[str, Draws]:
    """The draws of each measure: two of the classes and, with super-classes, three more."""
    numbers = {"class purity": found.purity(np.arange(found.joint.shape[1])), "class LDA": found.lda}
    if group_of is not None and found.silhouette is not None and found.probe is not None:
        numbers["super-class purity"] = found.purity(group_of)
        numbers["super-class silhouette"] = found.silhouette
        numbers["super-class probe"] = found.probe
    return numbers
