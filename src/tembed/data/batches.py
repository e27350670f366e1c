"""Batches for training and evaluation: one array, and a few operations on a whole batch at a time.

The paper augments with a zero-padded random crop and a horizontal flip (§4). Order and augmentation come
from ``plan`` and are a pure function of (seed, epoch, step): any step can be replayed, and a run resumes at
any step, with nothing stored.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.data.types import ImageSet
from tembed.errors import TembedError


class Plan(NamedTuple):
    """An epoch, place by place, each ``(N,)``.

    ``order``: which image. ``top``, ``left``: the corner of its crop in the padded image. ``flip``:
    mirrored or not.
    """

    order: NDArray[np.int64]
    top: NDArray[np.int64]
    left: NDArray[np.int64]
    flip: NDArray[np.bool_]


def padding(side: int) -> int:
    """4 pixels at 32, in proportion at other sizes."""
    return round(side / 8)


def shares(count: int, batch_size: int, workers: int) -> NDArray[np.int64]:
    """Where each worker's share of each batch begins in the epoch's order: ``(steps, workers + 1)``.

    Row ``s`` ends where row ``s + 1`` begins, so the shares cover each place once; in a batch they differ
    by at most one image.
    """
    first = np.arange(0, count, batch_size)
    size = np.minimum(batch_size, count - first)
    return first[:, None] + np.arange(workers + 1) * size[:, None] // workers


@lru_cache(maxsize=4)
def draw_plan(count: int, height: int, width: int, seed: int, epoch: int) -> Plan:
    """Shuffle, crop and flip for one epoch, whatever the batch size and the number of workers."""
    digest = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
    dice = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
    return Plan(
        order=torch.randperm(count, generator=dice).numpy(),
        top=torch.randint(2 * padding(height) + 1, (count,), generator=dice).numpy(),
        left=torch.randint(2 * padding(width) + 1, (count,), generator=dice).numpy(),
        flip=torch.randint(2, (count,), generator=dice).bool().numpy(),
    )


Bytes = NDArray[np.uint8]
Triple = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of an image set: float32 ``(n, 3, H, W)`` in channels-last memory, with labels ``(n,)``.

    Training (``augment=True``) shuffles every epoch, crops from the image padded by an eighth of its side,
    and flips with chance one half. Evaluation (``augment=False``) shows each image as it is, in its natural
    order. Either way an epoch shows each image exactly once: nothing is dropped, the last batch is smaller
    where the count is not divisible.

    ``mean`` and ``std`` are those of the training images, in units of 255. The padding is the mean colour,
    rounded to a byte, so that it is zero after the normalisation (to half a grey level): zeros in the raw
    image would be black bars, a signal that says nothing but which crop was taken.

    ``batch_size`` counts the whole batch, and each of ``world_size`` workers takes its share of it. A batch
    is drawn with its augmentation before it is shared out, so a step sees the same pictures whatever the
    number of workers. Shares differ by at most one image: to follow one process exactly, weight each
    worker's mean loss by ``world_size * n / count(step)``.
    """

    images: ImageSet
    batch_size: int
    _: KW_ONLY
    mean: Triple
    std: Triple
    seed: int = 0
    augment: bool = True
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        total = len(self.images)
        if self.batch_size < 1 or total < 1:
            raise TembedError(f"batches of {self.batch_size} from {total} images: give at least 1 of each.")
        if min(self.std) <= 0:
            raise TembedError(f"std {self.std}: a channel that never varies cannot be normalised.")
        if not 0 <= self.rank < self.world_size:
            raise TembedError(f"rank {self.rank} of {self.world_size} workers: ranks count from 0.")
        if not self.augment:
            return
        if self.batch_size > total:
            raise TembedError(f"batch size {self.batch_size} for {total} training images: give at most {total}.")
        smallest = total % self.batch_size or self.batch_size
        if smallest < self.world_size:
            raise TembedError(
                f"{total} images in batches of {self.batch_size} make a batch of {smallest}, too few for "
                f"{self.world_size} workers: take another batch size."
            )

    def __len__(self) -> int:
        """Steps per epoch."""
        return len(self._shares)

    def count(self, step: int) -> int:
        """Images in this step's batch, over all workers."""
        self._share(step)
        return int(self._shares[step, -1] - self._shares[step, 0])

    def indices(self, epoch: int, step: int) -> Tensor:
        """Positions in ``images`` of what this worker sees in this step: ``(n,)``."""
        share = self._share(step)
        if self.augment:
            return torch.from_numpy(self._plan(epoch).order[share].copy())
        return torch.arange(share.start, share.stop)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """This worker's images and labels."""
        share = self._share(step)
        if not self.augment:
            return self._normalised(self._rows[share]), self.images.labels[share].clone()
        plan = self._plan(epoch)
        return self._normalised(self._crops(plan, share)), torch.from_numpy(self._labels[plan.order[share]])

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, from step ``start`` on."""
        for step in range(start, len(self)):
            yield self.batch(epoch, step)

    # --- who sees what

    @cached_property
    def _shares(self) -> NDArray[np.int64]:
        return shares(len(self.images), self.batch_size, self.world_size)

    def _share(self, step: int) -> slice:
        if not 0 <= step < len(self._shares):
            raise TembedError(f"there is no step {step} in an epoch of {len(self)} steps (they count from 0).")
        return slice(*self._shares[step, self.rank : self.rank + 2].tolist())

    def _plan(self, epoch: int) -> Plan:
        return draw_plan(*self._rows.shape[:2], self._width, self.seed, epoch)

    # --- pixels, as rows of bytes (n, H, W * 3), the channels of a pixel side by side

    @cached_property
    def _rows(self) -> Bytes:
        return self.images.images.permute(0, 2, 3, 1).contiguous().flatten(2).numpy()

    @cached_property
    def _width(self) -> int:
        return self.images.size[1]

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        return self.images.labels.numpy()

    @cached_property
    def _padded(self) -> Bytes:
        """All images, then all their mirror images, one below the other and padded: ``(lines, bytes)``.

        Neighbours share their padding: what is right of a row is left of the next one, what is below an
        image is above the next one. In all this copy takes two and a half times the dataset's memory.
        """
        total, height, width = *self._rows.shape[:2], self._width
        above, before = padding(height), padding(width)
        colour = np.rint(np.array(self.mean) * 255).astype(np.uint8)
        lines = np.empty((above + 2 * total * (height + above) + 1, 3 * (before + width)), dtype=np.uint8)
        lines[:] = np.tile(colour, before + width)
        inside = lines[above:-1].reshape(2, total, height + above, before + width, 3)[:, :, :height, before:]
        inside[0] = self._rows.reshape(total, height, width, 3)
        for channel in range(3):  # five times as fast as all three at once
            inside[1, ..., channel] = inside[0, :, :, ::-1, channel]
        return lines

    @cached_property
    def _runs(self) -> Bytes:
        """A view of the padded bytes whose row ``k`` is the run from byte ``k`` on, as long as a crop is.

        A crop is one run if its rows keep their distance, so a batch of crops is one look-up here.
        """
        lines, height = self._padded, self._rows.shape[1]
        run = (height - 1) * lines.shape[1] + 3 * self._width
        return np.ndarray((lines.size - run + 1, run), np.uint8, lines, strides=(1, 1))

    def _crops(self, plan: Plan, share: slice) -> Bytes:
        """What a share of the plan shows."""
        total, height, row = self._rows.shape
        pitch = self._padded.shape[1]
        image = plan.order[share] + total * plan.flip[share]
        line = image * (height + padding(height)) + plan.top[share]
        runs = self._runs[line * pitch + 3 * plan.left[share]]
        return np.ndarray((len(runs), height, row), np.uint8, runs, strides=(runs.shape[1], pitch, 1))

    @cached_property
    def _scale_shift(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``x * scale + shift`` is ``(x / 255 - mean) / std``, for all values of an image."""
        mean, std, pixels = np.array(self.mean), np.array(self.std), self._rows.shape[1] * self._width
        scale, shift = (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)
        return np.tile(scale, pixels), np.tile(shift, pixels)

    def _normalised(self, rows: Bytes) -> Tensor:
        """Floats ``(n, 3, H, W)``. In NumPy: torch's threads cost more to wake than so little work takes."""
        scale, shift = self._scale_shift
        floats = rows.astype(np.float32, order="C").reshape(len(rows), len(scale))  # a share may be empty
        floats *= scale
        floats += shift
        return torch.from_numpy(floats).view(*rows.shape[:2], self._width, 3).permute(0, 3, 1, 2)
