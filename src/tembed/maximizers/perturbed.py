"""P2: the expected best match under Gaussian noise (§3.1, Prop. 3.1), exactly and by sampling.

The noise is independent and the feasible set is a simplex, so the expectation is a one-dimensional integral over the
winner's value ``t``. With ``b = eps [a; mu]``, ``u_j = t - b_j`` and the normal density phi and distribution Phi::

    p_k       = ∫ phi(u_k) Π_{j≠k} Phi(u_j) dt
    (J^T g)_i = eps ∫ E r_i (g_i R - G) dt,   r_j = phi(u_j) / Phi(u_j),  E = Π_j Phi(u_j),  R = Σ r_j,  G = Σ g_j r_j

Sums and products run over the activations and the slack, whose ``g`` is 0. The trapezoid rule converges geometrically.
The paper estimates ``p`` and the Jacobian from 600 noise samples instead (`SampledFunction`).
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tembed.common.errors import TembedError
from tembed.kernels import exact_p2 as op
from tembed.kernels.autograd import wants_double_backward
from tembed.maximizers.lookup import register
from tembed.maximizers.margin import align_margin, check_constants
from tembed.paper import EPS, ETA, MU, SAMPLES

CHUNK = 1 << 22
"""Noise values drawn at once, so that memory does not grow with the number of samples."""


class Nodes(NamedTuple):
    """The nodes of the trapezoid rule: first and last, relative to the largest of ``b``, and their number."""

    low: float
    high: float
    number: int


def quadrature(kernels: int, dtype: torch.dtype) -> Nodes:
    """The nodes for this many kernels. More kernels make the integrand narrower and so need a finer step.

    In float32 the error stays below 4e-6 in the value and 4e-5 in the gradient for up to 256 kernels. In float64 it
    stays below 1e-10 in both for up to 1000.
    """
    if dtype == torch.float64:
        return Nodes(-8.5, 8.5, max(64, 48 + 8 * kernels.bit_length()))
    return Nodes(-4.5, 5.0, max(20, 12 + 2 * kernels.bit_length()))


class PerturbedFunction(torch.autograd.Function):
    """The integral and its closed-form gradient. Keeps only its inputs and visits the nodes again in backward."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
        ctx.save_for_backward(a, mu)
        ctx.eps, ctx.dim = eps, dim
        if op.has_kernel(a):
            return op.perturbed_forward(a, mu, eps, dim, *quadrature(a.shape[dim], a.dtype))
        return integrate(a, mu, eps, dim)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, mu = ctx.saved_tensors
        if op.has_kernel(a) and not wants_double_backward():
            nodes = quadrature(a.shape[ctx.dim], a.dtype)
            return *op.perturbed_backward(g, a, mu, ctx.eps, ctx.dim, *nodes), None, None
        g, a, mu = map(_at_least_single, (g, a, mu))  # only the kernels take half precision
        return *integrate_gradient(g, a, mu, ctx.eps, ctx.dim), None, None


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

    ``method="exact"`` integrates. ``method="sample"`` is the paper's estimate from ``samples`` draws of
    ``generator`` (by default torch's global one). Half precision is computed in float32. If an activation is NaN, so
    are all probabilities of its pixel.
    """
    if method not in ("exact", "sample"):
        raise TembedError(f"`method` is {method!r}; it must be 'exact' or 'sample'")
    if samples < 1:
        raise TembedError(f"`samples` is {samples}; it must be at least 1")
    a, mu, dim = align_margin(a, mu, eps, dim)
    dtype = a.dtype
    if method == "sample":
        return SampledFunction.apply(_at_least_single(a), _at_least_single(mu), eps, dim, samples, generator).to(dtype)
    if not op.has_kernel(a):
        a, mu = _at_least_single(a), _at_least_single(mu)
    return PerturbedFunction.apply(a, mu, eps, dim).to(dtype)


def _at_least_single(x: Tensor) -> Tensor:
    """Half precision as float32: it is too coarse for the nodes, and for counting samples."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class Perturbed(nn.Module):
    """`perturbed`, scaled by ``eta``: a replacement for BN-ReLU without batch statistics (§4.1)."""

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
        check_constants(mu=mu, eta=eta, eps=eps)
        self.mu, self.eta, self.eps, self.dim = mu, eta, eps, dim
        self.method, self.samples = method, samples

    def forward(self, a: Tensor) -> Tensor:
        p = perturbed(a, self.mu, self.eps, self.dim, method=self.method, samples=self.samples)
        return self.eta * p

    def extra_repr(self) -> str:
        method = self.method if self.method == "exact" else f"{self.method}({self.samples})"
        return f"mu={self.mu}, eta={self.eta}, eps={self.eps}, dim={self.dim}, method={method}"


def integrate(a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
    """``p`` by a loop over the nodes, on any device: the reference for the kernel."""
    if torch.compiler.is_exporting():
        return integrate_at_once(a, mu, eps, dim)
    p = torch.zeros_like(a)
    for r, _, mass in _visit_nodes(a, mu, eps, dim):
        p.addcmul_(r, mass)
        del r  # free its memory before the next node is evaluated
    return p


def integrate_at_once(a: Tensor, mu: Tensor, eps: float, dim: int) -> Tensor:
    """``p`` with the nodes on an axis of their own. An exported graph would repeat every operation of the loop."""
    low, high, number = quadrature(a.shape[dim], a.dtype)
    below, below_slack = (x.unsqueeze(0) for x in _below_top(a, mu, eps, dim))
    nodes = torch.linspace(low, high, number, dtype=a.dtype, device=a.device).view(-1, *[1] * a.ndim)
    r, _, mass = _evaluate_node(below, below_slack, nodes, (high - low) / (number - 1), dim + 1)
    return (r * mass).sum(0)


def integrate_gradient(g: Tensor, a: Tensor, mu: Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor]:
    """``J^T g`` for the activations and for the slack, by a loop over the nodes. Can be differentiated again."""
    grad, grad_mu = torch.zeros_like(a), torch.zeros_like(mu)
    for r, r_slack, mass in _visit_nodes(a, mu, eps, dim):
        total = r.sum(dim, keepdim=True) + r_slack
        weighted = (r * g).sum(dim, keepdim=True)
        grad_mu.addcmul_(mass * r_slack, weighted, value=-eps)
        grad.addcmul_(r * mass, (g * total).sub_(weighted), value=eps)
        del r  # as above
    return grad, grad_mu


def _visit_nodes(a: Tensor, mu: Tensor, eps: float, dim: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """At each node: ``r`` of the activations, ``r`` of the slack, and ``E`` times the node's weight."""
    low, high, number = quadrature(a.shape[dim], a.dtype)
    step = (high - low) / (number - 1)
    below, below_slack = _below_top(a, mu, eps, dim)
    for n in range(number):
        yield _evaluate_node(below, below_slack, low + n * step, step, dim)


def _below_top(a: Tensor, mu: Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor]:
    """How far the activations and the slack are below the largest of them: nonnegative, so that ``Phi(u) > 0``."""
    top = torch.maximum(a.amax(dim, keepdim=True), mu).detach()  # the integral does not depend on where the nodes are
    return (top - a) * eps, (top - mu) * eps


def _evaluate_node(
    below: Tensor, below_slack: Tensor, t: float | Tensor, weight: float, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    r, cdf = _ratio(below + t)
    r_slack, cdf_slack = _ratio(below_slack + t)
    return r, r_slack, cdf.prod(dim, keepdim=True) * cdf_slack * weight


def _ratio(u: Tensor) -> tuple[Tensor, Tensor]:
    """``phi(u) / Phi(u)`` and ``Phi(u)``."""
    cdf = torch.erfc(u * -math.sqrt(0.5)).mul_(0.5)
    density = u.square().mul_(-0.5).exp_()
    return (density / cdf).mul_(1 / math.sqrt(2 * math.pi)), cdf


class SampledFunction(torch.autograd.Function):
    """The paper's estimate: ``p = E[p~]`` and ``J^T g = eps E[z (g^T p~)]`` (Prop. 3.1), as means over noise samples.

    Backward draws the same noise again instead of keeping it. There is no second derivative.
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, mu: Tensor, eps: float, dim: int, samples: int, generator: torch.Generator | None
    ) -> Tensor:
        device = generator.device if generator is not None else "cpu"
        seed = int(torch.randint(2**62, (), generator=generator, device=device).item())
        b = torch.cat([a, mu], dim)
        b = (b - b.amax(dim, keepdim=True)).mul_(eps)  # relative to the largest, so that a large `eps` stays finite
        counts = torch.zeros_like(b)
        for noise, winner in _draw(b, dim, samples, seed):
            counts += noise.zero_().scatter_(dim + 1, winner, 1.0).sum(0)
        ctx.save_for_backward(b)
        ctx.eps, ctx.dim, ctx.samples, ctx.seed = eps, dim, samples, seed
        p = counts.narrow(dim, 0, a.shape[dim]).div(samples)
        return p.masked_fill_(_has_nan(b, dim), torch.nan)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if wants_double_backward():
            raise TembedError("the sampled estimate has no second derivative; use the exact form (method='exact')")
        (b,) = ctx.saved_tensors
        g = torch.cat([g, torch.zeros_like(g.narrow(ctx.dim, 0, 1))], ctx.dim)  # 0 for the slack
        grad = torch.zeros_like(b)
        for noise, winner in _draw(b, ctx.dim, ctx.samples, ctx.seed):
            grad += noise.mul_(g.expand_as(noise).gather(ctx.dim + 1, winner)).sum(0)
        grad.mul_(ctx.eps / ctx.samples).masked_fill_(_has_nan(b, ctx.dim), torch.nan)
        kernels = b.shape[ctx.dim] - 1
        return grad.narrow(ctx.dim, 0, kernels), grad.narrow(ctx.dim, kernels, 1), None, None, None, None


def _draw(b: Tensor, dim: int, samples: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Chunks of the noise ``(n, *b.shape)``, and the index that wins under each sample, with size 1 along ``dim``."""
    generator = torch.Generator(b.device).manual_seed(seed)
    chunk = max(1, CHUNK // max(1, b.numel()))
    for start in range(0, samples, chunk):
        size = (min(chunk, samples - start), *b.shape)
        noise = torch.randn(size, generator=generator, dtype=b.dtype, device=b.device)
        yield noise, (b + noise).argmax(dim + 1, keepdim=True)


def _has_nan(b: Tensor, dim: int) -> Tensor:
    return b.isnan().any(dim, keepdim=True)


_CONSTANTS = {"mu": MU, "eta": ETA, "eps": EPS}
register("perturbed", lambda channels, **constants: Perturbed(**constants), _CONSTANTS)
register("perturbed-sampled", lambda channels, **constants: Perturbed(**constants, method="sample"), _CONSTANTS)
