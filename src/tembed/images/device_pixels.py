"""Crop, flip and normalise a batch of images on the device that holds them: the bits of `tembed.images.pixels`."""

from typing import NamedTuple

import torch
from torch import Tensor

from tembed.common.arrays import Triple
from tembed.images.pixels import mean_row, padding, scale_shift


class DeviceColours(NamedTuple):
    """A normalisation on a device, ``x * scale + shift``, and the mean colour as bytes, each ``(3,)``."""

    scale: Tensor
    shift: Tensor
    mean: Tensor


def device_colours(mean: Triple, std: Triple, device: torch.device) -> DeviceColours:
    """The normalisation by this mean and standard deviation."""
    arrays = (*scale_shift(tuple(mean), tuple(std), 1), mean_row(tuple(mean), 1))
    return DeviceColours(*(torch.tensor(array, device=device) for array in arrays))


def crop_on_device(images: Tensor, which: Tensor, crops: Tensor, mean: Tensor) -> Tensor:
    """The images at these positions, mirrored and cropped as by `cropped`: bytes ``(n, H, W, 3)``.

    ``images``: bytes ``(N, H, W, 3)``. ``which``: ``(n,)``. ``crops``: top, left and flip of each image, ``(3, n)``.
    ``mean``: the colour of the padding, ``(3,)``.
    """
    height, width = images.shape[1:3]
    top, left, flip = crops[:, :, None]
    rows = torch.arange(-padding(height), height - padding(height), device=images.device) + top
    columns = torch.arange(-padding(width), width - padding(width), device=images.device) + left
    inside = _within(rows, height)[:, :, None] & _within(columns, width)[:, None, :]
    columns = torch.where(flip.bool(), width - 1 - columns, columns)
    rows, columns = rows.clamp_(0, height - 1), columns.clamp_(0, width - 1)
    found = images[which[:, None, None], rows[:, :, None], columns[:, None, :]]
    return torch.where(inside[..., None], found, mean)


def _within(positions: Tensor, side: int) -> Tensor:
    return (positions >= 0) & (positions < side)


def normalise_on_device(images: Tensor, colours: DeviceColours) -> Tensor:
    """Bytes ``(n, H, W, 3)`` to floats ``(n, 3, H, W)`` in channels-last memory, as `normalised` does."""
    return images.float().mul_(colours.scale).add_(colours.shift).permute(0, 3, 1, 2)
