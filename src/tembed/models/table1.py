"""The parameter column of Table 1, as printed, and as counted here."""

from typing import NamedTuple

from torch import nn

from tembed.models.registry import create_model

PAPER: dict[str, tuple[str, float, int]] = {
    "rn26": ("RN26", 0.96, 257),
    "rn26-aux": ("RN26-aux.", 0.96, 386),
    "rn26-embed": ("RN26-Ours", 0.98, 516),
    "rn38": ("RN38", 1.42, 257),
    "rn38-embed": ("RN38-Ours", 1.44, 516),
    "wrn16": ("WRN16", 1.28, 129),
    "wrn16-embed": ("WRN16-Ours", 1.30, 388),
    "dn100": ("DN100", 1.20, 535),
    "dn100-embed": ("DN100-Ours", 1.32, 1222),
    "dn100-embed-cat": ("DN100-Ours-C", 1.36, 1264),
}
"""Name: the paper's label, its millions of parameters without the classes', and those of each class."""


class Row(NamedTuple):
    """One network: our count, and the paper's."""

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


def parameter_table() -> list[Row]:
    """Every row of Table 1, counted on the networks themselves."""
    rows = []
    for name, (label, millions, paper_per_class) in PAPER.items():
        one, two = (count_parameters(create_model(name, classes)) for classes in (1, 2))
        rows.append(Row(name, label, 2 * one - two, two - one, millions, paper_per_class))
    return rows
