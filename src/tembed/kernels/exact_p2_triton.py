"""The exact perturbed maximizer (P2) on a GPU: value and gradient in one Triton kernel each, with all nodes fused.

Importing this needs Triton, which torch's CUDA builds for Linux install. `exact_p2` imports it for the first tensor on
a GPU. A program of the kernel takes a few pixels with all their kernels and keeps them in registers during the loop
over the nodes. It computes in float32 and reads and writes float32, float16 or bfloat16.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 2048
"""Activations per program, or all those of one pixel if they are more."""
PER_WARP = 512


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _normal(u):
    """``Phi(u)`` and ``phi(u) / Phi(u)`` for ``u >= -5``, by the rational function of ``perturbed.c``."""
    x, x2 = tl.abs(u), u * u
    e = tl.exp(-0.5 * x2)
    numerator = (0.49999997 + 0.33460274 * x) + x2 * (0.10448240 + 0.013632773 * x)
    denominator = (1.0 + 1.4670864 * x) + x2 * ((0.87956470 + 0.26134598 * x) + x2 * 0.034192875)
    tail = e * numerator / denominator
    cdf = tl.where(u < 0, tail, 1.0 - tail)  # exactly 1 where the tail vanishes: up to 1000 of them are multiplied
    return cdf, 0.39894228 * e / cdf


@triton.jit
def integral(
    a, a_outer, a_kernel, a_inner,
    mu, mu_outer, mu_inner,
    g, g_outer, g_kernel, g_inner,
    out, out_outer, out_kernel, out_inner,
    grad_mu,
    pixels, kernels, inner, eps, first, step, nodes,
    GRADIENT: tl.constexpr, PIXELS: tl.constexpr, KERNELS: tl.constexpr,
):  # fmt: skip
    """``out`` is ``p``, or ``J^T g`` if ``GRADIENT``; then ``grad_mu`` is ``J^T g`` for the slack, a number per pixel.

    Node ``n`` is at ``first + n * step`` relative to the largest of ``eps [a; mu]``. The other integers are strides.
    """
    pixel = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)
    kernel = tl.arange(0, KERNELS)[None, :].to(tl.int64)
    in_map = pixel < pixels
    exists = in_map[:, None] & (kernel < kernels)
    row, column = (pixel // inner)[:, None], (pixel % inner)[:, None]
    x = tl.load(a + row * a_outer + kernel * a_kernel + column * a_inner, exists, -float("inf")).to(tl.float32)
    slack = tl.load(mu + row * mu_outer + column * mu_inner, in_map[:, None], 0.0).to(tl.float32)

    # The maximum may ignore NaN. The row of an activation that is NaN or plus infinity is NaN either way, and so is the
    # mass of its pixel.
    top = tl.maximum(tl.max(x, 1, keep_dims=True), slack)
    below, below_slack = eps * (top - x), eps * (top - slack)
    below = tl.where(below > 20.0, 20.0, below)  # minus infinity, too; NaN stays NaN
    below_slack = tl.where(below_slack > 20.0, 20.0, below_slack)

    total = tl.zeros([PIXELS, KERNELS], tl.float32)
    total_slack = tl.zeros([PIXELS, 1], tl.float32)
    if GRADIENT:
        grad = tl.load(g + row * g_outer + kernel * g_kernel + column * g_inner, exists, 0.0).to(tl.float32)
    for n in range(nodes):
        t = first + n * step
        cdf, r = _normal(below + t)
        cdf_slack, r_slack = _normal(below_slack + t)
        mass = step * cdf_slack * tl.reduce(cdf, 1, _product, keep_dims=True)
        if GRADIENT:
            weighted = tl.sum(grad * r, 1, keep_dims=True)
            total += mass * r * (grad * (tl.sum(r, 1, keep_dims=True) + r_slack) - weighted)
            total_slack -= mass * r_slack * weighted
        else:
            total += mass * r
    if GRADIENT:
        total *= eps
        tl.store(grad_mu + pixel[:, None], total_slack * eps, in_map[:, None])
    tl.store(out + row * out_outer + kernel * out_kernel + column * out_inner, total, exists)


def run(
    a: Tensor,
    mu: Tensor,
    g: Tensor | None,
    out: Tensor,
    grad_mu: Tensor | None,
    eps: float,
    dim: int,
    nodes: tuple[float, float, int],
) -> None:
    """Write ``p`` to ``out``, or with ``g`` the gradients to ``out`` and ``grad_mu``, in one launch.

    ``a``, ``g`` and ``out`` have one shape and any strides. ``mu`` has size 1 along ``dim``, and ``grad_mu`` is
    contiguous in that shape.
    """
    kernels = a.shape[dim]
    pixels, inner = a.numel() // kernels, a.shape[dim + 1 :].numel()
    low, high, number = nodes
    block = triton.next_power_of_2(kernels)
    tile = max(TILE, block)

    def strided(x: Tensor | None) -> tuple[Any, ...]:
        """The arguments for a tensor: itself, and its strides as ``(outer, dim, inner)``. Copies it only if need be."""
        if x is None:
            return None, 0, 0, 0
        x = x.reshape(-1, x.shape[dim], inner)
        return x, *x.stride()

    margin, mu_outer, _, mu_inner = strided(mu)
    with torch.cuda.device_of(a):
        integral[(triton.cdiv(pixels, tile // block),)](
            *strided(a), margin, mu_outer, mu_inner, *strided(g), *strided(out), grad_mu,
            pixels, kernels, inner, eps, low, (high - low) / (number - 1), number,
            GRADIENT=g is not None, PIXELS=tile // block, KERNELS=block, num_warps=min(32, tile // PER_WARP),
        )  # fmt: skip
