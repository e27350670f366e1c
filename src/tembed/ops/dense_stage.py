"""A stage of DenseNet without a concatenation: all its maps side by side in one, each written once (CPU training).

The plain form copies all the maps so far for every layer, takes their statistics again, and adds their gradients up
one by one. Here a layer writes its few channels into a map that was made for the whole stage, the statistics of a
channel are taken once, when it is written, and backward adds each layer's gradient into a map like it. The
mathematics is the same.
"""

from collections.abc import Sequence
from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tembed.maximizers.bn_relu import Affine, BNReLU, has_listeners
from tembed.ops import bn_relu as kernel
from tembed.ops.conv3x3 import Conv3x3, map_gradient, weight_gradient

VECTOR = 16
"""Convolutions write this many channels faster than fewer."""
PARTS = 16
"""A product over all pixels is faster in so many parts, which fit into the cache and share out among threads."""


class DenseLayer(nn.Module):
    """1x1 to four times the growth, 3x3 to the growth, appended to the input (Huang et al. 2017)."""

    def __init__(self, channels: int, growth: int):
        super().__init__()
        self.preact = BNReLU(channels)
        self.reduce = nn.Conv2d(channels, 4 * growth, 1)
        self.norm = BNReLU(4 * growth)
        self.grow = Conv3x3(4 * growth, growth, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(self.norm(self.reduce(self.preact(x))))], dim=1)


class DenseStage(nn.Sequential):
    """Dense layers, and what may follow them."""

    def forward(self, x: Tensor) -> Tensor:
        layers = [layer for layer in self if isinstance(layer, DenseLayer)]
        if not _fusible(layers, x):
            return super().forward(x)
        x = _fused(layers, x)
        for part in list(self)[len(layers) :]:
            x = part(x)
        return x


def _fusible(layers: Sequence[DenseLayer], x: Tensor) -> bool:
    """In training on the CPU, where every part is as it was built and nobody listens to it."""
    for layer in layers:
        parts = (layer, layer.preact, layer.reduce, layer.norm, layer.grow)
        if any(map(has_listeners, parts)):
            return False
        if any(type(bn) is not BNReLU or not bn.follows_batch for bn in (layer.preact, layer.norm)):
            return False
    return bool(layers) and layers[0].preact.has_kernel(x)


def _fused(layers: Sequence[DenseLayer], x: Tensor) -> Tensor:
    parameters = []
    for layer in layers:
        for part in (layer.preact, layer.reduce, layer.norm, layer.grow):
            parameters += [part.weight, part.bias]
    return DenseFunction.apply(layers, x, *parameters)


class DenseFunction(torch.autograd.Function):
    """The layers of a stage: ``x`` and what each of them adds, side by side."""

    @staticmethod
    def forward(ctx: Any, layers: Sequence[DenseLayer], x: Tensor, *parameters: Tensor) -> Tensor:
        library = kernel.load()
        assert library is not None
        width, growth = x.shape[1], layers[0].grow.out_channels
        full = width + len(layers) * growth
        stage = torch.empty((len(x), full, *x.shape[2:]), memory_format=torch.channels_last)
        mean, variance, count = torch.empty(full), torch.empty(full), stage.numel() // full

        def append(start: int, part: Tensor) -> None:
            end = start + part.shape[1]
            stage[:, start:end] = part
            mean[start:end], variance[start:end] = kernel.statistics(library, stage[:, start:end])

        append(0, x)
        kept = []
        for layer in layers:
            before = layer.preact.follow(mean[:width], variance[:width], count)
            y = kernel.forward(library, stage[:, :width], before.scale, before.shift)
            inner = F.conv2d(y, layer.reduce.weight, layer.reduce.bias)
            after = layer.norm.follow(*kernel.statistics(library, inner), count)
            z = kernel.forward(library, inner, after.scale, after.shift)
            assert layer.grow.bias is not None
            grown = F.conv2d(z, _filled(layer.grow.weight), _filled(layer.grow.bias), padding=1)
            append(width, grown[:, :growth])
            kept += [y, inner, z, layer.reduce.weight, layer.grow.weight, *before, *after]
            width += growth
        ctx.save_for_backward(stage, mean, *kept)
        ctx.width, ctx.growth = x.shape[1], growth
        return stage

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        library = kernel.load()
        assert library is not None
        stage, mean, *kept = ctx.saved_tensors
        # Grows to the gradient of every map of the stage.
        gathered = kernel.Gathered(library, stage, mean, g.clone(memory_format=torch.channels_last))
        gradients: list[Tensor | None] = []
        width = stage.shape[1]
        while kept:
            y, inner, z, reduce, grow, *affines = kept[-13:]
            del kept[-13:]
            before, after = Affine(*affines[:4]), Affine(*affines[4:])
            width -= ctx.growth
            g_grown = gathered.settle(width, width + ctx.growth)
            filled = _filled(g_grown, dim=1)
            g_z = map_gradient(filled, z, _filled(grow))
            g_grow = weight_gradient(g_grown, z)
            g_inner, g_after, g_after_bias = kernel.backward(library, g_z, inner, *after)
            g_y, g_reduce, g_reduce_bias = _pointwise_backward(g_inner, y, reduce)
            g_before, g_before_bias = gathered.add(g_y, before.scale, before.shift, before.invstd)
            gradients = [
                *(g_before, g_before_bias, g_reduce, g_reduce_bias, g_after, g_after_bias),
                *(g_grow, filled.sum((0, 2, 3))[: ctx.growth]),
                *gradients,
            ]
        return None, gathered.settle(0, ctx.width).contiguous(memory_format=torch.channels_last), *gradients


def _filled(x: Tensor, dim: int = 0) -> Tensor:
    """``x`` with zeros behind it along ``dim``, to whole vectors."""
    shape = list(x.shape)
    shape[dim] = -(-shape[dim] // VECTOR) * VECTOR
    layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    filled = torch.empty(shape, memory_format=layout).zero_()
    filled.narrow(dim, 0, x.shape[dim]).copy_(x)
    return filled


def _pointwise_backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a 1x1 convolution for the map, the weight and the bias; the second is faster by products."""
    rows, columns = (map.permute(0, 2, 3, 1).flatten(0, 2) for map in (g, x))
    parts = gcd(len(rows), PARTS)
    left, right = (map.reshape(parts, -1, map.shape[1]) for map in (rows, columns))
    return map_gradient(g, x, weight), torch.bmm(left.mT, right).sum(0).view_as(weight), rows.sum(0)
