"""Parameter counts of the networks beside those of Table 1."""

from typing import NamedTuple

from torch import nn

from tembed.models.registry import create_model, model_info
from tembed.paper import PARAMETERS


class ParameterRow(NamedTuple):
    """A network's parameters as counted here, ``constant + per_class * C``, and as the paper prints them."""

    name: str
    label: str
    constant: int
    per_class: int
    paper_millions: float
    paper_per_class: int

    @property
    def agrees(self) -> bool:
        return round(self.constant / 1e6, 2) == self.paper_millions and self.per_class == self.paper_per_class


def count_parameters(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def parameter_table() -> list[ParameterRow]:
    """Every row of Table 1, counted on the networks themselves."""
    rows = []
    for name, printed in PARAMETERS.items():
        one, two = (count_parameters(create_model(name, classes)) for classes in (1, 2))
        rows.append(ParameterRow(name, model_info(name).label or name, 2 * one - two, two - one, *printed))
    return rows
