"""Crop, flip, normalise and resize a batch of images.

Images are bytes ``(n, H, W, 3)``, as on disk, until `normalised` turns them into the floats that a network takes. The
work is done in NumPy, because waking torch's threads takes longer than the work itself.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from torch import Tensor

from tembed.common.arrays import Floats, Int64, Triple, UInt8


class Crops(NamedTuple):
    """How each image is cropped, each ``(n,)``.

    ``top``, ``left``: the corner of its crop in the padded image. ``flip``: whether it is mirrored, before the crop.
    """

    top: Int64
    left: Int64
    flip: NDArray[np.bool_]

    def of(self, share: slice) -> "Crops":
        """The crops of a share of the images."""
        return Crops(self.top[share], self.left[share], self.flip[share])


def padding(side: int) -> int:
    """The padding on each edge: 4 pixels for a side of 32, and in proportion for other sides."""
    return round(side / 8)


def cropped(images: UInt8, crops: Crops, mean: Triple) -> UInt8:
    """Images ``(n, H, W, 3)`` that are mirrored, padded by an eighth of their side and cropped to their old size.

    The padding is the mean colour, rounded to a byte, so that it is zero after normalisation (to half a grey level).
    Zeros in the raw image would be black bars, which only tell the network which crop was taken.
    """
    count, height, width, _ = images.shape
    above, before, row = padding(height), padding(width), 3 * width  # whole rows of bytes copy faster than pixels
    padded = np.empty((count, height + 2 * above, row + 6 * before), np.uint8)
    padded[:] = mean_row(tuple(mean), width + 2 * before)
    inside = padded[:, above : above + height, 3 * before : 3 * before + row]
    inside[:] = images.reshape(count, height, row)
    inside[crops.flip] = _mirrored(images[crops.flip]).reshape(-1, height, row)
    corners = (count, 2 * above + 1, 6 * before + 1)
    windows = as_strided(padded, (*corners, height, row), (*padded.strides, *padded.strides[1:]), writeable=False)
    return windows[np.arange(count), crops.top, 3 * crops.left].reshape(images.shape)


@lru_cache(maxsize=8)
def mean_row(mean: tuple[float, ...], width: int) -> UInt8:
    """A row of the mean colour, as bytes."""
    return np.tile(np.rint(np.array(mean) * 255).astype(np.uint8), width)


def _mirrored(images: UInt8) -> UInt8:
    mirrored = np.empty_like(images)
    for channel in range(3):  # several times faster than all three at once
        mirrored[..., channel] = images[:, :, ::-1, channel]
    return mirrored


def normalised(images: UInt8, mean: Triple, std: Triple) -> Tensor:
    """``(x / 255 - mean) / std``: bytes ``(n, H, W, 3)`` to floats ``(n, 3, H, W)`` in channels-last memory."""
    scale, shift = scale_shift(tuple(mean), tuple(std), images.shape[1] * images.shape[2])
    floats = images.reshape(len(images), len(scale)).astype(np.float32)
    floats *= scale
    floats += shift
    return torch.from_numpy(floats.reshape(images.shape)).permute(0, 3, 1, 2)


@lru_cache(maxsize=8)
def scale_shift(mean: tuple[float, ...], std: tuple[float, ...], pixels: int) -> tuple[Floats, Floats]:
    """``x * scale + shift`` is ``(x / 255 - mean) / std``, for all values of an image."""
    scale, shift = 1 / (255 * np.array(std)), -np.array(mean) / np.array(std)
    return np.tile(scale.astype(np.float32), pixels), np.tile(shift.astype(np.float32), pixels)


def resized(images: Tensor, side: int, mode: Literal["area", "bilinear"] = "area") -> Tensor:
    """Images ``(n, C, H, W)`` whose shorter side is ``side``; the memory format stays.

    ``area`` averages over the area of each new pixel. ``bilinear`` interpolates, with antialiasing.
    """
    height, width = images.shape[2:]
    if min(height, width) == side:
        return images
    size = (round(side * height / min(height, width)), round(side * width / min(height, width)))
    return F.interpolate(images, size, mode=mode, antialias=mode == "bilinear")
