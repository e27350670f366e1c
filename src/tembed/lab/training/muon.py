"""Muon (Jordan et al. 2024): each step moves the kernels of a convolution by an orthogonal matrix.

The momentum of a convolution, as a matrix with one row per kernel, is replaced by the nearest matrix whose singular
values are all 1, so directions with small gradients move as far as the others. Parameters that are not matrices between
hidden features (the stem, normalisations, biases, the head) are left to AdamW.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from tembed.lab.training.packing import Packing

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
        self.packings: dict[tuple[torch.Size, ...], Packing] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            kernels = [kernel for kernel in group["params"] if kernel.grad is not None]
            if group["hidden"] and kernels:
                self._step_kernels(kernels, group["lr"], group["betas"][0], group["weight_decay"])
        self.adamw.state = self.state  # one state for both, as checkpoints save it
        self.adamw.param_groups = [
            self.adamw.defaults
            | {name: group[name] for name in ("params", "betas", "weight_decay")}
            | {"lr": REST * group["lr"]}
            for group in self.param_groups
            if not group["hidden"]
        ]
        self.adamw.step()

    def _step_kernels(self, kernels: list[Tensor], rate: float, beta: float, decay: float) -> None:
        gradients = [kernel.grad for kernel in kernels if kernel.grad is not None]
        for kernel, gradient in zip(kernels, gradients, strict=True):
            if not self.state[kernel]:
                self.state[kernel]["momentum"] = torch.zeros_like(gradient)
        momenta = [self.state[kernel]["momentum"] for kernel in kernels]
        torch._foreach_mul_(momenta, beta)
        torch._foreach_add_(momenta, gradients)
        ahead = torch._foreach_add(gradients, momenta, alpha=beta)  # Nesterov's look-ahead
        if kernels[0].device.type == "cpu":
            steps = [orthogonal(each.flatten(1)[None]).reshape(each.shape) for each in ahead]
        else:
            shapes = tuple(kernel.shape for kernel in kernels)
            packing = self.packings[shapes] = self.packings.get(shapes) or Packing(kernels)
            steps = packing.unpack([orthogonal(batch) for batch in packing.pack(ahead)], kernels)
        sides = [max(len(kernel), kernel.numel() // len(kernel)) for kernel in kernels]
        torch._foreach_mul_(steps, [SIZE * side**0.5 for side in sides])
        torch._foreach_mul_(kernels, 1 - rate * decay)
        torch._foreach_sub_(kernels, steps, alpha=rate)


def group_parameters(parameters: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The kernels of hidden convolutions, and the rest. A convolution with three input channels reads the image."""
    kernels: list[Tensor] = []
    rest: list[Tensor] = []
    for parameter in parameters:
        (kernels if parameter.ndim == 4 and parameter.shape[1] > 3 else rest).append(parameter)
    return kernels, rest


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately ``U V^T`` for each matrix ``U S V^T`` of a batch ``(B, m, n)``, by Newton-Schulz iterations.

    Rows and columns of zeros stay zero, and do not change the others.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT if is_tall else matrices
    x = wide / (wide.norm(dim=(1, 2), keepdim=True) + NOTHING)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
