"""Calls ``conv_weight.c``: the gradient of a convolution's weights, channels-last in float32."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tembed.ops.build import compiled, pixel_step, pointers

SOURCE = Path(__file__).parent / "csrc" / "conv_weight.c"
IN = 16
"""Input channels of a tile."""
PIXELS = 128
"""About as many in a block."""


class Shape(ctypes.Structure):
    """The struct ``shape`` of ``conv_weight.c``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("images", "height", "width", "channels")),
        *((name, ctypes.c_int64) for name in ("g_height", "g_width", "g_channels", "g_step")),
        *((name, ctypes.c_int64) for name in ("side", "stride", "padding", "block_images", "block_rows")),
        ("threads", ctypes.c_int32),
    )


def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it cannot be had."""
    return compiled(SOURCE)


def fits(channels: int, out: int) -> bool:
    """Whether these numbers of channels come in whole tiles."""
    return channels % IN == 0 and out % 2 == 0 and out > 2


def weight_gradient(library: ctypes.CDLL, x: Tensor, g: Tensor, side: int, stride: int, padding: int) -> Tensor:
    """Of square kernels, from the map and the gradient of the output, which may be a slice of a map's channels."""
    images, channels, height, width = x.shape
    _, out, g_height, g_width = g.shape
    step = pixel_step(g)
    rows = min(g_height, max(1, PIXELS // g_width))
    together = min(images, max(1, PIXELS // (rows * g_width))) if rows == g_height else 1
    threads = min(torch.get_num_threads(), images)
    of_g = together * rows * g_width * out
    room = of_g + together * ((rows - 1) * stride + side) * ((g_width - 1) * stride + side) * IN
    sums, copies = torch.empty(threads, out, side, side, channels), torch.empty(threads * room)
    numbers = (images, height, width, channels, g_height, g_width, out, step, side, stride, padding, together, rows)
    rooms = (ctypes.c_int64(of_g), ctypes.c_int64(room))
    shape = ctypes.byref(Shape(*numbers, threads))
    library.tembed_conv_weight(shape, *pointers(x, g, sums, copies), *rooms)
    return sums[0].permute(0, 3, 1, 2)
