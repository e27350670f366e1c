"""Slow, independent implementations to compare with."""

import math

import torch
from torch import Tensor


def fine_quadrature(
    a: Tensor, mu: float | Tensor, eps: float, g: Tensor, nodes: int = 150
) -> tuple[Tensor, Tensor, Tensor]:
    """P2 on ``(n, K)`` in float64 with logarithms, on many nodes: the value, ``J^T g``, and its entry for the slack."""
    slack = torch.as_tensor(mu).double().expand(len(a), 1)
    b = torch.cat([a.double(), slack], 1) * eps
    g = torch.cat([g.double(), torch.zeros(len(a), 1, dtype=torch.double)], 1)
    low, high = -10.0, 11.0
    step = (high - low) / (nodes - 1)
    p, grad = torch.zeros_like(b), torch.zeros_like(b)
    for n in range(nodes):
        u = b.amax(1, keepdim=True) + low + n * step - b
        log_cdf = torch.special.log_ndtr(u)
        e = log_cdf.sum(1, keepdim=True).exp()
        r = torch.exp(-u * u / 2 - math.log(2 * math.pi) / 2 - log_cdf)
        p += step * e * r
        grad += eps * step * e * r * (g * r.sum(1, keepdim=True) - (g * r).sum(1, keepdim=True))
    return p[:, :-1], grad[:, :-1], grad[:, -1:]
