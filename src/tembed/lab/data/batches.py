"""Batches for training and evaluation: one array, and a few operations on a whole batch at a time.

The paper augments with a zero-padded random crop and a horizontal flip (§4). Order, crops and flips are a pure function
of (seed, epoch, step): any step can be replayed, and a run resumes at any step without stored state.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.common.arrays import Int64, UInt8
from tembed.common.errors import TembedError
from tembed.lab.data.image_set import ImageSet

Triple = tuple[float, float, float]
Flips = Literal["random", "alternating"]


class EpochDraws(NamedTuple):
    """The random draws of one epoch, each ``(N,)``.

    ``order``: which image comes when. ``top``, ``left``: the corner of its crop in the padded image. ``flip``: whether
    it is mirrored.
    """

    order: Int64
    top: Int64
    left: Int64
    flip: NDArray[np.bool_]


@lru_cache(maxsize=4)
def draw_epoch(count: int, height: int, width: int, seed: int, epoch: int, flips: Flips = "random") -> EpochDraws:
    """Order, crops and flips of one epoch, which do not depend on the batch size or the number of workers."""
    dice = _dice(seed, epoch)
    draws = EpochDraws(
        order=torch.randperm(count, generator=dice).numpy(),
        top=torch.randint(2 * padding(height) + 1, (count,), generator=dice).numpy(),
        left=torch.randint(2 * padding(width) + 1, (count,), generator=dice).numpy(),
        flip=torch.randint(2, (count,), generator=dice).bool().numpy(),
    )
    if flips == "random":
        return draws
    first = torch.randint(2, (count,), generator=_dice(seed, "flips")).bool().numpy()  # of each image, in epoch 0
    return draws._replace(flip=first[draws.order] ^ bool(epoch % 2))


def _dice(seed: int, name: int | str) -> torch.Generator:
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def padding(side: int) -> int:
    """The padding on each edge: 4 pixels for a side of 32, and in proportion for other sides."""
    return round(side / 8)


def shares(count: int, batch_size: int, workers: int) -> Int64:
    """Where each worker's share of each batch begins in the order of the epoch: ``(steps, workers + 1)``.

    Row ``s`` ends where row ``s + 1`` begins, so the shares cover each image once. Within a batch they differ by at
    most one image.
    """
    first = np.arange(0, count, batch_size)
    size = np.minimum(batch_size, count - first)
    return first[:, None] + np.arange(workers + 1) * size[:, None] // workers


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of an image set: float32 ``(n, 3, H, W)`` in channels-last memory, with labels ``(n,)``.

    Training (``augment=True``) shuffles every epoch, crops from the image padded by an eighth of its side, and flips
    with probability one half. With ``flips="alternating"``, an image that is flipped in one epoch is not flipped in the
    next, so that two epochs show both mirror images of each. Evaluation (``augment=False``) shows each image unchanged,
    in its natural order. Either way an epoch shows each image exactly once: nothing is dropped, and the last batch is
    smaller if ``batch_size`` does not divide the count.

    ``mean`` and ``std`` are those of the training images, with pixels from 0 to 1. The padding is the mean colour,
    rounded to a byte, so that it is zero after normalisation (to half a grey level). Zeros in the raw image would be
    black bars, which only tell the network which crop was taken.

    ``batch_size`` counts the whole batch, and each of ``world_size`` workers takes its share of it. A batch is drawn
    with its augmentation before it is shared out, so a step sees the same pictures for any number of workers. Shares
    differ by at most one image: to match one process exactly, weight each worker's mean loss by
    ``world_size * n / count(step)``.
    """

    images: ImageSet
    batch_size: int
    _: KW_ONLY
    mean: Triple
    std: Triple
    seed: int = 0
    augment: bool = True
    flips: Flips = "random"
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        total = len(self.images)
        if total < 1:
            raise TembedError("there are 0 images to make batches of; give at least 1")
        if self.batch_size < 1:
            raise TembedError(f"`batch_size` is {self.batch_size}; it must be at least 1")
        if min(self.std) <= 0:
            raise TembedError(f"a channel of the images is constant (std {self.std}), so it cannot be normalised")
        if not 0 <= self.rank < self.world_size:
            raise TembedError(f"`rank` is {self.rank}; it must be from 0 to {self.world_size - 1}")
        if not self.augment:
            return
        if self.batch_size > total:
            raise TembedError(
                f"`batch_size` is {self.batch_size}, but there are only {total} training images: give at most {total}"
            )
        smallest = total % self.batch_size or self.batch_size
        if smallest < self.world_size:
            raise TembedError(
                f"{total} images in batches of {self.batch_size} leave a batch of {smallest}, too small for "
                f"{self.world_size} workers: choose another `batch_size`"
            )

    def __len__(self) -> int:
        """Steps per epoch."""
        return len(self._shares)

    def count(self, step: int) -> int:
        """Images in this step's batch, over all workers."""
        self._share(step)
        return int(self._shares[step, -1] - self._shares[step, 0])

    def indices(self, epoch: int, step: int) -> Tensor:
        """The positions in ``images`` of this worker's images in this step: ``(n,)``."""
        share = self._share(step)
        if self.augment:
            return torch.from_numpy(self._draws(epoch).order[share].copy())
        return torch.arange(share.start, share.stop)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """This worker's images and labels."""
        share = self._share(step)
        if not self.augment:
            return self._normalised(self._rows[share]), self.images.labels[share].clone()
        draws = self._draws(epoch)
        return self.pictures(draws, share), torch.from_numpy(self._labels[draws.order[share]])

    def pictures(self, draws: EpochDraws, share: slice) -> Tensor:
        """The images of a share of the order in ``draws``, cropped and flipped as it says."""
        return self._normalised(self._crops(draws, share))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, starting at step ``start``."""
        for step in range(start, len(self)):
            yield self.batch(epoch, step)

    # --- which worker sees which images

    @cached_property
    def _shares(self) -> Int64:
        return shares(len(self.images), self.batch_size, self.world_size)

    def _share(self, step: int) -> slice:
        if not 0 <= step < len(self._shares):
            raise TembedError(f"there is no step {step} in an epoch of {len(self)} steps (the first is 0)")
        return slice(*self._shares[step, self.rank : self.rank + 2].tolist())

    def _draws(self, epoch: int) -> EpochDraws:
        return draw_epoch(*self._rows.shape[:2], self._width, self.seed, epoch, self.flips)

    # --- pixels, as rows of bytes (n, H, W * 3), the channels of a pixel side by side

    @cached_property
    def _rows(self) -> UInt8:
        return self.images.images.permute(0, 2, 3, 1).contiguous().flatten(2).numpy()

    @cached_property
    def _width(self) -> int:
        return self.images.size[1]

    @cached_property
    def _labels(self) -> Int64:
        return self.images.labels.numpy()

    @cached_property
    def _padded(self) -> UInt8:
        """All images, then all their mirror images, stacked vertically and padded: ``(lines, bytes)``.

        Neighbours share their padding: the bytes to the right of a row are those to the left of the next row, and the
        lines below an image are those above the next one. This copy takes two and a half times the dataset's memory.
        """
        total, height, width = *self._rows.shape[:2], self._width
        above, before = padding(height), padding(width)
        colour = np.rint(np.array(self.mean) * 255).astype(np.uint8)
        lines = np.empty((above + 2 * total * (height + above) + 1, 3 * (before + width)), dtype=np.uint8)
        lines[:] = np.tile(colour, before + width)
        inside = lines[above:-1].reshape(2, total, height + above, before + width, 3)[:, :, :height, before:]
        inside[0] = self._rows.reshape(total, height, width, 3)
        for channel in range(3):  # five times faster than all three at once
            inside[1, ..., channel] = inside[0, :, :, ::-1, channel]
        return lines

    @cached_property
    def _runs(self) -> UInt8:
        """A view of the padded bytes whose row ``k`` starts at byte ``k`` and is as long as a crop.

        A crop with the row stride of the padded image is one contiguous run of bytes, so a batch of crops is one
        indexing operation.
        """
        lines, height = self._padded, self._rows.shape[1]
        run = (height - 1) * lines.shape[1] + 3 * self._width
        return np.ndarray((lines.size - run + 1, run), np.uint8, lines, strides=(1, 1))

    def _crops(self, draws: EpochDraws, share: slice) -> UInt8:
        """The cropped and flipped images of a share."""
        total, height, row = self._rows.shape
        pitch = self._padded.shape[1]
        image = draws.order[share] + total * draws.flip[share]
        line = image * (height + padding(height)) + draws.top[share]
        runs = self._runs[line * pitch + 3 * draws.left[share]]
        return np.ndarray((len(runs), height, row), np.uint8, runs, strides=(runs.shape[1], pitch, 1))

    @cached_property
    def _scale_shift(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``x * scale + shift`` is ``(x / 255 - mean) / std``, for all values of an image."""
        mean, std, pixels = np.array(self.mean), np.array(self.std), self._rows.shape[1] * self._width
        scale, shift = (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)
        return np.tile(scale, pixels), np.tile(shift, pixels)

    def _normalised(self, rows: UInt8) -> Tensor:
        """Floats ``(n, 3, H, W)``. In NumPy, because waking torch's threads takes longer than the work itself."""
        scale, shift = self._scale_shift
        floats = rows.astype(np.float32, order="C").reshape(len(rows), len(scale))  # a share may be empty
        floats *= scale
        floats += shift
        return torch.from_numpy(floats).view(*rows.shape[:2], self._width, 3).permute(0, 3, 1, 2)
