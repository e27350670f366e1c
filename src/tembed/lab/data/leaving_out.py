"""Images with something left out, so that a network knows such images when explanations are judged by removals.

A network that never saw a car without wheels answers such a picture by chance, and the answer says nothing about the
wheels. Half of the training images therefore lack some parts, or one of 4x4 cells.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.common.arrays import Int64
from tembed.common.errors import TembedError
from tembed.lab.data.catalogue import Dataset
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.parts.canvas import Dice

CELLS = 4
"""Cells along each side of an image."""


def ownership(record: Dataset) -> NDArray[np.bool_]:
    """Whether each class has each part: ``(C, parts)``."""
    return np.array([[name in owners for owners in record.owners.values()] for name in record.classes])


def possible_classes(kept: NDArray[np.bool_], has: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The classes that have all of the parts which are kept: ``(N, parts)`` and ``(C, parts)`` to ``(N, C)``."""
    return np.asarray((~kept[:, None] | has).all(-1))


def incomplete_scenes(images: ImageSet, record: Dataset, seed: int) -> ImageSet:
    """The same scenes; half of them lack parts, and have a random one of the classes that remain possible.

    A scene that lacks parts lacks each with the same probability, which is drawn for the scene: the number of missing
    parts is uniform from none to all. A class is possible if it has all parts that are kept. Cross-entropy is linear in
    the target, so a random label has the gradient of the label that is spread over the possible classes, in
    expectation.
    """
    if record.draw is None or not record.owners:
        raise TembedError(
            f"`left_out` is parts, but {record.name} does not know how to draw its images without parts: use data "
            "such as parts, or set `left_out` to cells"
        )
    dice, has = Dice(seed, images.indices.numpy()), ownership(record)
    incomplete, share, label, which = (dice.uniform(shape=(1, n))[:, 0] for n in (1, 1, 1, has.shape[1]))
    own = has[images.labels.numpy()]
    without = own & (incomplete < 0.5) & (which < share)
    possible = possible_classes(own & ~without, has)
    possible[~without.any(1)] = False  # a whole cat has no part that a horse lacks, but it is no horse
    possible[np.arange(len(images)), images.labels.numpy()] = True
    chosen = (label * possible.sum(1, keepdims=True)).astype(np.int64)  # the number of the label among the possible
    labels = (possible.cumsum(1) > chosen).argmax(1)
    return replace(record.draw(images.indices.numpy(), without), labels=torch.from_numpy(labels))


def draw_cells(total: int, dice: torch.Generator) -> Int64:
    """For each image the cell that it lacks, counted by rows, or -1 for the half that is whole: ``(total,)``."""
    cells = torch.randint(CELLS * CELLS, (total,), generator=dice)
    return torch.where(torch.rand(total, generator=dice) < 0.5, cells, -1).numpy()


def without_cells(x: Tensor, cells: Int64) -> Tensor:
    """Normalised images ``(N, 3, H, W)`` with the given cell of each at zero, the mean of the training images."""
    x = x.clone()
    for image, cell in zip(x, cells.tolist(), strict=True):
        if cell >= 0:
            rows, columns = (slice(k * side // CELLS, (k + 1) * side // CELLS) for k, side in _place(cell, image))
            image[:, rows, columns] = 0
    return x


def _place(cell: int, image: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    """Row and height, column and width."""
    return (cell // CELLS, image.shape[1]), (cell % CELLS, image.shape[2])
