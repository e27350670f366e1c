"""BN-ReLU, read as a soft maximizer of P1 (§3.2)."""

import torch.nn.functional as F
from torch import Tensor, nn

from tembed.common.errors import TembedError
from tembed.kernels import fused_bn_relu as op
from tembed.kernels.autograd import has_hooks
from tembed.maximizers.lookup import register


class BNReLU(nn.BatchNorm2d):
    """Batch normalisation and ReLU in one module: the maximizer that networks usually have.

    In training, a channels-last float32 map on the CPU goes through a fused kernel (`tembed.kernels.fused_bn_relu`).
    """

    def normalize(self, a: Tensor) -> Tensor:
        """The normalised activations, before the ReLU. Subclasses with other statistics override this."""
        return super().forward(a)

    def forward(self, input: Tensor, *, with_normalized: bool = False) -> Tensor | tuple[Tensor, Tensor]:  # type: ignore[override]
        """``relu(bn(a))``: ``(N, K, H, W)`` to the same shape. ``with_normalized`` also returns ``bn(a)``."""
        if with_normalized:
            normalized = self.normalize(input)
            return F.relu(normalized), normalized
        if self.has_kernel(input):
            return op.bn_relu(self, input)
        return F.relu_(self.normalize(input))

    def with_input(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """``relu(bn(a))``, and ``a`` for a shortcut around it. The fused kernel sums their gradients."""
        if self.has_kernel(a) and not has_hooks(self) and type(self).forward is BNReLU.forward:
            return op.bn_relu_with_input(self, a)
        return self(a), a

    def has_kernel(self, a: Tensor) -> bool:
        """Whether the fused kernel accepts this map."""
        return op.has_kernel(self, a)


def implied_margin(bn: nn.BatchNorm2d) -> Tensor:
    """The threshold of each kernel, ``mu_k = E[a_k] - beta_k sqrt(Var a_k) / gamma_k``, from the running statistics."""
    if bn.running_mean is None or bn.running_var is None or not bn.affine:
        raise TembedError(f"{bn} has no running statistics or no scale, so it implies no margin")
    return bn.running_mean - bn.bias * (bn.running_var + bn.eps).sqrt() / bn.weight


register("bn-relu", BNReLU, {})
