"""Calls ``perturbed.c``, the fused CPU form of the exact perturbed maximizer."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tembed.ops.build import compiled, pointers

SOURCE = Path(__file__).parent / "csrc" / "perturbed.c"
LANES = 16  # as in perturbed.c

Nodes = tuple[float, float, int]
"""First and last node, counted from the largest activation, and their number."""


class Plan(ctypes.Structure):
    """The struct ``plan`` of ``perturbed.c``: how the pixels lie in memory, and the nodes."""

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


def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it cannot be had."""
    return compiled(SOURCE)


def empty_result(a: Tensor, dim: int) -> Tensor:
    """An empty tensor like ``a``, in one of the two layouts that the kernel walks: plain, or ``dim`` innermost."""
    if a.movedim(dim, -1).is_contiguous():
        return torch.empty_like(a)
    return torch.empty(a.shape, dtype=a.dtype, device=a.device)


def forward(library: ctypes.CDLL, a: Tensor, mu: Tensor, eps: float, dim: int, nodes: Nodes) -> Tensor:
    """``p`` of P2 for float32 ``a``; ``mu`` has ``a``'s shape with size 1 along ``dim``."""
    p = empty_result(a, dim)
    if a.numel():
        _run(library, a, mu, None, p, None, eps, dim, nodes)
    return p


def backward(
    library: ctypes.CDLL, g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int, nodes: Nodes
) -> tuple[Tensor, Tensor]:
    """``J^T g`` for the activations and for ``mu``."""
    grad = empty_result(a, dim)
    grad_mu = torch.zeros(a.movedim(dim, -1).shape[:-1])
    if a.numel():
        if g.stride() != grad.stride():
            g = torch.empty_like(grad).copy_(g)
        _run(library, a, mu, g, grad, grad_mu, eps, dim, nodes)
    return grad, grad_mu.unsqueeze(dim)


def _run(
    library: ctypes.CDLL,
    a: Tensor,
    mu: Tensor,
    g: Tensor | None,
    out: Tensor,
    grad_mu: Tensor | None,
    eps: float,
    dim: int,
    nodes: Nodes,
) -> None:
    plan, a, mu = _plan(a, mu, eps, dim, nodes)
    scratch = torch.empty(plan.threads * 7 * (plan.kernels + 1) * LANES)
    library.tembed_perturbed(ctypes.byref(plan), *pointers(a, mu, g, out, grad_mu, scratch))


def _plan(a: Tensor, mu: Tensor, eps: float, dim: int, nodes: Nodes) -> tuple[Plan, Tensor, Tensor]:
    """The walk over the pixels, with ``a`` and ``mu`` in a layout that it fits."""
    kernels = a.shape[dim]
    pixels = a.numel() // kernels
    if a.movedim(dim, -1).is_contiguous():
        inner, steps = 1, (kernels, 1, 0)
    else:
        a = a.contiguous()
        inner = a.shape[dim + 1 :].numel()
        steps = (kernels * inner, inner, 1)
    mu = mu.squeeze(dim)
    if any(mu.stride()):
        mu, mu_steps = mu.contiguous(), (inner, 1)
    else:
        mu_steps = (0, 0)  # one margin for all
    low, high, count = nodes
    blocks = -(-pixels // LANES)
    threads = min(torch.get_num_threads(), 1 + blocks * kernels // 256)  # a thread is worth some work
    step = (high - low) / (count - 1)
    return Plan(pixels, kernels, inner, *steps, *mu_steps, eps, low, step, count, threads), a, mu
