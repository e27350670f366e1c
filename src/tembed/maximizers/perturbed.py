"""P2: the expected best match under Gaussian noise (§3.1, Prop. 3.1), exactly.

The noise is independent and the feasible set a simplex, so the expectation is a one-dimensional integral over the
winner's value ``t``. With ``b = eps [a; mu]``, ``u_j = t - b_j`` and the normal density phi and distribution Phi::

    p_k       = ∫ phi(u_k) Π_{j≠k} Phi(u_j) dt
    (J^T g)_i = eps ∫ E r_i (g_i R - G) dt,   r_j = phi(u_j) / Phi(u_j),  E = Π_j Phi(u_j),  R = Σ r_j,  G = Σ g_j r_j

over the activations and the slack, whose ``g`` is 0. The trapezoid rule converges geometrically on it. ``sampled.py``
has the paper's estimate by 600 draws.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tembed.errors import TembedError
from tembed.maximizers.margin import EPS, ETA, MU, place
from tembed.maximizers.sampled import SAMPLES, SampledFunction
from tembed.ops import perturbed as kernel


def nodes(kernels: int, dtype: torch.dtype) -> kernel.Nodes:
    """First and last node, counted from the largest of ``b``, and their number.

    More kernels make the integrand narrower, and so need a finer step. In float32 the error stays within 4e-6 in the
    value and 4e-5 in the gradient for up to 256 kernels.
    """
    if dtype == torch.float64:
        return -8.5, 8.5, 64
    return -4.5, 5.0, max(20, 12 + 2 * kernels.bit_length())


class PerturbedFunction(torch.autograd.Function):
    """The integral and its closed-form gradient; keeps only its inputs, and recomputes the nodes in backward."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
        ctx.save_for_backward(a, mu)
        ctx.eps, ctx.dim = eps, dim
        if _has_kernel(a):
            return perturbed_forward(a, mu, eps, dim)
        return integrate(a, mu, eps, dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        a, mu = ctx.saved_tensors
        if _has_kernel(a):
            grad, grad_mu = perturbed_backward(g, a, mu, ctx.eps, ctx.dim)
        else:
            grad, grad_mu = integrate_gradient(g, a, mu, ctx.eps, ctx.dim)
        return grad, grad_mu, None, None


def perturbed(
    a: Tensor,
    mu: float | Tensor = MU,
    eps: float = EPS,
    dim: int = 1,
    *,
    method: str = "exact",
    samples: int = SAMPLES,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Probability that each activation along ``dim`` is the largest of ``[a; mu] + z / eps``, ``z ~ N(0, I)`` (P2).

    ``method="exact"`` integrates; ``method="sample"`` is the paper's estimate from ``samples`` draws of
    ``generator`` (by default torch's global one).
    """
    if method not in ("exact", "sample"):
        raise TembedError(f"method must be 'exact' or 'sample', not {method!r}")
    a, mu, dim = place(a, mu, eps, dim)
    if method == "sample":
        return SampledFunction.apply(a, mu, eps, dim, samples, generator)
    if a.dtype in (torch.float16, torch.bfloat16):  # too coarse for the nodes
        return PerturbedFunction.apply(a.float(), mu.float(), eps, dim).to(a.dtype)
    return PerturbedFunction.apply(a, mu, eps, dim)


class Perturbed(nn.Module):
    """`perturbed`, scaled by ``eta``: a replacement of BN-ReLU without batch statistics (§4.1)."""

    def __init__(
        self,
        mu: float = MU,
        eta: float = ETA,
        eps: float = EPS,
        dim: int = 1,
        *,
        method: str = "exact",
        samples: int = SAMPLES,
    ):
        super().__init__()
        self.mu, self.eta, self.eps, self.dim = mu, eta, eps, dim
        self.method, self.samples = method, samples

    def forward(self, a: Tensor) -> Tensor:
        p = perturbed(a, self.mu, self.eps, self.dim, method=self.method, samples=self.samples)
        return self.eta * p

    def extra_repr(self) -> str:
        how = self.method if self.method == "exact" else f"{self.method}({self.samples})"
        return f"mu={self.mu}, eta={self.eta}, eps={self.eps}, dim={self.dim}, method={how}"


def integrate(a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
    """``p`` by a loop over the nodes, on any device; the reference of the kernel."""
    p = torch.zeros_like(a)
    for r, _, mass in _visit(a, mu, eps, dim):
        p.addcmul_(r, mass)
    return p


def integrate_gradient(g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor]:
    """``J^T g`` for the activations and for the slack, by a loop over the nodes."""
    grad, grad_mu = torch.zeros_like(a), torch.zeros_like(mu)
    for r, r_slack, mass in _visit(a, mu, eps, dim):
        total = r.sum(dim, keepdim=True).add_(r_slack)
        weighted = (r * g).sum(dim, keepdim=True)
        grad_mu.addcmul_(mass * r_slack, weighted, value=-eps)
        grad.addcmul_(r.mul_(mass), (g * total).sub_(weighted), value=eps)
    return grad, grad_mu


def _visit(a: Tensor, mu: Tensor, eps: float, dim: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """At each node: ``r`` of the activations, ``r`` of the slack, and ``E`` times the node's weight."""
    low, high, count = nodes(a.shape[dim], a.dtype)
    step = (high - low) / (count - 1)
    top = torch.maximum(a.amax(dim, keepdim=True), mu)
    far, far_slack = (top - a).mul_(eps), (top - mu).mul_(eps)  # nonnegative, so that u >= low and Phi(u) > 0
    for n in range(count):
        t = low + n * step
        r, cdf = _ratio(far + t)
        r_slack, mass = _ratio(far_slack + t)
        mass.mul_(cdf.prod(dim, keepdim=True)).mul_(step)
        yield r, r_slack, mass


def _ratio(u: Tensor) -> tuple[Tensor, Tensor]:
    """``phi(u) / Phi(u)``, in the place of ``u``, and ``Phi(u)``."""
    cdf = (u * -math.sqrt(0.5)).erfc_().mul_(0.5)
    return u.square_().mul_(-0.5).exp_().div_(cdf).mul_(1 / math.sqrt(2 * math.pi)), cdf


def _has_kernel(a: Tensor) -> bool:
    """An exported program keeps the plain loop, and so does not depend on this package."""
    return a.device.type == "cpu" and a.dtype == torch.float32 and not torch.compiler.is_exporting()


@torch.library.custom_op("tembed::perturbed_forward", mutates_args=(), device_types="cpu")
def perturbed_forward(a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
    library = kernel.load()
    if library is None:
        return integrate(a, mu, eps, dim)
    return kernel.forward(library, a, mu, eps, dim, nodes(a.shape[dim], a.dtype))


@torch.library.custom_op("tembed::perturbed_backward", mutates_args=(), device_types="cpu")
def perturbed_backward(g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor]:
    library = kernel.load()
    if library is None:
        return integrate_gradient(g, a, mu, eps, dim)
    return kernel.backward(library, g, a, mu, eps, dim, nodes(a.shape[dim], a.dtype))


@perturbed_forward.register_fake
def _(a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
    return kernel.empty_result(a, dim)


@perturbed_backward.register_fake
def _(g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor]:
    return kernel.empty_result(a, dim), a.new_empty(mu.shape)
