"""BN-ReLU, read as a soft maximizer of P1 (§3.2)."""

import torch.nn.functional as F
from torch import Tensor, nn

from tembed.errors import TembedError


class BNReLU(nn.BatchNorm2d):
    """Batch normalisation and ReLU in one module; the maximizer that networks usually have."""

    def normalize(self, a: Tensor) -> Tensor:
        """The normalised activations, before the ReLU."""
        return super().forward(a)

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(self.normalize(input))


def implied_margin(bn: nn.BatchNorm2d) -> Tensor:
    """The threshold of each kernel, ``mu_k = E[a_k] - beta_k sqrt(Var a_k) / gamma_k``, from the running statistics."""
    if bn.running_mean is None or bn.running_var is None or not bn.affine:
        raise TembedError(f"{bn} has no running statistics or no scale to read a margin from")
    return bn.running_mean - bn.bias * (bn.running_var + bn.eps).sqrt() / bn.weight
