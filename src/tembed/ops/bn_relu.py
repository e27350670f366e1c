"""Calls ``bn_relu.c``: batch normalisation and ReLU of a channels-last map in float32, with its gradient."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tembed.ops.build import compiled, pixel_step, pointers, walkable

SOURCE = Path(__file__).parent / "csrc" / "bn_relu.c"


class Plan(ctypes.Structure):
    """The struct ``plan`` of ``bn_relu.c``."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("threads", ctypes.c_int32),
    )


def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it cannot be had."""
    return compiled(SOURCE)


def fits(x: Tensor) -> bool:
    """Whether the kernel can walk this map."""
    return walkable(x) and x.numel() > x.shape[1]  # of one value a channel torch has the error: there is no variance


def statistics(library: ctypes.CDLL, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel. ``x`` may be a slice of the channels of a map, as in `forward`."""
    plan, sums, part = _prepare(x)
    mean, variance = x.new_empty(x.shape[1]), x.new_empty(x.shape[1])
    library.tembed_bn_statistics(ctypes.byref(plan), *pointers(x, sums, part, mean, variance))
    return mean, variance


def forward(library: ctypes.CDLL, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """``relu(x * scale + shift)``."""
    y = torch.empty(x.shape, memory_format=torch.channels_last)
    library.tembed_bn_relu(ctypes.byref(_plan(x)), *pointers(x, scale, shift, y))
    return y


def backward(
    library: ctypes.CDLL,
    g: Tensor,
    x: Tensor,
    mean: Tensor,
    scale: Tensor,
    shift: Tensor,
    invstd: Tensor,
    other: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for the map, the scale gamma and the bias, where mean and deviation are those of the map itself.

    ``x`` is a whole map. ``other`` is added to the first one.
    """
    plan, sums, part = _prepare(x)
    line = torch.zeros(2 * plan.channels)
    dx, dgamma, dbeta = torch.empty_like(x), torch.empty_like(mean), torch.empty_like(mean)
    g = g.contiguous(memory_format=torch.channels_last)
    if other is not None:
        other = other.contiguous(memory_format=torch.channels_last)
    tensors = (x, g, mean, scale, shift, invstd, sums, part, line, other, dx, dgamma, dbeta)
    library.tembed_bn_relu_backward(ctypes.byref(plan), *pointers(*tensors))
    return dx, dgamma, dbeta


class Gathered:
    """The gradient of a map that several normalisations read, each some of its first channels (DenseNet's).

    It is the sum of what each of them passes on, which is added to ``dx`` as it comes, and of a line in the map. The
    lines of all are added up, and to ``dx`` once: `settle`.
    """

    def __init__(self, library: ctypes.CDLL, x: Tensor, mean: Tensor, dx: Tensor):
        self.library, self.x, self.mean, self.dx = library, x, mean, dx
        self.slope, self.offset = torch.zeros_like(mean), torch.zeros_like(mean)

    def add(self, g: Tensor, scale: Tensor, shift: Tensor, invstd: Tensor) -> tuple[Tensor, Tensor]:
        """Take in one of them, whose output has the gradient ``g``; the gradients for its scale gamma and bias."""
        x = self.x[:, : len(scale)]
        plan, sums, part = _prepare(x)
        dgamma, dbeta = torch.empty_like(scale), torch.empty_like(scale)
        g = g.contiguous(memory_format=torch.channels_last)
        tensors = (x, g, self.mean, scale, shift, invstd, sums, part, self.slope, self.offset, self.dx, dgamma, dbeta)
        self.library.tembed_bn_relu_backward_part(ctypes.byref(plan), *pointers(*tensors))
        return dgamma, dbeta

    def settle(self, start: int, end: int) -> Tensor:
        """The gradient of these channels, when all that read them are in."""
        x, dx = self.x[:, start:end], self.dx[:, start:end]
        tensors = (x, self.mean[start:end], self.slope[start:end], self.offset[start:end], dx)
        self.library.tembed_bn_add_line(ctypes.byref(_plan(x)), *pointers(*tensors))
        return dx


def _plan(x: Tensor) -> Plan:
    count, channels, height, width = x.shape
    threads = min(torch.get_num_threads(), 1 + x.numel() // 16384)  # a thread is worth some work
    return Plan(count * height * width, channels, pixel_step(x), threads)


def _prepare(x: Tensor) -> tuple[Plan, Tensor, Tensor]:
    """The plan, and scratch memory for the sums: in double and in float, for each thread."""
    plan = _plan(x)
    sums = torch.empty(plan.threads * 2 * plan.channels, dtype=torch.float64)
    return plan, sums, torch.empty(plan.threads * 2 * plan.channels)
