"""The threshold ``mu`` that competes with the activations through the slack ``q``, and the ranges of the constants."""

import math

import torch
from torch import Tensor

from tembed.common.errors import TembedError


def check_constants(*, mu: float | Tensor = 0.0, eta: float = 1.0, eps: float = 1.0) -> None:
    """Raise `TembedError` unless ``eta`` and ``eps`` are positive and finite and ``mu`` is a number or an infinity.

    A tensor ``mu`` is not checked: NaN in it gives NaN, as NaN in the activations does.
    """
    for name, value in (("eta", eta), ("eps", eps)):
        if not 0 < value < math.inf:
            raise TembedError(f"`{name}` is {value}; it must be positive and finite")
    if not isinstance(mu, Tensor) and math.isnan(mu):
        raise TembedError("`mu` is nan; it must be a number, finite or infinite")


def align_margin(a: Tensor, mu: float | Tensor, eps: float, dim: int) -> tuple[Tensor, Tensor, int]:
    """``a``, ``mu`` in the shape of ``a`` with size 1 along ``dim``, and ``dim`` counted from the front.

    An infinite ``mu`` becomes the largest finite number, so that differences stay defined: the results are the limits.
    """
    if not -a.ndim <= dim < a.ndim:
        raise TembedError(f"`dim` is {dim}, which is not an axis of activations of shape {tuple(a.shape)}")
    dim %= a.ndim
    if a.shape[dim] == 0:
        raise TembedError(f"there are no activations along `dim` {dim}: the shape is {tuple(a.shape)}")
    if not a.is_floating_point():
        raise TembedError(f"activations must be floating point, not {a.dtype}")
    check_constants(mu=mu, eps=eps)
    shape = (*a.shape[:dim], 1, *a.shape[dim + 1 :])
    largest = torch.finfo(a.dtype).max
    # A number is filled in on the device: to copy it there, the host would have to wait for the device.
    if isinstance(mu, Tensor):
        margin = mu.to(a).clamp(-largest, largest)
    else:
        margin = a.new_full((), max(-largest, min(mu, largest)))
    try:
        return a, margin.expand(shape), dim
    except RuntimeError:
        raise TembedError(
            f"`mu` has shape {tuple(margin.shape)}, which does not broadcast to {shape}: it needs size 1 along "
            f"axis {dim} and otherwise the shape of the activations"
        ) from None
