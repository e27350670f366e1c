"""The exact perturbed maximizer (P2) with all nodes of the integral fused: ``perturbed.c``, and Triton on a GPU.

The plain form is the paper's integral itself: `tembed.maximizers.perturbed`. Value and gradient are torch operators, so
that ``torch.compile`` can trace them. On the CPU they take float32, on a GPU also float16 and bfloat16.
"""

import ctypes
import importlib.util
from typing import Any

import torch
from torch import Tensor

from tembed.kernels.build import Floats, Kernel, OptionalFloats

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Triton comes with torch's CUDA builds for Linux. Without it the plain form runs on a GPU."""
LANES = 16
"""Pixels per chunk, as in ``perturbed.c``."""
WORK_PER_THREAD = 256
"""Each further thread needs this much work, in chunks times kernels, to be worthwhile."""


class Integral(ctypes.Structure):
    """The struct ``integral`` of ``perturbed.c``: the memory layout of the pixels, and the nodes."""

    _fields_ = (
        ("pixels", ctypes.c_int64),
        ("kernels", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("outer_step", ctypes.c_int64),
        ("kernel_step", ctypes.c_int64),
        ("inner_step", ctypes.c_int64),
        ("mu_outer_step", ctypes.c_int64),
        ("mu_inner_step", ctypes.c_int64),
        ("eps", ctypes.c_float),
        ("first", ctypes.c_float),
        ("step", ctypes.c_float),
        ("nodes", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


KERNEL = Kernel(
    "perturbed", Integral, {"tembed_perturbed": (Floats, Floats, OptionalFloats, Floats, OptionalFloats, Floats)}
)


def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None without a compiler."""
    return KERNEL.load()


def _is_compiled() -> bool:
    return load() is not None


# What torch.compiler.assume_constant_result does, but it also imports torch._dynamo, which takes longer than torch.
_is_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]


def has_kernel(a: Tensor) -> bool:
    """Whether a kernel accepts these activations. Exported programs must not depend on this package."""
    if torch.compiler.is_exporting():
        return False
    if a.device.type == "cuda":
        return a.dtype in (torch.float32, torch.float16, torch.bfloat16) and HAS_TRITON
    return a.device.type == "cpu" and a.dtype == torch.float32 and _is_compiled()


@torch.library.custom_op("tembed::perturbed_forward", mutates_args=(), device_types=("cpu", "cuda"))
def perturbed_forward(a: Tensor, mu: Tensor, eps: float, dim: int, low: float, high: float, nodes: int) -> Tensor:
    """``p`` of P2, with ``nodes`` nodes from ``low`` to ``high`` relative to the largest of ``eps [a; mu]``.

    ``mu`` has the shape of ``a`` with size 1 along ``dim``.
    """
    p = _empty_result(a, dim)
    if a.numel():
        _run(a, mu, None, p, None, eps, dim, (low, high, nodes))
    return p


@torch.library.custom_op("tembed::perturbed_backward", mutates_args=(), device_types=("cpu", "cuda"))
def perturbed_backward(
    g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int, low: float, high: float, nodes: int
) -> tuple[Tensor, Tensor]:
    """``J^T g`` for the activations and for ``mu``."""
    grad, grad_mu = _empty_result(a, dim), a.new_empty(mu.shape)
    if a.numel():
        _run(a, mu, g, grad, grad_mu, eps, dim, (low, high, nodes))
    return grad, grad_mu


@perturbed_forward.register_fake
def _(a: Tensor, mu: Tensor, eps: float, dim: int, low: float, high: float, nodes: int) -> Tensor:
    return _empty_result(a, dim)


@perturbed_backward.register_fake
def _(
    g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int, low: float, high: float, nodes: int
) -> tuple[Tensor, Tensor]:
    return _empty_result(a, dim), a.new_empty(mu.shape)


def _empty_result(a: Tensor, dim: int) -> Tensor:
    """An empty tensor like ``a`` in one of the kernel's two layouts: contiguous, or with ``dim`` innermost."""
    if a.movedim(dim, -1).is_contiguous():
        return torch.empty_like(a)
    return torch.empty(a.shape, dtype=a.dtype, device=a.device)


def _run(a: Tensor, *others: Any) -> None:
    """The kernel for the tensor's device; the arguments are those of `_run_on_cpu`."""
    if a.device.type == "cuda":
        from tembed.kernels import exact_p2_triton  # optional, and slow to import

        exact_p2_triton.run(a, *others)
    else:
        _run_on_cpu(a, *others)


def _run_on_cpu(
    a: Tensor,
    mu: Tensor,
    g: Tensor | None,
    out: Tensor,
    grad_mu: Tensor | None,
    eps: float,
    dim: int,
    nodes: tuple[float, float, int],
) -> None:
    library = load()
    assert library is not None
    kernels = a.shape[dim]
    pixels = a.numel() // kernels
    if g is not None and g.stride() != out.stride():
        g = torch.empty_like(out).copy_(g)
    if a.movedim(dim, -1).is_contiguous():
        a, out = a.movedim(dim, -1), out.movedim(dim, -1)
        g = None if g is None else g.movedim(dim, -1)
        inner, steps = 1, (kernels, 1, 0)
    else:
        a = a.contiguous()
        inner = a.shape[dim + 1 :].numel()
        steps = (kernels * inner, inner, 1)
    mu = mu.squeeze(dim)
    if any(mu.stride()):
        mu, mu_steps = mu.contiguous(), (inner, 1)
    else:
        mu, mu_steps = mu[(0,) * mu.ndim], (0, 0)  # one margin for all pixels
    low, high, count = nodes
    chunks = -(-pixels // LANES)
    threads = min(torch.get_num_threads(), 1 + chunks * kernels // WORK_PER_THREAD)
    integral = Integral(pixels, kernels, inner, *steps, *mu_steps, eps, low, (high - low) / (count - 1), count, threads)
    scratch = a.new_empty(threads * 7 * (kernels + 1) * LANES)
    library.tembed_perturbed(integral, a, mu, g, out, grad_mu, scratch)
