"""3x3 convolutions whose weights' gradient is a kernel of our own: torch's is half as fast as its other two."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_weight

from tembed.ops import conv_weight as kernel
from tembed.ops.build import walkable


class Conv3x3(nn.Conv2d):
    """A 3x3 convolution with padding 1.

    In training, channels-last maps in float32 on the CPU take ``kernels/conv_weight.c`` in backward.
    """

    def __init__(self, channels: int, out: int, *, stride: int = 1, bias: bool = False):
        super().__init__(channels, out, 3, stride=stride, padding=1, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        if self.has_kernel(input):
            return Conv3x3Function.apply(input, self.weight, self.bias, self.stride[0])
        return super().forward(input)

    def has_kernel(self, x: Tensor) -> bool:
        """Whether the kernel takes the gradient for this map."""
        usual = torch.is_grad_enabled() and self.weight.requires_grad and not torch.compiler.is_compiling()
        return (
            usual
            and not torch.jit.is_tracing()
            and kernel.fits(self.in_channels, self.out_channels)
            and walkable(x)
            and walkable(self.weight)
            and kernel.load() is not None
        )


class Conv3x3Function(torch.autograd.Function):
    """A convolution by torch, with the gradient of its weights by the kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.bias = stride, bias is not None
        return F.conv2d(x, weight, bias, stride, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        g = g.contiguous(memory_format=torch.channels_last)
        g_x = map_gradient(g, x, weight, ctx.stride) if ctx.needs_input_grad[0] else None
        return g_x, weight_gradient(g, x, ctx.stride), g.sum((0, 2, 3)) if ctx.bias else None, None


def map_gradient(g: Tensor, x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """For the map, of a convolution whose padding keeps the side."""
    padding = weight.shape[2] // 2
    return torch.ops.aten.convolution_backward(
        g, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, False, False]
    )[0]


def weight_gradient(g: Tensor, x: Tensor, stride: int = 1) -> Tensor:
    """For the weights of a 3x3 convolution, by the kernel if it can; ``g`` may be a slice of a map's channels."""
    library = kernel.load()
    if library is None or not kernel.fits(x.shape[1], g.shape[1]):
        return conv2d_weight(x, (g.shape[1], x.shape[1], 3, 3), g, stride, padding=1)
    return kernel.weight_gradient(library, x, g, side=3, stride=stride, padding=1)
