"""Calls ``bn_relu.c``: batch normalisation and ReLU of a channels-last map in float32, with its gradient."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tembed.kernels.build import compiled, pointers

SOURCE = Path(__file__).with_name("bn_relu.c")


class Plan(ctypes.Structure):
    """The struct ``plan`` of ``bn_relu.c``."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("threads", ctypes.c_int32),
        ("accumulate", ctypes.c_int32),
    )


def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it cannot be had."""
    return compiled(SOURCE)


def fits(x: Tensor) -> bool:
    """Whether the kernel can walk this map."""
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.ndim == 4
        and x.numel() > x.shape[1]  # with one value a channel there is no variance: torch has the error for it
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def statistics(library: ctypes.CDLL, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel. ``x`` may be a slice of the channels of a map, here and below."""
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
    into: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for the map, the scale gamma and the bias, where mean and deviation are those of the map itself.

    The first one is added to ``into``, a slice like ``x``, if there is one.
    """
    plan, sums, part = _prepare(x)
    plan.accumulate = into is not None
    dx = torch.empty_strided(x.shape, x.stride()) if into is None else into
    dgamma, dbeta = torch.empty_like(mean), torch.empty_like(mean)
    g = g.contiguous(memory_format=torch.channels_last)
    tensors = (x, g, mean, scale, shift, invstd, sums, part, dx, dgamma, dbeta)
    library.tembed_bn_relu_backward(ctypes.byref(plan), *pointers(*tensors))
    return dx, dgamma, dbeta


def _plan(x: Tensor) -> Plan:
    count, channels, height, width = x.shape
    step = x.stride(3) if width > 1 else x.stride(2) if height > 1 else x.stride(0)
    threads = min(torch.get_num_threads(), 1 + x.numel() // 16384)  # a thread is worth some work
    return Plan(count * height * width, channels, step, threads)


def _prepare(x: Tensor) -> tuple[Plan, Tensor, Tensor]:
    """The plan, and scratch memory for the sums: in double for each thread, and in float with two rows more."""
    plan = _plan(x)
    sums = torch.empty(plan.threads * 2 * plan.channels, dtype=torch.float64)
    return plan, sums, torch.empty((plan.threads + 1) * 2 * plan.channels)
