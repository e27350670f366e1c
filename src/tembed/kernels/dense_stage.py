"""A stage of DenseNet without concatenations, for training on the CPU.

The plain form copies all maps so far for every layer, computes their statistics again, and sums their gradients one by
one. Here all maps of the stage lie side by side in one map. A layer writes its few channels into it, the statistics of
a channel are computed once, and backward adds each layer's gradient into a map of the same shape.
"""

from collections.abc import Sequence
from functools import partial
from math import gcd
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tembed.kernels import fused_bn_relu as bn_relu
from tembed.kernels.autograd import torch_gradients, wants_double_backward
from tembed.kernels.conv3x3 import input_gradient, weight_gradient
from tembed.kernels.fused_bn_relu import Affine, torch_bn_relu

VECTOR = 16
"""A convolution with this many output channels is faster than one with fewer."""
CHUNKS = 16
"""A product over all pixels is faster in this many chunks, which fit into the cache and spread over the threads."""
WEIGHTS = 8
"""Parameters per layer: weight and bias of its four modules."""


class DenseLayerModules(NamedTuple):
    """What one layer applies: BN-ReLU, 1x1 convolution, BN-ReLU, 3x3 convolution. The convolutions have biases."""

    preact: nn.BatchNorm2d
    reduce: nn.Conv2d
    norm: nn.BatchNorm2d
    grow: nn.Conv2d

    @property
    def weights(self) -> list[Tensor | None]:
        return [tensor for module in self for tensor in (module.weight, module.bias)]


def dense_stage(layers: Sequence[DenseLayerModules], x: Tensor) -> Tensor:
    """``x`` and the channels that the layers append to it: ``(N, C, H, W)`` to ``(N, C + len(layers) * growth, H, W)``.

    This calls no module, so the caller must check that the modules are of their original classes and have no hooks.
    """
    return DenseStageFunction.apply(layers, x, *(tensor for layer in layers for tensor in layer.weights))


def has_kernel(layers: Sequence[DenseLayerModules], x: Tensor) -> bool:
    """Whether the fused form accepts these layers and this map."""
    norms = all(map(bn_relu.uses_batch_statistics, (bn for layer in layers for bn in (layer.preact, layer.norm))))
    return norms and len(layers) > 0 and bn_relu.has_kernel(layers[0].preact, x) and all(map(_is_usual, layers))


def _is_usual(layer: DenseLayerModules) -> bool:
    """Whether the convolutions are a 1x1 and a same-padded 3x3 one with biases, in float32 on the CPU."""

    def geometry(conv: nn.Conv2d) -> tuple:
        return conv.kernel_size, conv.padding, conv.stride, conv.dilation, conv.groups, conv.padding_mode

    plain = ((1, 1), (1, 1), 1, "zeros")  # stride, dilation, groups
    return (
        all(w is not None and w.dtype == torch.float32 and w.device.type == "cpu" for w in layer.weights)
        and geometry(layer.reduce) == ((1, 1), (0, 0), *plain)
        and geometry(layer.grow) == ((3, 3), (1, 1), *plain)
    )


def plain_dense_stage(x: Tensor, *weights: Tensor, eps: Sequence[float]) -> Tensor:
    """The same by torch, with concatenations. ``eps``: one value per normalisation, in order."""
    for n in range(len(weights) // WEIGHTS):
        gamma, beta, reduce, reduce_bias, gamma2, beta2, grow, grow_bias = weights[WEIGHTS * n : WEIGHTS * (n + 1)]
        y = F.conv2d(torch_bn_relu(x, gamma, beta, eps[2 * n]), reduce, reduce_bias)
        z = torch_bn_relu(y, gamma2, beta2, eps[2 * n + 1])
        x = torch.cat([x, F.conv2d(z, grow, grow_bias, padding=1)], dim=1)
    return x


class DenseStageFunction(torch.autograd.Function):
    """Forward and backward of all layers at once."""

    @staticmethod
    def forward(ctx: Any, layers: Sequence[DenseLayerModules], x: Tensor, *weights: Tensor) -> Tensor:
        width, growth = x.shape[1], layers[0].grow.out_channels
        full = width + len(layers) * growth
        shape = (len(x), full, *x.shape[2:])
        stage = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        mean, variance, count = x.new_empty(full), x.new_empty(full), stage.numel() // full

        def append(start: int, channels: Tensor) -> None:
            end = start + channels.shape[1]
            stage[:, start:end] = channels
            mean[start:end], variance[start:end] = bn_relu.statistics(stage[:, start:end])

        append(0, x)
        kept = []
        for layer in layers:
            before = bn_relu.normalize_by(layer.preact, mean[:width], variance[:width], count)
            y = bn_relu.forward(stage[:, :width], before.scale, before.shift)
            inner = F.conv2d(y, layer.reduce.weight, layer.reduce.bias)
            after = bn_relu.normalize_by(layer.norm, *bn_relu.statistics(inner), count)
            z = bn_relu.forward(inner, after.scale, after.shift)
            assert layer.grow.bias is not None
            grown = F.conv2d(z, _zero_padded(layer.grow.weight), _zero_padded(layer.grow.bias), padding=1)
            append(width, grown[:, :growth])
            kept += [y, inner, z, *before, *after]
            width += growth
        ctx.save_for_backward(x, *weights, stage, mean, *kept)
        ctx.layers, ctx.width, ctx.growth = len(layers), x.shape[1], growth
        ctx.eps = [bn.eps for layer in layers for bn in (layer.preact, layer.norm)]
        return stage

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *saved = ctx.saved_tensors
        weights, (stage, mean, *kept) = saved[: WEIGHTS * ctx.layers], saved[WEIGHTS * ctx.layers :]
        if wants_double_backward():
            return None, *torch_gradients(partial(plain_dense_stage, eps=ctx.eps), (x, *weights), g)
        shared = bn_relu.SharedMapGradient(stage, mean, g.clone(memory_format=torch.channels_last))
        gradients: list[Tensor | None] = []
        width = stage.shape[1]
        for n in reversed(range(ctx.layers)):
            y, inner, z, *affines = kept[11 * n : 11 * (n + 1)]
            before, after = Affine(*affines[:4]), Affine(*affines[4:])
            reduce, grow = weights[WEIGHTS * n + 2], weights[WEIGHTS * n + 6]
            width -= ctx.growth
            g_grown = shared.finish(width, width + ctx.growth)
            padded = _zero_padded(g_grown, dim=1)
            g_z = input_gradient(padded, z, _zero_padded(grow))
            g_grow = weight_gradient(g_grown, z)
            g_inner, g_after, g_after_bias = bn_relu.backward(g_z, inner, *after)
            g_y, g_reduce, g_reduce_bias = _pointwise_backward(g_inner, y, reduce)
            g_before, g_before_bias = shared.add(g_y, before.scale, before.shift, before.invstd)
            gradients = [
                *(g_before, g_before_bias, g_reduce, g_reduce_bias, g_after, g_after_bias),
                *(g_grow, padded.sum((0, 2, 3))[: ctx.growth]),
                *gradients,
            ]
        return None, shared.finish(0, ctx.width).contiguous(memory_format=torch.channels_last), *gradients


def _zero_padded(x: Tensor, dim: int = 0) -> Tensor:
    """``x`` with zeros appended along ``dim`` up to a multiple of `VECTOR`."""
    shape = list(x.shape)
    shape[dim] = -(-shape[dim] // VECTOR) * VECTOR
    layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    padded = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=layout).zero_()
    padded.narrow(dim, 0, x.shape[dim]).copy_(x)
    return padded


def _pointwise_backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a 1x1 convolution for the input, the weight (faster by matrix products) and the bias."""
    rows, columns = (map.permute(0, 2, 3, 1).flatten(0, 2) for map in (g, x))
    chunks = gcd(len(rows), CHUNKS)
    left, right = (map.reshape(chunks, -1, map.shape[1]) for map in (rows, columns))
    return input_gradient(g, x, weight), torch.bmm(left.mT, right).sum(0).view_as(weight), rows.sum(0)
