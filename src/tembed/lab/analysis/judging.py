"""Every explanation of some networks beside its rivals and null explanations, by every measure (docs/judge.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tembed.common.arrays import Floats
from tembed.common.errors import TembedError
from tembed.common.extras import needs
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.attributions import ATTRIBUTIONS, NULLS, Attribution, available, best_attribution
from tembed.lab.analysis.compared_runs import baseline_of
from tembed.lab.analysis.judge_maps import (
    cell_correctness,
    cell_drops,
    deletion_and_insertion,
    draw_grids,
    energy,
    grid_shares,
    locality,
    milliseconds,
    pointing,
    randomised,
    similarity,
    with_fixed_window,
)
from tembed.lab.analysis.judge_parts import (
    THRESHOLDS,
    Answers,
    Array,
    Contrast,
    Scenes,
    completeness,
    contrastivity,
    contrasts,
    correctness,
    logits_of,
    network_input,
)
from tembed.lab.analysis.sampling import sample
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.image_set import Splits
from tembed.lab.data.loading import load
from tembed.lab.training.recipe import recipe_of
from tembed.models.network import Network
from tembed.trained.weights_file import AnyNetwork, as_network

COMPETITIVE = 0.02
"""A rival network counts if its accuracy is at most this far below that of the network without a block."""
BATCH = 50


@dataclass(frozen=True)
class Measure:
    """A measure of explanations. ``better``: 1 if higher is better, -1 if lower is."""

    name: str
    what: str
    better: int = 1


MEASURES = {
    one.name: one
    for one in (
        Measure("pointing", "the highest pixel lies on the object"),
        Measure("energy", "share of the positive values on the object"),
        Measure("completeness", "((CSDC + PC + DC) / 3 + D) / 2 at the threshold of the validation images"),
        Measure("CSDC", "share of a sufficient set of parts that is important"),
        Measure("PC", "the prediction stays when only the important parts are left"),
        Measure("DC", "the prediction changes without the important parts"),
        Measure("D", "share of the parts without influence that are not important"),
        Measure("correctness", "SD: rank correlation of the parts' sums and the drops of the logit; chance 0.5"),
        Measure("over area", "correctness minus that of the parts' areas; chance 0"),
        Measure("per pixel", "correctness of the parts' means instead of sums; chance 0.5"),
        Measure("TS", "target sensitivity: maps of two classes differ as the parts that they share; chance 0.5"),
        Measure("TS kept", "the same where the network's own logits differ so when the parts are removed"),
        Measure("grid", "share of a class's map in its quarter of four images; chance 0.25"),
        Measure("cells", "IDSDS: rank correlation of 4x4 cells' sums and the drops of the logit; chance 0"),
        Measure("deletion", "probability while the highest pixels are blurred first", -1),
        Measure("insertion", "probability while the highest pixels appear first"),
        Measure("sanity all", "rank correlation with the map of the network with random weights", -1),
        Measure("sanity top", "the same with a random last stage and head", -1),
    )
}
"""The measures of single images, in the order of the report."""


@dataclass(frozen=True)
class Sizes:
    """How many images each measure takes."""

    per_class: int = 10
    """test images of each class"""
    validation: int = 4
    """validation images of each class, on which thresholds are chosen"""
    few: int = 30
    """test images for deletion and insertion"""
    sanity: int = 20
    """test images for maps of random networks"""
    grids: int = 8
    """grids of four images"""
    exchanged: int = 6
    """test images whose surroundings are exchanged, for half as many others each"""

    @staticmethod
    def of(per_class: int) -> "Sizes":
        """All numbers in proportion to the test images of each class."""
        n = per_class
        return Sizes(n, max(2, 2 * n // 5), 3 * n, 2 * n, max(1, 4 * n // 5), max(4, 3 * n // 5))


@dataclass(frozen=True, eq=False)
class Row:
    """One map of one network. ``values``: for each measure one value per image (or pair, or quarter), NaN if dropped.

    ``threshold``: the share above which a part is important, chosen on validation images. ``locality``: the share of
    the variance that comes from near. ``ms``: processor time of one explanation.
    """

    source: str
    model: str
    seed: int
    accuracy: float
    explanation: str
    explains: str
    values: Mapping[str, Array]
    threshold: float | None
    locality: float
    ms: float
    competitive: bool = True


@dataclass(frozen=True)
class Comparison:
    """Ours against one rival by one measure. ``intervals``: for each seed the difference and its 95 % interval.

    Differences are of pairs: the same images, positive if ours is better. Ahead: the interval is above zero in each
    seed; behind: below zero in each seed; level otherwise.
    """

    measure: str
    rival: str
    intervals: tuple[tuple[float, float, float], ...]

    @property
    def verdict(self) -> str:
        if all(low > 0 for _, low, _ in self.intervals):
            return "ahead"
        return "behind" if all(high < 0 for _, _, high in self.intervals) else "level"


@dataclass(frozen=True, eq=False)
class Judged:
    """All maps of all networks. ``ours``: the explanation that is compared with all others."""

    data: str
    model: str
    ours: str
    sizes: Sizes
    images: int
    left_out: str
    rows: list[Row]
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self.rows if row.model == self.model})


def judge(
    sources: Sequence[str | Path],
    rivals: Sequence[str | Path] = (),
    *,
    data: str | None = None,
    sizes: Sizes | None = None,
    ours: str | None = None,
    root: Path | None = None,
    accelerator: str = "auto",
    progress: Progress = SILENT,
) -> Judged:
    """Judge the explanations of a network beside those of its rivals.

    Args:
        sources: runs of one recipe, each with another seed.
        rivals: runs of other networks on the same data; a rival is compared with our run of the same seed.
        data: another dataset with the same classes.
        sizes: how many images each measure takes.
        ours: the explanation to compare; by default the one that `explain` draws.
    """
    sizes = sizes or Sizes()
    networks = {str(source): as_network(source, accelerator) for source in (*sources, *rivals)}
    first = networks[str(sources[0])]
    recipe = recipe_of(first)
    for name, network in networks.items():
        if network.description.classes != first.description.classes:
            raise TembedError(f"{name} has other classes than {sources[0]}: judge networks of one dataset")
    splits = load(data or recipe.data, None if data else recipe.split, recipe.split_seed, root)
    splits = splits.resized(first.description.input_size)
    judged = Judged(
        data=splits.name,
        model=first.description.model,
        ours=ours or best_attribution(first).name,
        sizes=sizes,
        images=sizes.per_class * len(splits.test.classes),
        left_out=recipe.left_out,
        rows=[],
    )
    bench = Bench.of(splits, sizes)
    for name, network in networks.items():
        rival = name not in map(str, sources)
        progress.say(f"judging {name}")
        judged.rows.extend(bench.judge(name, network, nulls=not rival, progress=progress))
    return replace(judged, rows=(rows := marked(judged.rows)), comparisons=compare(rows, judged.model, judged.ours))


@dataclass(frozen=True, eq=False)
class Bench:
    """The images on which networks are judged, the same for all."""

    splits: Splits
    sizes: Sizes
    test: Scenes | None
    validation: Scenes | None

    @staticmethod
    def of(splits: Splits, sizes: Sizes) -> "Bench":
        record = dataset(splits.name)
        if record.draw is None or not record.owners:
            return Bench(splits, sizes, None, None)
        drawn = [
            Scenes.draw(sample(images, count), record)
            for images, count in ((splits.test, sizes.per_class), (splits.val, sizes.validation))
        ]
        return Bench(splits, sizes, *drawn)

    def judge(self, name: str, network: AnyNetwork, *, nulls: bool, progress: Progress) -> list[Row]:
        """One row for each map that the network has, and for the null explanations if asked for."""
        images = sample(self.splits.test, self.sizes.per_class)
        x, labels = network_input(network, images.pixels()), images.labels.to(next(network.parameters()).device)
        spread = torch.arange(len(x)).reshape(len(images.classes), -1).T.flatten()  # every class in each first part
        few, sanity, near = (spread[:n] for n in (self.sizes.few, self.sizes.sanity, self.sizes.exchanged))
        drops = cell_drops(network, x[few], labels[few])
        random = randomised(network, self.splits.train)
        wide, grids = with_fixed_window(network, x), draw_grids(images.labels, self.sizes.grids)
        parts = None
        if self.test is not None and self.validation is not None:
            parts = PartMeasures.of(network, self.test, self.validation)
        explanations = [one for one in available(network) if nulls or one.name not in NULLS]
        known = network.description
        rows = []
        for done, one in enumerate(explanations):
            progress.update(f"maps of {known.model}", done, len(explanations))
            maps = in_batches(one, network, x, labels)
            values, threshold = parts.measure(one, network, maps) if parts is not None else ({}, None)
            if isinstance(network, Network):
                values["grid"] = grid_shares(one, wide, x, labels, grids)
            values["cells"] = cell_correctness(maps[few], drops)
            values["deletion"], values["insertion"] = deletion_and_insertion(maps[few], network, x[few], labels[few])
            for what, other in random.items():
                values[what] = similarity(maps[sanity], in_batches(one, other, x[sanity], labels[sanity]))
            rows.append(
                Row(
                    source=name,
                    model=known.model,
                    seed=recipe_of(network).seed,
                    accuracy=accuracy(network, self.splits),
                    explanation=one.name,
                    explains=one.explains,
                    values=values,
                    threshold=threshold,
                    locality=locality(one, network, x[near], labels[near], range(0, len(near), 2)),
                    ms=milliseconds(one, network, x, labels),
                )
            )
        return rows


@dataclass(frozen=True, eq=False)
class PartMeasures:
    """What the measures about parts need of one network."""

    answers: Answers
    validation: Answers
    pairs: list[Contrast]
    area: Array

    @staticmethod
    def of(network: AnyNetwork, test: Scenes, validation: Scenes) -> "PartMeasures":
        answers = Answers.ask(network, test)
        area = correctness(np.ones(test.part_map.shape, np.float32), answers)
        return PartMeasures(answers, Answers.ask(network, validation), contrasts(answers), area)

    def measure(self, one: Attribution, network: AnyNetwork, maps: Floats) -> tuple[dict[str, Array], float]:
        """All measures about parts, and the threshold of the validation images."""
        scenes, held_out = self.answers.scenes, self.validation.scenes
        x, labels = network_input(network, held_out.images.pixels()), held_out.images.labels
        best = completeness(in_batches(one, network, x, labels), self.validation).best
        whole = completeness(maps, self.answers)
        x = network_input(network, scenes.images.pixels([pair.image for pair in self.pairs]))
        first, second = (
            in_batches(one, network, x, torch.tensor([getattr(pair, which) for pair in self.pairs]))
            for which in ("first", "second")
        )
        sensitive = contrastivity(first, second, self.pairs, scenes)
        ranks, objects = correctness(maps, self.answers), scenes.part_map > 0
        found = {
            "pointing": pointing(maps, objects),
            "energy": energy(maps, objects),
            "completeness": whole.total[:, best],
            "CSDC": whole.csdc[:, best],
            "PC": whole.pc[:, best],
            "DC": whole.dc[:, best],
            "D": whole.d[:, best],
            "correctness": ranks,
            "over area": ranks - self.area,
            "per pixel": correctness(maps, self.answers, per_pixel=True),
            "TS": sensitive,
            "TS kept": np.where([pair.behaves for pair in self.pairs], sensitive, np.nan),
        }
        return found, float(THRESHOLDS[best])


def in_batches(one: Callable[..., Floats], network: AnyNetwork, x: Tensor, classes: Tensor) -> Floats:
    """The maps of many images."""
    places, classes = range(0, len(x), BATCH), classes.to(x.device)
    return np.concatenate([one(network, x[k : k + BATCH], classes[k : k + BATCH]) for k in places])


def accuracy(network: AnyNetwork, splits: Splits) -> float:
    """The accuracy on all test images."""
    result = network.description.result
    if result is not None and recipe_of(network).data == splits.name:
        return float(result["test_accuracy"])
    places = np.array_split(np.arange(len(splits.test)), max(1, len(splits.test) // BATCH))
    found = [logits_of(network, network_input(network, splits.test.pixels(some))).argmax(1) for some in places]
    return float((np.concatenate(found) == splits.test.labels.numpy()).mean())


def marked(rows: Sequence[Row]) -> list[Row]:
    """The rows, with networks that are too inaccurate to count as rivals marked as such."""
    plain = [row.accuracy for row in rows if row.model == baseline_of(row.model)]
    least = (float(np.mean(plain)) if plain else max(row.accuracy for row in rows)) - COMPETITIVE
    return [replace(row, competitive=row.accuracy >= least) for row in rows]


def interval(values: Array) -> tuple[float, float, float]:
    """The mean of the values that are not NaN and its 95 % interval (t)."""
    values = values[~np.isnan(values)]
    mean = float(values.mean()) if len(values) else float("nan")
    if len(values) < 2:
        return mean, float("-inf"), float("inf")
    half = float(values.std(ddof=1) / np.sqrt(len(values)) * needs("scipy.stats").t.ppf(0.975, len(values) - 1))
    return mean, mean - half, mean + half


def compare(rows: Sequence[Row], model: str, ours: str) -> list[Comparison]:
    """Our map against each rival by each measure.

    Rivals are null explanations, maps of other networks that count, and maps of our network that need no block.
    """
    mine = {row.seed: row for row in rows if row.model == model and row.explanation == ours}
    if not mine:
        raise TembedError(f"`ours` is {ours!r}, which is no map of {model}")
    rivals: dict[str, dict[int, Row]] = {}
    for row in rows:
        is_own = row.model == model and (row.explanation == ours or "scores" in ATTRIBUTIONS[row.explanation].needs)
        if row.competitive and not is_own:
            name = row.explanation if row.explanation in NULLS else f"{row.explanation} of {row.model}"
            rivals.setdefault(name, {})[row.seed] = row
    found = []
    for measure in MEASURES.values():
        for name, theirs in rivals.items():
            pairs = [
                (row.values[measure.name], theirs[seed].values[measure.name])
                for seed, row in mine.items()
                if seed in theirs and measure.name in row.values and measure.name in theirs[seed].values
            ]
            if pairs:
                intervals = tuple(interval(measure.better * (a - b)) for a, b in pairs)
                found.append(Comparison(measure.name, name, intervals))
    return found
