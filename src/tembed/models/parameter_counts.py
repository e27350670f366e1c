"""What the paper's tables say about the networks, counted on the networks themselves."""

from typing import Any, NamedTuple

import torch
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


def stages(name: str, input_size: int) -> str:
    """The stages of a network for images of this side, in the form of `tembed.paper.STAGES`."""
    with torch.device("meta"):
        model = create_model(name, 10, input_size).eval()
        sizes: dict[nn.Module, tuple[torch.Size, torch.Size]] = {}

        def record(module: nn.Module, inputs: Any, output: Any) -> None:
            sizes[module] = inputs[0].shape, (output[0] if isinstance(output, tuple) else output).shape

        parts = [model.stage1, model.stage2, model.stage3, model.block, model.stage4]
        for part in parts:
            if part is not None:
                part.register_forward_hook(record)
        model(torch.empty(1, 3, input_size, input_size))
    return ", ".join("-" if part is None else _stage(part, *sizes[part]) for part in parts)


def _stage(part: nn.Module, before: torch.Size, after: torch.Size) -> str:
    shrinks = round(before[3] / after[3])  # odd sides are rounded up or down
    projects = any(getattr(module, "shortcut", None) is not None for module in part.modules())
    return f"{before[1]} {after[1]} {shrinks if shrinks > 1 or projects else '-'}"
