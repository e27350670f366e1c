"""Batch normalisation and ReLU of a channels-last map, with the gradient, in one kernel (``bn_relu.c``).

The map is float32, or bfloat16 under autocast; parameters, statistics and arithmetic are float32. The kernel reads and
writes the map half as often as torch's two operations.
"""

import ctypes
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tembed.kernels.autograd import torch_gradients, wants_double_backward
from tembed.kernels.build import Doubles, Floats, HalfMap, Kernel, Map, is_eager_mode

VALUES_PER_THREAD = 16384
"""Each further thread needs this many values of a map to be worthwhile."""


class MapLayout(ctypes.Structure):
    """The struct ``map_layout`` of ``bn_relu.c``."""

    _fields_ = (
        ("pixels", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("threads", ctypes.c_int32),
    )


def _kernel(map_type: type[Map], *flags: str) -> Kernel:
    scratch = (Doubles, Floats)
    functions = {
        "tembed_bn_statistics": (map_type, *scratch, Floats, Floats),
        "tembed_bn_relu": (map_type, Floats, Floats, map_type),
        "tembed_bn_relu_backward": (map_type, map_type, *[Floats] * 4, *scratch, Floats, map_type, Floats, Floats),
    }
    return Kernel("bn_relu", MapLayout, functions, flags)


KERNEL = _kernel(Map)
KERNELS = {torch.float32: KERNEL, torch.bfloat16: _kernel(HalfMap, "-DBFLOAT16")}
"""The kernel for each type of map."""


class Affine(NamedTuple):
    """Normalisation by a batch's statistics as ``x * scale + shift``, with what its gradient needs. Shapes ``(C,)``."""

    mean: Tensor
    scale: Tensor
    shift: Tensor
    invstd: Tensor


def load(dtype: torch.dtype = torch.float32) -> ctypes.CDLL | None:
    """The compiled kernel for maps of a type, or None if there is none or no compiler."""
    kernel = KERNELS.get(dtype)
    return None if kernel is None else kernel.load()


def loaded(x: Tensor) -> ctypes.CDLL:
    """The compiled kernel for a map. Call this only where `has_kernel` is true."""
    library = load(x.dtype)
    assert library is not None
    return library


def uses_batch_statistics(bn: nn.BatchNorm2d) -> bool:
    """Whether this is batch normalisation in training with its usual settings, which the kernel implements."""
    usual = bn.affine and bn.track_running_stats and bn.momentum is not None
    return bn.training and usual and bn.weight.dtype == torch.float32 and bn.weight.device.type == "cpu"


def has_kernel(bn: nn.BatchNorm2d, x: Tensor) -> bool:
    """Whether the kernel computes ``relu(bn(x))``."""
    # With one value per channel there is no variance: torch raises the error.
    is_map = x.device.type == "cpu" and Map.has_layout(x) and x.numel() > x.shape[1]
    return is_eager_mode() and uses_batch_statistics(bn) and is_map and load(x.dtype) is not None


def torch_bn_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """``relu(bn(x))`` by torch, with the statistics of the batch: the plain form of the kernel."""
    return F.relu(F.batch_norm(x, None, None, weight, bias, True, 0.0, eps))


def bn_relu(bn: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """``relu(bn(x))`` by the kernel: ``(N, C, H, W)`` to the same shape."""
    return BNReLUFunction.apply(bn, x, bn.weight, bn.bias)


class BNReLUFunction(torch.autograd.Function):
    """Keeps the map. Backward recomputes where the ReLU was open."""

    @staticmethod
    def forward(ctx: Any, bn: nn.BatchNorm2d, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        affine = normalize_by(bn, *statistics(x), x.numel() // x.shape[1])
        ctx.save_for_backward(x, weight, bias, *affine)
        ctx.eps = bn.eps
        return forward(x, affine.scale, affine.shift)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, *affine = ctx.saved_tensors
        if wants_double_backward():
            return None, *torch_gradients(partial(torch_bn_relu, eps=ctx.eps), (x, weight, bias), g)
        return None, *backward(g, x, *affine)


def normalize_by(bn: nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int) -> Affine:
    """The normalisation by a batch's statistics over ``count`` values per channel. Updates the running statistics."""
    assert bn.num_batches_tracked is not None
    assert bn.running_mean is not None
    assert bn.running_var is not None
    assert bn.momentum is not None
    bn.num_batches_tracked.add_(1)
    bn.running_mean.lerp_(mean, bn.momentum)
    bn.running_var.lerp_(variance * (count / (count - 1)), bn.momentum)
    invstd = (variance + bn.eps).rsqrt_()
    scale = bn.weight * invstd
    return Affine(mean, scale, torch.addcmul(bn.bias, mean, scale, value=-1), invstd)


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel."""
    layout, *scratch = _prepare(x)
    mean, variance = x.new_empty(2, x.shape[1], dtype=torch.float32)
    loaded(x).tembed_bn_statistics(layout, x, *scratch, mean, variance)
    return mean, variance


def forward(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """``relu(x * scale + shift)``."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    loaded(x).tembed_bn_relu(_layout(x), x, scale, shift, y)
    return y


def backward(
    g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, shift: Tensor, invstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for the map, the scale gamma and the bias, where the statistics are those of the map itself."""
    layout, *scratch = _prepare(x)
    line = mean.new_empty(2 * x.shape[1])
    dx, dgamma, dbeta = torch.empty_like(x), torch.empty_like(mean), torch.empty_like(mean)
    g = g.contiguous(memory_format=torch.channels_last)
    loaded(x).tembed_bn_relu_backward(layout, x, g, mean, scale, shift, invstd, *scratch, line, dx, dgamma, dbeta)
    return dx, dgamma, dbeta


def _layout(x: Tensor) -> MapLayout:
    count, channels, height, width = x.shape
    threads = min(torch.get_num_threads(), 1 + x.numel() // VALUES_PER_THREAD)
    return MapLayout(count * height * width, channels, threads)


def _prepare(x: Tensor) -> tuple[MapLayout, Tensor, Tensor]:
    """The layout, and each thread's scratch memory for sums, in float64 and in float32."""
    layout = _layout(x)
    size = layout.threads * 2 * layout.channels
    return layout, x.new_empty(size, dtype=torch.float64), x.new_empty(size, dtype=torch.float32)
