"""Muon (Jordan et al. 2024): each step moves a convolution's kernels by an orthogonal matrix.

The momentum of a convolution, as a matrix of one row a kernel, is replaced by the nearest matrix whose singular values
are all 1: no direction in the space of kernels is left behind because its gradients are small. What is no matrix
between hidden features (the stem, normalisations, biases, the head) is left to AdamW.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

SIZE = 0.2
"""Root mean square of a step at rate 1, about that of Adam's (Liu et al. 2025)."""
REST = 0.2
"""The rate of the other parameters, as a share of the kernels'. At the same one a run lost a unit (docs/recipes.md)."""
NOTHING = 1e-7
"""A momentum of this length counts as none: a unit without gradients is not moved by what is left of its last ones."""
ROUNDS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that brings singular values from (0, 1] to about 1 in `ROUNDS` rounds (Jordan et al. 2024)."""


class Muon(torch.optim.Optimizer):
    """Muon for the kernels of the hidden convolutions of a model, AdamW for its other parameters.

    The first of ``betas`` is also Muon's momentum. The decay is beside the step, of all weights alike.
    """

    def __init__(self, model: nn.Module, lr: float, betas: tuple[float, float], weight_decay: float):
        kernels, rest = split(model.parameters())
        groups = [{"params": kernels, "hidden": True}, {"params": rest, "hidden": False}]
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            change, rate = (self._orthogonal, 1.0) if group["hidden"] else (self._adam, REST)
            rate *= group["lr"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                step = change(weight.grad, self.state[weight], *group["betas"])
                weight.mul_(1 - rate * group["weight_decay"]).sub_(step, alpha=rate)

    @staticmethod
    def _orthogonal(gradient: Tensor, state: dict[str, Any], beta: float, _: float) -> Tensor:
        if not state:
            state["momentum"] = torch.zeros_like(gradient)
        momentum = state["momentum"].mul_(beta).add_(gradient)
        ahead = gradient.add(momentum, alpha=beta)  # Nesterov's
        rows = ahead.flatten(1)
        return orthogonal(rows).mul_(SIZE * max(rows.shape) ** 0.5).reshape(ahead.shape)

    @staticmethod
    def _adam(gradient: Tensor, state: dict[str, Any], beta: float, beta2: float) -> Tensor:
        if not state:
            state["step"] = torch.zeros(())
            state["mean"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        state["step"] += 1
        mean, square = state["mean"].lerp_(gradient, 1 - beta), state["square"]
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        steps = state["step"].item()
        return mean.div(1 - beta**steps).div_(square.div(1 - beta2**steps).sqrt_().add_(1e-8))


def split(parameters: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The kernels of hidden convolutions, and the rest: a convolution of three channels is the one of the image."""
    kernels: list[Tensor] = []
    rest: list[Tensor] = []
    for parameter in parameters:
        (kernels if parameter.ndim == 4 and parameter.shape[1] > 3 else rest).append(parameter)
    return kernels, rest


def orthogonal(matrix: Tensor) -> Tensor:
    """About ``U V^T`` for ``matrix = U S V^T``, by rounds of products (Newton and Schulz)."""
    a, b, c = COEFFICIENTS
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / (wide.norm() + NOTHING)
    for _ in range(ROUNDS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x
