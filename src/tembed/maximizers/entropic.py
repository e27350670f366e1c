"""P3: entropy-regularised matching, the margin-augmented soft-max (§3.1, Prop. 3.2)."""

from typing import Any

import torch
from torch import Tensor, nn

from tembed.maximizers.margin import EPS, ETA, MU, place


class EntropicFunction(torch.autograd.Function):
    """``p = softmax([eps a; eps mu])`` without the slack, and ``J^T g = eps (p g - p p^T g)``."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
        top = torch.maximum(a.amax(dim, keepdim=True), mu)
        p = (a - top).mul_(eps).exp_()
        slack = (mu - top).mul_(eps).exp_()
        total = p.sum(dim, keepdim=True).add_(slack)
        p.div_(total)
        ctx.save_for_backward(p, slack.div_(total))
        ctx.eps, ctx.dim = eps, dim
        return p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (g,) = grads
        p, slack = ctx.saved_tensors
        grad = p * g
        mean = grad.sum(ctx.dim, keepdim=True)
        grad_mu = slack * mean * -ctx.eps
        return (grad - p * mean) * ctx.eps, grad_mu, None, None


def entropic(a: Tensor, mu: float | Tensor = MU, eps: float = EPS, dim: int = 1) -> Tensor:
    """Soft-max of the activations along ``dim`` and of the margin ``mu``, without the margin's share (P3).

    ``eps`` is the sharpness: large gives `one_hot`, small gives ``1 / (K + 1)`` each.
    """
    a, mu, dim = place(a, mu, eps, dim)
    return EntropicFunction.apply(a, mu, eps, dim)


class Entropic(nn.Module):
    """`entropic`, scaled by ``eta``: a replacement of BN-ReLU without batch statistics (§4.1)."""

    def __init__(self, mu: float = MU, eta: float = ETA, eps: float = EPS, dim: int = 1):
        super().__init__()
        self.mu, self.eta, self.eps, self.dim = mu, eta, eps, dim

    def forward(self, a: Tensor) -> Tensor:
        return self.eta * entropic(a, self.mu, self.eps, self.dim)

    def extra_repr(self) -> str:
        return f"mu={self.mu}, eta={self.eta}, eps={self.eps}, dim={self.dim}"
