"""P2 as the paper computes it: the mean of one-hot matches over noise draws, and Prop. 3.1 for its Jacobian."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tembed.errors import TembedError

SAMPLES = 600
"""The paper's number of draws (§4.1)."""
CHUNK = 1 << 22
"""Numbers drawn at once: memory does not grow with the draws."""


class SampledFunction(torch.autograd.Function):
    """``p = E[p~]`` and ``J^T g = eps E[z (g^T p~)]``; backward draws the same noise again instead of keeping it."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, mu: Tensor, eps: float, dim: int, samples: int, generator: torch.Generator | None
    ) -> Tensor:
        if samples < 1:
            raise TembedError(f"samples must be at least 1, not {samples}")
        device = generator.device if generator is not None else "cpu"
        seed = torch.randint(2**62, (), generator=generator, device=device).item()
        b = torch.cat([a, mu], dim).mul_(eps)
        counts = torch.zeros_like(b)
        for _, winner in _draw(b, dim, samples, int(seed)):
            for index in winner:
                counts.scatter_add_(dim, index, torch.ones_like(index, dtype=b.dtype))
        ctx.save_for_backward(b)
        ctx.eps, ctx.dim, ctx.samples, ctx.seed = eps, dim, samples, int(seed)
        return counts.narrow(dim, 0, a.shape[dim]).div(samples)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (b,) = ctx.saved_tensors
        g = torch.cat([g, torch.zeros_like(g.narrow(ctx.dim, 0, 1))], ctx.dim)  # the slack's
        grad = torch.zeros_like(b)
        for noise, winner in _draw(b, ctx.dim, ctx.samples, ctx.seed):
            for z, index in zip(noise, winner, strict=True):
                grad.addcmul_(z, g.gather(ctx.dim, index))
        grad.mul_(ctx.eps / ctx.samples)
        kernels = b.shape[ctx.dim] - 1
        return grad.narrow(ctx.dim, 0, kernels), grad.narrow(ctx.dim, kernels, 1), None, None, None, None


def _draw(b: Tensor, dim: int, samples: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Chunks of the noise ``(n, *b.shape)`` and of the place that wins under it, size 1 along ``dim``."""
    generator = torch.Generator(b.device).manual_seed(seed)
    chunk = max(1, CHUNK // max(1, b.numel()))
    for start in range(0, samples, chunk):
        size = (min(chunk, samples - start), *b.shape)
        noise = torch.randn(size, generator=generator, dtype=b.dtype, device=b.device)
        yield noise, (b + noise).argmax(dim + 1, keepdim=True)
