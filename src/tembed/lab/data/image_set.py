"""The types that travel from the disk to the training loop."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tembed.lab.data.readers.reading import Fit


@dataclass(frozen=True)
class ImageSet:
    """Images of one size with their labels, all in memory.

    ``images``: uint8 ``(N, 3, H, W)``, laid out channels-last in memory. ``labels``: int64 ``(N,)``.
    ``indices``: int64 ``(N,)``, the position of each image in the stored pool. ``part_map``: uint8 ``(N, H, W)``, the
    part that each pixel shows (0 for none; ``k`` for ``parts[k - 1]``), if the dataset knows it. ``files``: the name of
    each image's file, relative to the folder that was imported; None if the dataset was not imported from image files.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    indices: Tensor
    part_map: Tensor | None = None
    parts: tuple[str, ...] = ()
    files: tuple[str, ...] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        height, width = self.size
        return f"ImageSet({len(self):,} images of {width}x{height}, {len(self.classes)} classes)"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[2], self.images.shape[3]

    def subset(self, which: Tensor) -> "ImageSet":
        """The images at these positions, in this order."""
        files = self.files
        if files is not None:
            files = tuple(files[position] for position in torch.arange(len(self))[which].tolist())
        return ImageSet(
            images=self.images[which].contiguous(memory_format=torch.channels_last),
            labels=self.labels[which],
            classes=self.classes,
            indices=self.indices[which],
            part_map=None if self.part_map is None else self.part_map[which],
            parts=self.parts,
            files=files,
        )


@dataclass(frozen=True)
class Splits:
    """The train, validation and test subsets of a dataset, and what is needed to split it the same way again."""

    name: str
    split: str
    seed: int
    sha256: str
    train: ImageSet
    val: ImageSet
    test: ImageSet
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    fit: Fit = "crop"
    """how oblong pictures became squares when they were imported"""

    def __repr__(self) -> str:
        height, width = self.train.size
        counts = f"{len(self.train):,} train, {len(self.val):,} val, {len(self.test):,} test"
        kinds = f"{len(self.train.classes)} classes"
        return f"Splits({self.name}: {counts} images of {width}x{height}, {kinds}, {self.split} split {self.seed})"
