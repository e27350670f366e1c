"""Runs that differ only in their seed form a cell; cells that were trained in the same way form a regime."""

import dataclasses
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tembed.common.errors import counted
from tembed.lab.data.catalogue import dataset, list_datasets
from tembed.lab.grid.records import Record
from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.lab.training.settings import DataSettings, NetworkSettings, TrainingSettings, names_of
from tembed.models.registry import model_info

IDENTITY = ("model", "data", "seed")
"""Fields of a recipe that neither the network's options nor the regime contain."""

Regime = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Sample:
    """The test accuracies of a cell's seeds, in %.

    ``correct``: for each test image, the share of the seeds that classify it correctly; None if that is not known.
    """

    values: tuple[float, ...]
    correct: NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation with n - 1; None for a single value."""
        return statistics.stdev(self.values) if self.n > 1 else None


@dataclass(frozen=True)
class Cell:
    """Runs of one recipe on one copy of a dataset, with the same number of test images. ``recipe`` has seed 0."""

    recipe: Recipe
    data_sha256: str
    test_images: int
    records: tuple[Record, ...]

    @property
    def sample(self) -> Sample:
        known = [record.correct for record in self.records if record.correct is not None]
        correct = np.mean(known, axis=0) if len(known) == len(self.records) else None
        return Sample(tuple(record.accuracy for record in self.records), correct)

    @property
    def seeds(self) -> list[int]:
        return sorted(record.recipe.seed for record in self.records)

    @property
    def epochs(self) -> str:
        """How many epochs its runs trained; with early stopping, that differs between seeds."""
        trained = [len(record.curve) for record in self.records]
        return str(min(trained)) if min(trained) == max(trained) else f"{min(trained)} to {max(trained)}"

    @property
    def is_standard(self) -> bool:
        """Whether the network and its loss are those of Table 1."""
        return standard(self.recipe) == self.recipe

    @property
    def measured_on(self) -> str:
        """The dataset, its copy and its test set. Only cells that agree on all three can be compared."""
        return f"{self.recipe.data} {self.data_sha256[:8]} {self.test_images}"

    @property
    def regime(self) -> Regime:
        return regime_of(self.recipe)

    def curve(self, metric: str, scale: float = 1.0) -> tuple[tuple[float, float, float], ...]:
        """A metric by epoch, the mean over the runs, as points of a chart; empty if a run did not record it."""
        if any(epoch.get(metric) is None for record in self.records for epoch in record.curve):
            return ()
        columns = zip(*([scale * epoch[metric] for epoch in record.curve] for record in self.records), strict=False)
        return tuple((float(number), sum(values) / len(values), 0.0) for number, values in enumerate(columns, 1))


def make_cells(records: Iterable[Record]) -> list[Cell]:
    """Group records by everything but the seed: recipe, split, copy of the data and test set."""
    groups: dict[tuple[Recipe, str, int], list[Record]] = {}
    for record in records:
        key = (dataclasses.replace(record.recipe, seed=0), record.data_sha256, record.test_images)
        groups.setdefault(key, []).append(record)
    return [Cell(recipe, sha256, images, tuple(runs)) for (recipe, sha256, images), runs in groups.items()]


def network_fields() -> tuple[str, ...]:
    """The fields of a recipe that describe the network and its loss, except for its name."""
    return tuple(name for name in names_of(NetworkSettings) if name not in IDENTITY)


def standard(recipe: Recipe) -> Recipe:
    """This recipe with the network and the loss of Table 1."""
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe) if field.name in network_fields()}
    return dataclasses.replace(recipe, **defaults).complete()  # type: ignore[arg-type]


def regime_of(recipe: Recipe) -> Regime:
    """Everything that determines a training except the network, the data and the seed."""
    names = (*names_of(DataSettings), *names_of(TrainingSettings))
    return tuple((name, getattr(recipe, name)) for name in names if name not in IDENTITY)


def describe(recipe: Recipe, without: tuple[str, ...] = ()) -> str:
    """The regime of a complete recipe in words: the nearest preset, epochs, split, and other changes.

    ``without`` names fields to leave out because the surrounding text mentions them.
    """
    mentioned = ("epochs", "split", "split_seed", "train_images", *without)
    regime = dict(regime_of(recipe))

    def changes(preset: str) -> dict[str, Any]:
        defaults = dict(regime_of(Recipe(recipe.model, recipe.data, **PRESETS[preset]).complete()))
        return {name: value for name, value in regime.items() if name not in mentioned and value != defaults[name]}

    alike = [name for name, preset in PRESETS.items() if preset.get("freeze", False) == recipe.freeze]
    preset = min(alike, key=lambda name: len(changes(name)))
    split = "65/15/20 split" if recipe.split == "paper" else "official split"
    images = "all training images" if recipe.train_images is None else f"{recipe.train_images:,} training images"
    epochs = counted(recipe.epochs, "epoch") if recipe.patience is None else f"at most {recipe.epochs} epochs"
    words = [f"{preset} preset", epochs, f"{split} {recipe.split_seed}", images]
    words += [f"{name.replace('_', ' ')} {value}" for name, value in changes(preset).items()]
    return ", ".join(words)


def network_title(recipe: Recipe) -> str:
    """The network of a complete recipe, with everything that differs from Table 1."""
    usual = standard(recipe)
    words = [model_title(recipe.model)]
    for name in network_fields():
        value = getattr(recipe, name)
        if value == getattr(usual, name) or value is None:
            continue
        if name == "constants":
            words += [f"{constant} {number:g}" for constant, number in value]
        elif isinstance(value, bool):
            words.append(f"{'with' if value else 'without'} {name.replace('_', ' ')}")
        else:
            words.append(f"{'lambda' if name == 'weight' else name.replace('_', ' ')} {value}")
    return ", ".join(words)


def model_title(model: str) -> str:
    """The paper's label of a network, or its name."""
    return model_info(model).label or model


def data_title(name: str) -> str:
    """The title of a dataset with a record, or its name."""
    return dataset(name).title if name in list_datasets() else name
