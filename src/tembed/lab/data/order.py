"""Who sees which image when, and how it is cropped and flipped.

Everything is a pure function of (seed, epoch, step, rank, world size): any step can be replayed, and a run resumes at
any step without stored state. The pixels are elsewhere: a source of tensors asks an `Order` for positions.
"""

import hashlib
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import torch

from tembed.common.arrays import Int64
from tembed.common.errors import TembedError
from tembed.images.pixels import Crops, padding

Flips = Literal["random", "alternating"]


@dataclass(frozen=True)
class Order:
    """Which of ``total`` images a worker sees in each step of each epoch.

    With ``shuffle``, for training, every epoch has another order; without it, for evaluation, the order is the natural
    one. Either way an epoch shows each image exactly once: nothing is dropped, and the last batch is smaller if
    ``batch_size`` does not divide the total.

    ``batch_size`` counts the whole batch, and each of ``world_size`` workers takes its share of it. A batch is drawn
    with its augmentation before it is shared out, so a step sees the same pictures for any number of workers. Shares
    differ by at most one image: to match one process exactly, weight each worker's mean loss by
    ``world_size * n / count(step)``.
    """

    total: int
    batch_size: int
    _: KW_ONLY
    shuffle: bool = True
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.total < 1:
            raise TembedError("there are 0 images to make batches of; give at least 1")
        if self.batch_size < 1:
            raise TembedError(f"`batch_size` is {self.batch_size}; it must be at least 1")
        if not 0 <= self.rank < self.world_size:
            raise TembedError(f"`rank` is {self.rank}; it must be from 0 to {self.world_size - 1}")
        if not self.shuffle:
            return
        if self.batch_size > self.total:
            raise TembedError(
                f"`batch_size` is {self.batch_size}, but there are only {self.total} training images: give at most "
                f"{self.total}"
            )
        smallest = self.total % self.batch_size or self.batch_size
        if smallest < self.world_size:
            raise TembedError(
                f"{self.total} images in batches of {self.batch_size} leave a batch of {smallest}, too small for "
                f"{self.world_size} workers: choose another `batch_size`"
            )

    def __len__(self) -> int:
        """Steps per epoch."""
        return len(self._shares)

    def count(self, step: int) -> int:
        """Images in this step's batch, over all workers."""
        self.share(step)
        return int(self._shares[step, -1] - self._shares[step, 0])

    def share(self, step: int) -> slice:
        """This worker's part of the step's batch, as a slice of the epoch."""
        if not 0 <= step < len(self):
            raise TembedError(f"there is no step {step} in an epoch of {len(self)} steps (the first is 0)")
        return slice(*self._shares[step, self.rank : self.rank + 2].tolist())

    def positions(self, epoch: int, step: int) -> Int64:
        """The positions of this worker's images in this step: ``(n,)``."""
        share = self.share(step)
        if not self.shuffle:
            return np.arange(share.start, share.stop)
        return draw_order(self.total, self.seed, epoch)[share].copy()

    @cached_property
    def _shares(self) -> Int64:
        return shares(self.total, self.batch_size, self.world_size)


def shares(total: int, batch_size: int, workers: int) -> Int64:
    """Where each worker's share of each batch begins in the order of the epoch: ``(steps, workers + 1)``.

    Row ``s`` ends where row ``s + 1`` begins, so the shares cover each image once. Within a batch they differ by at
    most one image.
    """
    first = np.arange(0, total, batch_size)
    size = np.minimum(batch_size, total - first)
    return first[:, None] + np.arange(workers + 1) * size[:, None] // workers


@lru_cache(maxsize=4)
def draw_order(total: int, seed: int, epoch: int) -> Int64:
    """The order of the images in an epoch, which does not depend on the batch size or the number of workers."""
    return torch.randperm(total, generator=dice_of(seed, epoch)).numpy()


@lru_cache(maxsize=4)
def draw_crops(total: int, height: int, width: int, seed: int, epoch: int, flips: Flips = "random") -> Crops:
    """The crops of an epoch, in the order of the epoch.

    An image is flipped with probability one half. With ``flips="alternating"``, an image that is flipped in one epoch
    is not flipped in the next, so that two epochs show both mirror images of each.
    """
    dice = dice_of(seed, epoch)
    order = torch.randperm(total, generator=dice).numpy()  # the first draw of the epoch is its order
    crops = Crops(
        top=torch.randint(2 * padding(height) + 1, (total,), generator=dice).numpy(),
        left=torch.randint(2 * padding(width) + 1, (total,), generator=dice).numpy(),
        flip=torch.randint(2, (total,), generator=dice).bool().numpy(),
    )
    if flips == "random":
        return crops
    first = torch.randint(2, (total,), generator=dice_of(seed, "flips")).bool().numpy()  # of each image, in epoch 0
    return crops._replace(flip=first[order] ^ bool(epoch % 2))


def dice_of(seed: int, name: int | str) -> torch.Generator:
    """Random numbers for one purpose: an epoch, or a name."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
