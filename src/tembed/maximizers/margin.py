"""The threshold ``mu`` that competes with the activations through the slack ``q``."""

import torch
from torch import Tensor

from tembed.errors import TembedError

MU = 2.5
"""The paper's threshold for ResNet20 on CIFAR-10 (§4.1)."""
ETA = 17.0
"""The paper's output scale, the mean of ``sum_k p_k`` after BN-ReLU (§4.1)."""
EPS = 1.0
"""The paper's sharpness (§4.1)."""


def place(a: Tensor, mu: float | Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor, int]:
    """``a``, ``mu`` in ``a``'s shape with size 1 along ``dim``, and ``dim`` counted from the front."""
    if not -a.ndim <= dim < a.ndim:
        raise TembedError(f"dim={dim} is not an axis of activations of shape {tuple(a.shape)}")
    dim %= a.ndim
    if a.shape[dim] == 0:
        raise TembedError(f"no activations along dim={dim}: shape {tuple(a.shape)}")
    if not a.is_floating_point():
        raise TembedError(f"activations must be floating point, not {a.dtype}")
    if not eps > 0:
        raise TembedError(f"eps, the sharpness, must be positive, not {eps}")
    shape = (*a.shape[:dim], 1, *a.shape[dim + 1 :])
    margin = torch.as_tensor(mu, dtype=a.dtype, device=a.device)
    try:
        return a, margin.expand(shape), dim
    except RuntimeError:
        raise TembedError(
            f"mu of shape {tuple(margin.shape)} does not broadcast to {shape}: size 1 along dim={dim}, else as the "
            "activations"
        ) from None
