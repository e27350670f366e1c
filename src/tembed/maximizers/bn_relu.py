"""BN-ReLU, read as a soft maximizer of P1 (§3.2)."""

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from tembed.common.errors import TembedError
from tembed.kernels import fused_bn_relu as op
from tembed.kernels.autograd import has_hooks
from tembed.maximizers.lookup import register

Value = TypeVar("Value")


class BNReLU(nn.Module):
    """Batch normalisation and ReLU: the maximizer that networks usually have.

    In training, a channels-last float32 map on the CPU goes through a fused kernel (`tembed.kernels.fused_bn_relu`).
    """

    def __init__(self, channels: int, **options: Any):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels, **options)
        self.relu = nn.ReLU()

    def forward(self, a: Tensor, *, with_normalized: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """``relu(bn(a))``: ``(N, K, H, W)`` to the same shape. ``with_normalized`` also returns ``bn(a)``."""
        if self.has_kernel(a) and not with_normalized:
            return op.bn_relu(self.bn, a)
        normalized = self.bn(a)
        p = self.relu(normalized)
        return (p, normalized) if with_normalized else p

    def has_kernel(self, a: Tensor) -> bool:
        """Whether the fused kernel accepts this map. It calls neither module, so both must be as they were made."""
        usual = type(self.bn) is nn.BatchNorm2d and type(self.relu) is nn.ReLU and op.has_kernel(self.bn, a)
        return usual and not has_hooks(self.bn) and not has_hooks(self.relu)


def current_names(values: Mapping[str, Value], model: nn.Module) -> dict[str, Value]:
    """The values under their names in ``model``: ``norm.weight`` of early weights files is ``norm.bn.weight``.

    A name may continue after that of the parameter, as those of an optimizer's state do.
    """
    modules = {name for name, module in model.named_modules() if isinstance(module, BNReLU)}

    def current(name: str) -> str:
        parts = name.split(".")
        for end in range(1, len(parts)):
            if parts[end] != "bn" and ".".join(parts[:end]) in modules:
                return ".".join([*parts[:end], "bn", *parts[end:]])
        return name

    return {current(name): value for name, value in values.items()}


def implied_margin(bn: nn.BatchNorm2d) -> Tensor:
    """The threshold of each kernel, ``mu_k = E[a_k] - beta_k sqrt(Var a_k) / gamma_k``, from the running statistics."""
    if bn.running_mean is None or bn.running_var is None or not bn.affine:
        raise TembedError(f"{bn} has no running statistics or no scale, so it implies no margin")
    return bn.running_mean - bn.bias * (bn.running_var + bn.eps).sqrt() / bn.weight


register("bn-relu", BNReLU, {})
