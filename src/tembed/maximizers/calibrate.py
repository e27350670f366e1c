"""The constants of the soft maximizers, read off a trained BN network (§4.1)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tembed.errors import TembedError
from tembed.maximizers.bn_relu import implied_margin

DEAD = 1e-2
"""Channels whose ``|gamma|`` is below this share of the layer's largest: weight decay has switched them off."""


class Calibration(NamedTuple):
    """The threshold and the output scale that stand in for BN-ReLU."""

    mu: float
    eta: float


def calibrate(model: nn.Module, images: Tensor) -> Calibration:
    """``mu`` and ``eta`` of a trained network, from the BN layers that follow its 3x3 convolutions.

    ``mu`` is the mean of the non-zero margins ``mu_k``; ``eta`` the mean, over the pixels that ``images``
    ``(N, 3, H, W)`` have in all those layers, of the sum of the activations after BN-ReLU. A convolution that reads
    the images themselves (the stem) does not count. Works for any network of ``nn.Conv2d`` and ``nn.BatchNorm2d``.
    """
    margins: list[Tensor] = []
    total, pixels = 0.0, 0
    mode = model.training
    model.eval()
    try:
        with torch.no_grad(), _matches(model, images) as found:
            model(images)
    finally:
        model.train(mode)
    if not found:
        raise TembedError(
            "no BatchNorm2d follows a 3x3 convolution in this network: there is nothing to calibrate from"
        )
    for bn, mass, count in found:
        margin = implied_margin(bn).detach()
        alive = bn.weight.abs() >= DEAD * bn.weight.abs().max()
        margins.append(margin[alive & (margin != 0)])
        total, pixels = total + mass, pixels + count
    return Calibration(torch.cat(margins).mean().item(), total / pixels)


@contextmanager
def _matches(model: nn.Module, images: Tensor) -> Iterator[list[tuple[nn.BatchNorm2d, float, int]]]:
    """While open, lists each BN that is fed by a 3x3 convolution, its summed activations and its pixels."""
    produced: list[Tensor] = []  # kept, so that identity stays a test
    found: list[tuple[nn.BatchNorm2d, float, int]] = []

    def after_convolution(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if inputs[0] is not images:
            produced.append(output)

    def after_norm(module: nn.Module, inputs: Any, output: Tensor) -> None:
        assert isinstance(module, nn.BatchNorm2d)
        if any(inputs[0] is map_ for map_ in produced):
            p = output.relu()
            found.append((module, p.double().sum().item(), p.numel() // p.shape[1]))

    hooks = [
        part.register_forward_hook(after_convolution)
        for part in model.modules()
        if isinstance(part, nn.Conv2d) and part.kernel_size == (3, 3)
    ]
    hooks += [part.register_forward_hook(after_norm) for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
