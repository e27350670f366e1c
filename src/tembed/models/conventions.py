"""What a framework's defaults decide, where the paper is silent: one switch between two consistent sets.

``torch`` is torch's defaults with He's initialisation. ``keras`` is what two of the paper's authors use in neighbouring
code (docs/training.md): Keras' defaults, a pixel mean that is subtracted without a division, projection shortcuts that
read the raw input, and gradients clipped by their global norm.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from tembed.block import initialize


@dataclass(frozen=True)
class Conventions:
    """One set of defaults. ``initialize`` sets the weights of a new network."""

    initialize: Callable[[nn.Module], None]
    bn_momentum: float
    """share of a new batch in the running statistics; Keras writes 1 minus this number"""
    bn_eps: float
    adam_eps: float
    gradient_norm: float | None
    """largest global norm of the gradients; None for no clipping"""
    divides_by_std: bool
    """whether images are divided by their standard deviation after the mean is subtracted; pixels are from 0 to 1"""
    projects_raw_input: bool
    """whether a projection shortcut reads a unit's raw input instead of the pre-activated one"""


def initialize_glorot(module: nn.Module) -> None:
    """Glorot's uniform initialisation for convolutions and linear layers, and zero biases, as Keras has it."""
    for child in module.modules():
        if isinstance(child, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)


CONVENTIONS = {
    "torch": Conventions(
        initialize,
        bn_momentum=0.1,
        bn_eps=1e-5,
        adam_eps=1e-8,
        gradient_norm=None,
        divides_by_std=True,
        projects_raw_input=False,
    ),
    "keras": Conventions(
        initialize_glorot,
        bn_momentum=0.01,
        bn_eps=1e-3,
        adam_eps=1e-7,
        gradient_norm=10.0,
        divides_by_std=False,
        projects_raw_input=True,
    ),
}
DEFAULT = "torch"


def adopt(model: nn.Module, name: str) -> None:
    """Give a new network the batch norm, the initial weights and the shortcuts of these conventions."""
    chosen = CONVENTIONS[name]
    chosen.initialize(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum, module.eps = chosen.bn_momentum, chosen.bn_eps
        if hasattr(module, "projects_raw_input"):
            module.projects_raw_input = chosen.projects_raw_input  # type: ignore[assignment]
