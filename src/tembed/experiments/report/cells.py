"""Runs that differ in nothing but their seed make a cell; cells that were trained alike make a regime."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tembed.experiments.report.records import Record
from tembed.experiments.report.statistics import Sample
from tembed.training.recipe import Recipe

OF_THE_MODEL = ("weight", "softmax_on_bn", "smooth_shortcut", "maximizer", "mu", "eta", "eps")
"""What a recipe says of the network and its loss; the rest but model, data and seed is the regime."""
WHAT = ("model", "data", "seed")

Regime = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Cell:
    """Runs of one recipe on one copy of a dataset, with as many test images; ``recipe`` is theirs with seed 0."""

    recipe: Recipe
    data_sha256: str
    test_images: int
    records: tuple[Record, ...]

    @property
    def sample(self) -> Sample:
        return Sample(tuple(record.accuracy for record in self.records))

    @property
    def seeds(self) -> list[int]:
        return sorted(record.recipe.seed for record in self.records)

    @property
    def usual(self) -> bool:
        """Whether the network and its loss are those of Table 1."""
        return usual(self.recipe) == self.recipe

    @property
    def measured_on(self) -> str:
        """The dataset, its copy and its test set: what two cells must share to be compared."""
        return f"{self.recipe.data} {self.data_sha256[:8]} {self.test_images}"

    @property
    def regime(self) -> Regime:
        return regime_of(self.recipe)

    def curve(self) -> list[tuple[float, float]]:
        """Validation accuracy in % by epoch, the mean over the runs."""
        columns = zip(*([100 * epoch["val_accuracy"] for epoch in r.curve] for r in self.records), strict=False)
        return [(float(number), sum(values) / len(values)) for number, values in enumerate(columns, 1)]


def make_cells(records: Iterable[Record]) -> list[Cell]:
    """Never two recipes, epochs, splits, copies of the data or test sets in one cell."""
    groups: dict[tuple[Recipe, str, int], list[Record]] = {}
    for record in records:
        key = (dataclasses.replace(record.recipe, seed=0), record.data_sha256, record.test_images)
        groups.setdefault(key, []).append(record)
    return [Cell(recipe, sha256, images, tuple(runs)) for (recipe, sha256, images), runs in groups.items()]


def usual(recipe: Recipe) -> Recipe:
    """This recipe with the network and the loss of Table 1."""
    blank: dict[str, Any] = dict.fromkeys(OF_THE_MODEL)
    return dataclasses.replace(recipe, **blank).complete()


def regime_of(recipe: Recipe) -> Regime:
    """All that decides a training but the network, the data and the seed."""
    values = dataclasses.asdict(recipe)
    return tuple((name, value) for name, value in values.items() if name not in (*OF_THE_MODEL, *WHAT))


def describe(recipe: Recipe, without: tuple[str, ...] = ()) -> str:
    """A complete recipe's regime in words: the nearest preset, epochs, split, and what else is changed.

    ``without`` names fields that are told elsewhere.
    """
    told = ("epochs", "split", "split_seed", "train_images", *without)
    mine = dict(regime_of(recipe))

    def changes(preset: Any) -> dict[str, Any]:
        usual = dict(regime_of(preset("rn26", "cifar10").complete()))
        return {name: value for name, value in mine.items() if name not in told and value != usual[name]}

    name, changed = min((("paper", changes(Recipe.paper)), ("fast", changes(Recipe.fast))), key=lambda c: len(c[1]))
    split = "65/15/20 split" if recipe.split == "paper" else "official split"
    images = "all training images" if recipe.train_images is None else f"{recipe.train_images:,} training images"
    words = [f"{name} recipe", f"{recipe.epochs} epochs", f"{split} {recipe.split_seed}", images]
    words += [f"{key.replace('_', ' ')} {value}" for key, value in changed.items()]
    return ", ".join(words)


def network(recipe: Recipe) -> str:
    """The network of a complete recipe, with what is unusual in it."""
    from tembed.paper import LABELS

    normal = usual(recipe)
    words = [LABELS.get(recipe.model, recipe.model.upper())]
    for name in OF_THE_MODEL:
        value = getattr(recipe, name)
        if value != getattr(normal, name) and value is not None:
            words.append(f"{'lambda' if name == 'weight' else name.replace('_', ' ')} {value}")
    return ", ".join(words)
