"""P3: entropy-regularised matching, the margin-augmented soft-max (§3.1, Prop. 3.2)."""

from typing import Any

import torch
from torch import Tensor, nn

from tembed.maximizers.lookup import register
from tembed.maximizers.margin import align_margin, check_constants
from tembed.paper import EPS, ETA, MU


class EntropicFunction(torch.autograd.Function):
    """``p = softmax([eps a; eps mu])``, as the activations' shares and the slack's; ``J^T g = eps (p g - p p^T g)``.

    The slack is an output so that autograd can differentiate the gradient again.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor]:
        top = torch.maximum(a.amax(dim, keepdim=True), mu)
        p = (a - top).mul_(eps).exp_()
        slack = (mu - top).mul_(eps).exp_()
        total = p.sum(dim, keepdim=True).add_(slack)
        p.div_(total)
        slack.div_(total)
        ctx.save_for_backward(p, slack)
        ctx.set_materialize_grads(False)
        ctx.eps, ctx.dim = eps, dim
        return p, slack

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        g, g_slack = grads
        p, slack = ctx.saved_tensors
        if g is None:  # only in a second derivative
            g = torch.zeros_like(p)
        grad = p * g
        mean = grad.sum(ctx.dim, keepdim=True)
        if g_slack is None:
            return (grad - p * mean) * ctx.eps, slack * mean * -ctx.eps, None, None
        mean = mean + slack * g_slack
        return (grad - p * mean) * ctx.eps, slack * (g_slack - mean) * ctx.eps, None, None


def entropic(a: Tensor, mu: float | Tensor = MU, eps: float = EPS, dim: int = 1) -> Tensor:
    """Soft-max of the activations along ``dim`` and of the margin ``mu``, without the margin's share (P3).

    ``eps`` is the sharpness: large values approach `one_hot`, small ones give ``1 / (K + 1)`` to each kernel.
    """
    a, mu, dim = align_margin(a, mu, eps, dim)
    return EntropicFunction.apply(a, mu, eps, dim)[0]


class Entropic(nn.Module):
    """`entropic`, scaled by ``eta``: a replacement for BN-ReLU without batch statistics (§4.1)."""

    def __init__(self, mu: float = MU, eta: float = ETA, eps: float = EPS, dim: int = 1):
        super().__init__()
        check_constants(mu=mu, eta=eta, eps=eps)
        self.mu, self.eta, self.eps, self.dim = mu, eta, eps, dim

    def forward(self, a: Tensor) -> Tensor:
        return self.eta * entropic(a, self.mu, self.eps, self.dim)

    def extra_repr(self) -> str:
        return f"mu={self.mu}, eta={self.eta}, eps={self.eps}, dim={self.dim}"


register("entropic", lambda channels, **constants: Entropic(**constants), {"mu": MU, "eta": ETA, "eps": EPS})
