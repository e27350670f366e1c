"""Muon (Jordan et al. 2024): each step moves the kernels of a convolution by an orthogonal matrix.

The momentum of a convolution, as a matrix with one row per kernel, is replaced by the nearest matrix whose singular
values are all 1, so directions with small gradients move as far as the others. Parameters that are not matrices between
hidden features (the stem, normalisations, biases, the head) are left to AdamW.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

SIZE = 0.2
"""Root mean square of a step at rate 1, about that of Adam's steps (Liu et al. 2025)."""
REST = 0.2
"""Rate of AdamW's parameters as a share of the kernels' rate. With equal rates, a run lost a unit (docs/recipes.md)."""
NOTHING = 1e-7
"""Added to a momentum's norm, so that a unit without gradients is not moved by what remains of its last gradients."""
ROUNDS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that maps (0, 1] to about 1 in `ROUNDS` rounds (Jordan et al. 2024)."""


class Muon(torch.optim.Optimizer):
    """Muon for the kernels of a model's hidden convolutions, torch's fused AdamW for its other parameters.

    The first of ``betas`` is also Muon's momentum. The weight decay is decoupled and the same for all parameters.
    """

    OLD_STATE_NAMES = {"mean": "exp_avg", "square": "exp_avg_sq"}  # noqa: RUF012
    """Names of AdamW's moments in checkpoints from before torch's AdamW was used, and their names now."""

    def __init__(self, model: nn.Module, lr: float, betas: tuple[float, float], weight_decay: float):
        kernels, rest = group_parameters(model.parameters())
        groups = [{"params": kernels, "hidden": True}, {"params": rest, "hidden": False}]
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.adamw = torch.optim.AdamW(rest, lr, betas, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for kernels in (group for group in self.param_groups if group["hidden"]):
            for weight in kernels["params"]:
                if weight.grad is not None:
                    self._step_kernels(weight, kernels["lr"], kernels["betas"][0], kernels["weight_decay"])
        self.adamw.state = self.state  # one state for both, as checkpoints save it
        self.adamw.param_groups = [
            self.adamw.defaults
            | {name: group[name] for name in ("params", "betas", "weight_decay")}
            | {"lr": REST * group["lr"]}
            for group in self.param_groups
            if not group["hidden"]
        ]
        self.adamw.step()

    def _step_kernels(self, weight: Tensor, rate: float, beta: float, decay: float) -> None:
        gradient, state = weight.grad, self.state[weight]
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(gradient)
        momentum = state["momentum"].mul_(beta).add_(gradient)
        ahead = gradient.add(momentum, alpha=beta)  # Nesterov's look-ahead
        rows = ahead.flatten(1)
        step = orthogonal(rows).mul_(SIZE * max(rows.shape) ** 0.5).reshape(ahead.shape)
        weight.mul_(1 - rate * decay).sub_(step, alpha=rate)


def group_parameters(parameters: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The kernels of hidden convolutions, and the rest. A convolution with three input channels reads the image."""
    kernels: list[Tensor] = []
    rest: list[Tensor] = []
    for parameter in parameters:
        (kernels if parameter.ndim == 4 and parameter.shape[1] > 3 else rest).append(parameter)
    return kernels, rest


def orthogonal(matrix: Tensor) -> Tensor:
    """Approximately ``U V^T`` for ``matrix = U S V^T``, by Newton-Schulz iterations."""
    a, b, c = COEFFICIENTS
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / (wide.norm() + NOTHING)
    for _ in range(ROUNDS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x
