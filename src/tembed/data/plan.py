"""What a training epoch shows, in which order, cut and flipped how: the randomness without the pixels.

A plan is a pure function of the seed and the epoch's number, and a step is a stretch of it. So nothing about
randomness needs saving: any step of any epoch can be drawn again, on any worker.
"""

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray


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
