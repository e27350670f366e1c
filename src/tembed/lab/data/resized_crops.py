"""Random resized crops: each training image is a random part of a stored one, resized to the side of the input.

For stored images that are larger than what the network gets. The part has 8 to 100 % of the area, and its sides have a
ratio from 3:4 to 4:3, as is usual for ImageNet.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tembed.common.arrays import Int64, Triple, UInt8
from tembed.images.pixels import normalised
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.order import Flips, Order, draw_crops

LEAST_AREA = 0.08
WIDEST = 4 / 3


class Boxes(NamedTuple):
    """A part of each image in pixels, and whether it is mirrored: each ``(n,)``."""

    top: Int64
    left: Int64
    height: Int64
    width: Int64
    flip: NDArray[np.bool_]


@lru_cache(maxsize=4)
def draw_boxes(total: int, height: int, width: int, seed: int, epoch: int, flips: Flips = "random") -> Boxes:
    """The parts of an epoch, in the order of the epoch; flips are those of `draw_crops`.

    Area and ratio (its logarithm) are uniform. A part that would be longer than the image ends at its edges.
    """
    digest = hashlib.blake2b(f"{seed} {epoch} boxes".encode(), digest_size=8).digest()
    dice = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
    area, ratio, down, right = torch.rand(4, total, generator=dice, dtype=torch.float64).numpy()
    side = np.sqrt((LEAST_AREA + (1 - LEAST_AREA) * area) * height * width)
    stretch = np.sqrt(WIDEST ** (2 * ratio - 1))
    tall = np.clip(np.rint(side / stretch), 1, height).astype(np.int64)
    wide = np.clip(np.rint(side * stretch), 1, width).astype(np.int64)
    top = (down * (height - tall + 1)).astype(np.int64)
    left = (right * (width - wide + 1)).astype(np.int64)
    return Boxes(top, left, tall, wide, draw_crops(total, height, width, seed, epoch, flips).flip)


def resize_box(image: UInt8, side: int, box: tuple[int, int, int, int], resample: Image.Resampling) -> UInt8:
    """A part of an image ``(H, W, 3)`` as a square of this side. ``box``: its top, left, height and width."""
    top, left, height, width = box
    part = (left, top, left + width, top + height)
    return np.asarray(Image.fromarray(image).resize((side, side), resample, box=part))


@dataclass(frozen=True, eq=False)
class ResizedCrops:
    """Normalised random parts of images: float32 ``(n, 3, side, side)`` in channels-last memory.

    ``resample``: the filter, the same that resizes the whole images of the evaluation.
    """

    images: ImageSet
    mean: Triple
    std: Triple
    flips: Flips
    side: int
    resample: Image.Resampling = Image.Resampling.LANCZOS

    def tensors(self, order: Order, epoch: int, step: int) -> Tensor:
        share = order.share(step)
        *corners, flips = draw_boxes(order.total, *self.images.size, order.seed, epoch, self.flips)
        found = np.empty((share.stop - share.start, self.side, self.side, 3), np.uint8)
        pixels, boxes = self.images.pixels(order.positions(epoch, step)), np.stack(corners, 1)[share].tolist()
        for row, image, box, flip in zip(found, pixels, boxes, flips[share], strict=True):
            row[:] = resize_box(image, self.side, tuple(box), self.resample)[:, :: -1 if flip else 1]
        return normalised(found, self.mean, self.std)
