"""The constants of the soft maximizers, read off a trained network with batch normalisation (§4.1)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tembed.common.errors import TembedError
from tembed.common.modes import evaluation_mode
from tembed.maximizers.bn_relu import implied_margin

DEAD = 1e-2
"""Channels with ``|gamma|`` below this share of the layer's largest are ignored: weight decay has switched them off."""

Visit = Callable[[nn.BatchNorm2d, Tensor, Tensor], None]


class Calibration(NamedTuple):
    """The threshold and the output scale that replace BN-ReLU."""

    mu: float
    eta: float


class _Layer(NamedTuple):
    """A normalisation after a 3x3 convolution, the sum of its activations after the ReLU, and its number of pixels."""

    bn: nn.BatchNorm2d
    total: float
    pixels: int


def calibrate(model: nn.Module, images: Tensor) -> Calibration:
    """``mu`` and ``eta`` of a trained network, from the BN layers that directly follow its 3x3 convolutions.

    ``mu`` is the mean of the non-zero margins ``mu_k``. ``eta`` is the mean, over all pixels of ``images``
    ``(N, 3, H, W)`` in all those layers, of the sum of the activations after BN-ReLU. A convolution that reads the
    images themselves (the stem) is ignored. Works for any network of ``nn.Conv2d`` and ``nn.BatchNorm2d``.
    """
    layers: list[_Layer] = []

    def visit(bn: nn.BatchNorm2d, a: Tensor, output: Tensor) -> None:
        p = output.relu()
        total = p.cpu().double().sum().item()  # some GPUs have no float64
        layers.append(_Layer(bn, total, p.numel() // p.shape[1]))

    with evaluation_mode(model), torch.inference_mode(False), torch.no_grad(), visited_units(model, images, visit):
        model(images)
    if not layers:
        raise TembedError("no BatchNorm2d follows a 3x3 convolution in this network, so there is nothing to calibrate")
    margins = torch.cat([_margins(layer.bn) for layer in layers])
    if len(margins) == 0:
        raise TembedError(
            "all margins of this network are 0, because its normalisations still have their initial values; calibrate "
            "a trained network, for example tembed.load('rn26/cifar10')"
        )
    mu = margins.mean().item()
    eta = sum(layer.total for layer in layers) / sum(layer.pixels for layer in layers)
    if not torch.tensor([mu, eta]).isfinite().all():
        raise TembedError(
            f"the margins of this network give mu = {mu} and eta = {eta}: its weights or statistics are not finite; "
            "calibrate a network whose training did not diverge"
        )
    return Calibration(mu, eta)


def _margins(bn: nn.BatchNorm2d) -> Tensor:
    """The non-zero margins of the channels that are in use."""
    margin = implied_margin(bn).detach()
    alive = (bn.weight.abs() >= DEAD * bn.weight.abs().max()) & (bn.weight != 0)
    return margin[alive & (margin != 0)]


@contextmanager
def visited_units(model: nn.Module, images: Tensor, visit: Visit) -> Iterator[None]:
    """Within the ``with``, ``model(images)`` visits every normalisation whose input is the output of a 3x3 convolution.

    ``visit`` gets the normalisation, its input and its output.
    """
    # Each output with its version. An in-place operation, such as adding a shortcut, changes the version: the tensor is
    # then no longer what the convolution computed. Keeping the tensors keeps their identities unique.
    outputs: list[tuple[Tensor, int]] = []

    def after_convolution(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if inputs[0] is not images:
            outputs.append((output, output._version))

    def after_norm(module: nn.Module, inputs: Any, output: Tensor) -> None:
        assert isinstance(module, nn.BatchNorm2d)
        if any(inputs[0] is made and made._version == version for made, version in outputs):
            visit(module, inputs[0], output)

    hooks = [
        module.register_forward_hook(after_convolution)
        for module in model.modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3)
    ]
    hooks += [
        module.register_forward_hook(after_norm) for module in model.modules() if isinstance(module, nn.BatchNorm2d)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
