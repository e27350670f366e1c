"""Batches for training and evaluation: an order says which images, and a source makes them tensors.

The paper augments with a zero-padded random crop and a horizontal flip (§4).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tembed.common.arrays import Triple, UInt8
from tembed.common.errors import TembedError
from tembed.images.pixels import cropped, normalised
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.leaving_out import draw_cells, without_cells
from tembed.lab.data.order import Flips, Order, dice_of, draw_crops


class TensorSource(Protocol):
    """Makes the tensors of a batch: pixels, or cached features of them."""

    def tensors(self, order: Order, epoch: int, step: int) -> Tensor:
        """What the network gets for the worker's images in this step: floats ``(n, ...)``."""


@dataclass(frozen=True, eq=False)
class Pixels:
    """Normalised images: float32 ``(n, 3, H, W)`` in channels-last memory.

    With ``flips``, images are cropped and flipped at random; without it, they are shown unchanged. ``mean`` and ``std``
    are those of the training images, with pixels from 0 to 1.
    """

    images: ImageSet
    mean: Triple
    std: Triple
    flips: Flips | None = None

    def __post_init__(self) -> None:
        if min(self.std) <= 0:
            raise TembedError(f"a channel of the images is constant (std {self.std}), so it cannot be normalised")

    def tensors(self, order: Order, epoch: int, step: int) -> Tensor:
        return normalised(self.pixels(order, epoch, step), self.mean, self.std)

    def pixels(self, order: Order, epoch: int, step: int) -> UInt8:
        """The images before they are normalised: bytes ``(n, H, W, 3)``."""
        pixels = self.images.pixels(order.positions(epoch, step))
        if self.flips is not None:
            crops = draw_crops(order.total, *self.images.size, order.seed, epoch, self.flips)
            pixels = cropped(pixels, crops.of(order.share(step)), self.mean)
        return pixels


@dataclass(frozen=True, eq=False)
class IncompletePixels:
    """The same images; half of them lack one of 4x4 cells, another one in each epoch."""

    whole: Pixels

    def tensors(self, order: Order, epoch: int, step: int) -> Tensor:
        cells = draw_cells(order.total, dice_of(order.seed, f"cells {epoch}"))
        return without_cells(self.whole.tensors(order, epoch, step), cells[order.share(step)])


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of an image set, each a tensor from ``source`` with labels ``(n,)``."""

    images: ImageSet
    order: Order
    source: TensorSource

    def __len__(self) -> int:
        """Steps per epoch."""
        return len(self.order)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """This worker's tensors and labels."""
        return self.source.tensors(self.order, epoch, step), self.labels_of(epoch, step)

    def labels_of(self, epoch: int, step: int) -> Tensor:
        """The labels of this worker's images in this step."""
        return self.images.labels[torch.from_numpy(self.order.positions(epoch, step))]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, starting at step ``start``."""
        for step in range(start, len(self)):
            yield self.batch(epoch, step)


def training_batches(
    images: ImageSet,
    batch_size: int,
    *,
    mean: Triple,
    std: Triple,
    seed: int = 0,
    flips: Flips = "random",
    lacks_cells: bool = False,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """Batches of shuffled images, cropped and flipped at random; with ``lacks_cells``, half of them lack a cell."""
    order = Order(len(images), batch_size, seed=seed, rank=rank, world_size=world_size)
    pixels = Pixels(images, mean, std, flips)
    return Batches(images, order, IncompletePixels(pixels) if lacks_cells else pixels)


def evaluation_batches(
    images: ImageSet, batch_size: int, *, mean: Triple, std: Triple, rank: int = 0, world_size: int = 1
) -> Batches:
    """Batches of unchanged images, in their natural order."""
    order = Order(len(images), batch_size, shuffle=False, rank=rank, world_size=world_size)
    return Batches(images, order, Pixels(images, mean, std))
