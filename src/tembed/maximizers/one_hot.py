"""P1: the best matching kernel, or none (§3.1)."""

from typing import Any

import torch
from torch import Tensor, nn

from tembed.maximizers.lookup import register
from tembed.maximizers.margin import align_margin, check_constants
from tembed.paper import ETA, MU


class OneHotFunction(torch.autograd.Function):
    """The linear program's solution. It is piecewise constant, so the gradient is zero."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: Tensor, dim: int) -> Tensor:
        ctx.margin_shape = mu.shape
        top, index = a.max(dim, keepdim=True)
        p = torch.zeros_like(a).scatter_(dim, index, (top > mu).to(a.dtype))
        return p.masked_fill_(top.isnan() | mu.isnan(), torch.nan)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (g,) = grads
        return torch.zeros_like(g), g.new_zeros(()).expand(ctx.margin_shape), None


def one_hot(a: Tensor, mu: float | Tensor = MU, dim: int = 1) -> Tensor:
    """One-hot of the largest activation along ``dim`` if it exceeds ``mu``, else zeros (P1); NaN where any is NaN."""
    a, mu, dim = align_margin(a, mu, 1.0, dim)
    return OneHotFunction.apply(a, mu, dim)


class OneHot(nn.Module):
    """`one_hot`, scaled by ``eta``. Its gradient is zero, so the layers before it cannot learn."""

    def __init__(self, mu: float = MU, eta: float = ETA, dim: int = 1):
        super().__init__()
        check_constants(mu=mu, eta=eta)
        self.mu, self.eta, self.dim = mu, eta, dim

    def forward(self, a: Tensor) -> Tensor:
        return self.eta * one_hot(a, self.mu, self.dim)

    def extra_repr(self) -> str:
        return f"mu={self.mu}, eta={self.eta}, dim={self.dim}"


register("one-hot", lambda channels, **constants: OneHot(**constants), {"mu": MU, "eta": ETA})
