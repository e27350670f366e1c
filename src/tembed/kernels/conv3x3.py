"""3x3 convolutions with a kernel for the gradient of the weights (``conv_weight.c``).

Torch's weight gradient takes twice as long as its forward pass or its input gradient.
"""

import ctypes
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from tembed.kernels.autograd import torch_gradients, wants_double_backward
from tembed.kernels.build import Floats, Kernel, Map, MapSlice, is_eager_mode, is_map, pixel_step

IN_TILE = 16
"""Input channels of a tile, as ``IN`` in ``conv_weight.c``."""
CHUNK_PIXELS = 128
"""Approximate number of pixels that the kernel copies and multiplies together."""


class ConvShape(ctypes.Structure):
    """The struct ``conv_shape`` of ``conv_weight.c``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("images", "height", "width", "channels")),
        *((name, ctypes.c_int64) for name in ("g_height", "g_width", "g_channels", "g_step")),
        *((name, ctypes.c_int64) for name in ("side", "stride", "padding", "chunk_images", "chunk_rows")),
        ("threads", ctypes.c_int32),
    )


KERNEL = Kernel(
    "conv_weight",
    ConvShape,
    {"tembed_conv_weight": (Map, MapSlice, Floats, Floats, Floats, ctypes.c_int64, ctypes.c_int64)},
)


def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None without a compiler."""
    return KERNEL.load()


class Conv3x3(nn.Conv2d):
    """A 3x3 convolution with padding 1. The kernel computes its weight gradient where `has_kernel` is true."""

    def __init__(self, channels: int, out: int, *, stride: int = 1, bias: bool = False):
        super().__init__(channels, out, 3, stride=stride, padding=1, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        if self.has_kernel(input):
            return Conv3x3Function.apply(input, self.weight, self.bias, self.stride[0])
        return super().forward(input)

    def has_kernel(self, x: Tensor) -> bool:
        """Whether the kernel computes the weight gradient for this map."""
        usual = torch.is_grad_enabled() and self.weight.requires_grad and is_eager_mode()
        return (
            usual
            and fills_tiles(self.in_channels, self.out_channels)
            and is_map(x)
            and is_map(self.weight)
            and load() is not None
        )


def plain_conv3x3(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """The convolution by torch."""
    return F.conv2d(x, weight, bias, stride, padding=1)


class Conv3x3Function(torch.autograd.Function):
    """A convolution by torch with the weight gradient by the kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.stride = stride
        return plain_conv3x3(x, weight, bias, stride)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if wants_double_backward():
            return *torch_gradients(partial(plain_conv3x3, stride=ctx.stride), (x, weight, bias), g), None
        g = g.contiguous(memory_format=torch.channels_last)
        g_x = input_gradient(g, x, weight, ctx.stride) if ctx.needs_input_grad[0] else None
        return g_x, weight_gradient(g, x, ctx.stride), None if bias is None else g.sum((0, 2, 3)), None


def input_gradient(g: Tensor, x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Gradient with respect to the input of a same-padded convolution."""
    padding = weight.shape[2] // 2
    return torch.ops.aten.convolution_backward(
        g, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, False, False]
    )[0]


def weight_gradient(g: Tensor, x: Tensor, stride: int = 1) -> Tensor:
    """Gradient for the weights of a 3x3 convolution, in channels-last layout: ``(out, in, 3, 3)``.

    ``g``, the gradient of the output, may be a slice of a map's channels. Falls back to torch where the kernel does
    not apply.
    """
    fits = fills_tiles(x.shape[1], g.shape[1]) and is_map(x) and len(x) > 0
    fits = fits and g.dtype == x.dtype and MapSlice.has_layout(g)
    library = load() if fits else None
    if library is None:
        return conv2d_weight(x, (g.shape[1], x.shape[1], 3, 3), g, stride, padding=1)
    images, channels, height, width = x.shape
    _, out, g_height, g_width = g.shape
    chunk_rows = min(g_height, max(1, CHUNK_PIXELS // g_width))
    chunk_images = min(images, max(1, CHUNK_PIXELS // (chunk_rows * g_width))) if chunk_rows == g_height else 1
    threads = min(torch.get_num_threads(), images)
    g_room = chunk_images * chunk_rows * g_width * out
    x_room = chunk_images * ((chunk_rows - 1) * stride + 3) * ((g_width - 1) * stride + 3) * IN_TILE
    # The result has its own memory: a view of the sums of all threads would keep them all alive in `.grad`.
    result = x.new_empty(out, 3, 3, channels)
    sums, copies = x.new_empty(threads - 1, *result.shape), x.new_empty(threads * (g_room + x_room))
    sizes = (images, height, width, channels, g_height, g_width, out, pixel_step(g), 3, stride, 1)
    shape = ConvShape(*sizes, chunk_images, chunk_rows, threads)
    library.tembed_conv_weight(shape, x, g, result, sums, copies, g_room, g_room + x_room)
    return result.permute(0, 3, 1, 2)


def fills_tiles(channels: int, out: int) -> bool:
    """Whether the kernel's tiles cover these numbers of channels exactly."""
    return channels % IN_TILE == 0 and out % 2 == 0 and out > 2
