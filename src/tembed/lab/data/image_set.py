"""The types that travel from the disk to the training loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tembed.common.arrays import Fit, Int64, Triple, UInt8
from tembed.lab.data.npy import take_rows
from tembed.lab.data.resized_pool import ResizedPool
from tembed.lab.data.subsets import SUBSETS, Subset
from tembed.lab.data.sums import CHUNK, image_sums


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size with their labels: a selection from a pool of images, whose pixels are copied when needed.

    ``pool``: uint8 ``(M, H, W, 3)``, in memory or memory-mapped, shared by all subsets. ``labels``: int64 ``(N,)``.
    ``indices``: int64 ``(N,)``, the position of each image in the pool. ``pool_part_map``: uint8 ``(M, H, W)``, the
    part that each pixel shows (0 for none; ``k`` for ``parts[k - 1]``), if the dataset knows it. ``pool_files``: reads
    the names of the files of the pool, if it was imported from image files. ``pool_sums``: int64 ``(M, 6)``, the
    `image_sums` of the pool, if they are known.
    """

    pool: UInt8 | ResizedPool
    labels: Tensor
    classes: tuple[str, ...]
    indices: Tensor
    pool_part_map: UInt8 | ResizedPool | None = None
    parts: tuple[str, ...] = ()
    pool_files: Callable[[], Sequence[str]] | None = None
    pool_sums: Int64 | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        height, width = self.size
        return f"ImageSet({len(self):,} images of {width}x{height}, {len(self.classes)} classes)"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pool.shape[1], self.pool.shape[2]

    def pixels(self, which: Int64 | Sequence[int] | slice = slice(None)) -> UInt8:
        """The bytes ``(n, H, W, 3)`` of the images at these positions, by default of all. They are copied."""
        rows = self.indices.numpy()[which]
        return self.pool[rows] if isinstance(self.pool, ResizedPool) else take_rows(self.pool, rows)

    @property
    def part_map(self) -> Tensor | None:
        """The part that each pixel shows: uint8 ``(N, H, W)``, or None. It is copied."""
        return None if self.pool_part_map is None else torch.from_numpy(self.pool_part_map[self.indices.numpy()])

    @property
    def files(self) -> tuple[str, ...] | None:
        """The name of each image's file, relative to the folder that was imported; None if there were no such files."""
        if self.pool_files is None:
            return None
        names = self.pool_files()
        return tuple(names[index] for index in self.indices.tolist())

    def subset(self, which: Tensor) -> "ImageSet":
        """The images at these positions, in this order. No pixels are copied."""
        return replace(self, labels=self.labels[which], indices=self.indices[which])

    def resized(self, side: int) -> "ImageSet":
        """The images with this shorter side. They are resized when they are first read."""
        if side == min(self.size):
            return self
        assert not isinstance(self.pool, ResizedPool), "resize the stored images"
        parts = self.pool_part_map
        if parts is not None:
            assert not isinstance(parts, ResizedPool)
            parts = ResizedPool(parts, side, Image.Resampling.NEAREST)
        return replace(self, pool=ResizedPool(self.pool, side), pool_part_map=parts, pool_sums=None)


def statistics(images: ImageSet) -> tuple[Triple, Triple]:
    """Mean and standard deviation of each channel, from exact integer sums. Pixels are from 0 to 1."""
    if images.pool_sums is not None:
        sums = images.pool_sums[images.indices.numpy()].sum(0)
    else:
        sums = np.zeros(6, np.int64)
        for start in range(0, len(images), CHUNK):
            sums += image_sums(images.pixels(slice(start, start + CHUNK))).sum(0)
    mean, square = sums.reshape(2, 3) / (len(images) * images.size[0] * images.size[1])
    variance = square - mean**2
    red, green, blue = (mean / 255).tolist()
    red_std, green_std, blue_std = (np.sqrt(np.maximum(variance, 0)) / 255).tolist()
    return (red, green, blue), (red_std, green_std, blue_std)


@dataclass(frozen=True)
class Splits:
    """The train, validation and test subsets of a dataset, and what is needed to split it the same way again.

    The three share one pool of images. Nothing is read before it is needed.
    """

    name: str
    split: str
    seed: int
    sha256: str
    train: ImageSet
    val: ImageSet
    test: ImageSet
    fit: Fit = "crop"
    """how oblong pictures became squares when they were imported"""

    @property
    def mean(self) -> Triple:
        """The mean of each channel over the training images, with pixels from 0 to 1."""
        return self._statistics[0]

    @property
    def std(self) -> Triple:
        """The standard deviation of each channel over the training images, with pixels from 0 to 1."""
        return self._statistics[1]

    @cached_property
    def _statistics(self) -> tuple[Triple, Triple]:
        return statistics(self.train)

    def subset(self, name: Subset) -> ImageSet:
        """The subset of this name."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    def resized(self, side: int) -> "Splits":
        """The same splits of images with this shorter side."""
        train, val, test = (self.subset(name).resized(side) for name in SUBSETS)
        return replace(self, train=train, val=val, test=test)

    def __repr__(self) -> str:
        height, width = self.train.size
        counts = f"{len(self.train):,} train, {len(self.val):,} val, {len(self.test):,} test"
        kinds = f"{len(self.train.classes)} classes"
        return f"Splits({self.name}: {counts} images of {width}x{height}, {kinds}, {self.split} split {self.seed})"
