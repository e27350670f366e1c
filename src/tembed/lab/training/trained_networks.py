"""Stands in until the analysis reads ``model.description`` itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tembed.common.errors import TembedError
from tembed.lab.training.recipe import Recipe
from tembed.trained.weights_file import AnyNetwork, as_network, load
from tembed.trained.weights_file import name_of as named

__all__ = ["Source", "Trained", "as_trained", "load_trained", "named"]

Source = Any


@dataclass(frozen=True)
class Trained:
    model: AnyNetwork
    recipe: Recipe
    classes: tuple[str, ...]
    input_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    about: dict[str, Any]

    @property
    def fit(self) -> Any:
        return self.model.description.fit


def _trained(model: AnyNetwork) -> Trained:
    known = model.description
    mean, std = known.normalisation
    if known.recipe is None:
        raise TembedError(f"this {known.model} does not say how it was trained: give a run or a weights file of a run")
    recipe = Recipe.from_plain(known.recipe)
    return Trained(model, recipe, known.classes, known.input_size, mean, std, known.plain())


def load_trained(source: str | Path) -> Trained:
    return _trained(load(source))


def as_trained(source: Any, accelerator: str = "auto") -> Trained:
    return source if isinstance(source, Trained) else _trained(as_network(source, accelerator))
