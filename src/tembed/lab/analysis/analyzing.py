"""The whole analysis of a trained run (§4.3): features, maps, words, knock-outs, units and figures."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tembed.common.arrays import Floats, Int64, UInt8
from tembed.common.errors import TembedError
from tembed.common.files import make_folder, write_json
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.analysis_folder import stored
from tembed.lab.analysis.colours import Colour, class_colours
from tembed.lab.analysis.compared_runs import (
    BASELINE,
    MANY_UNTRAINED,
    RUN,
    UNTRAINED,
    ByKind,
    Named,
    OnDemand,
    sort_runs,
)
from tembed.lab.analysis.effective_fields import EffectiveField, PatchView, Window, effective_field
from tembed.lab.analysis.features import Features, cached_features, extract_features
from tembed.lab.analysis.figures import geometry_figure, legend_figure, legend_points, within, words_figure
from tembed.lab.analysis.knock_outs import KnockOuts, trained_knock_outs
from tembed.lab.analysis.maps import FEWEST_POINTS, map_all, spaces_of
from tembed.lab.analysis.sampling import Groups, default_sample, find_groups, group_labels, sample
from tembed.lab.analysis.sprites import SIDE, sprite_map
from tembed.lab.analysis.units import NO_UNITS, Unit, measure_units
from tembed.lab.analysis.untrained import COUNT, MANY, calibration_images, untrained
from tembed.lab.analysis.words import WORDS, Words, find_words
from tembed.lab.data.catalogue import Dataset, dataset
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.loading import load
from tembed.lab.training.recipe import recipe_of
from tembed.models.foreign import is_foreign, parse_foreign
from tembed.models.registry import model_info
from tembed.trained.weights_file import AnyNetwork, as_network

FEW = 8
"""Positions, and images at each of them, for the effective field of a first look."""


@dataclass(frozen=True)
class Analysis:
    """The features of a trained run, and everything that follows from them, computed on first use.

    A network without patch scores has units only: no features, maps, words or knock-outs.

    ``sample``: the images whose features these are. ``test_images``: the test subset that they were drawn from.
    ``sources``: the run, its baseline and further runs, by kind. ``given``: their features on the same images.
    ``calibration``: training images for the BN statistics of untrained networks. ``groups``: the super-classes.
    ``cache``: the folder that keeps features and t-SNE maps. ``window``: which window of each patch the figures show.
    """

    network: AnyNetwork
    source: str
    baseline_source: str | None
    sources: ByKind[Named]
    sample: ImageSet
    test_images: ImageSet
    calibration: ImageSet
    given: ByKind[Features]
    groups: Groups | None
    seed: int
    cache: Path | None
    progress: Progress = SILENT
    fast_maps: bool = False
    window: Window = "nominal"

    def __repr__(self) -> str:
        points = f"{len(self.features.image_of):,} points of " if self.has_scores else ""
        images = f"{points}{len(self.sample):,} images"
        return f"Analysis({self.source}, {self.network.description.model} on {self.data}: {images})"

    @property
    def has_scores(self) -> bool:
        """Whether the network has patch scores."""
        return model_info(self.network.description.model).has_scores

    @property
    def features(self) -> Features:
        """The features of the run. Raises `TembedError` for a network without patch scores."""
        if not self.has_scores:
            raise no_scores(self.source, self.network)
        return self.given[RUN][0]

    @property
    def baseline(self) -> Features | None:
        """The features of the baseline, if one was given."""
        return next(iter(self.given.get(BASELINE, ())), None)

    @cached_property
    def untrained(self) -> list[AnyNetwork]:
        """The network of the run, untrained."""
        return [untrained(self.network, self.calibration, seed) for seed in range(COUNT)]

    @cached_property
    def networks(self) -> ByKind[Features]:
        """The features of all networks that are compared: those that were given, and untrained ones."""
        few = [features_of(one, self.sample, self.seed, self.cache, self.progress) for one in self.untrained]

        def one_of_many(index: int) -> Features:
            if index < len(few):
                return few[index]
            network = untrained(self.network, self.calibration, index)
            return extract_features(network, self.sample, self.seed, self.progress)

        return {**self.given, UNTRAINED: few, MANY_UNTRAINED: OnDemand(MANY, one_of_many)}

    @property
    def classes(self) -> tuple[str, ...]:
        return self.network.description.classes

    @property
    def data(self) -> str:
        """The name of the dataset."""
        return recipe_of(self.network).data

    @property
    def dataset(self) -> Dataset:
        """The record of the dataset, with its pairs of look-alikes and its passages."""
        return dataset(self.data)

    @property
    def colours(self) -> tuple[Colour, ...]:
        return class_colours(len(self.classes))

    @cached_property
    def images(self) -> UInt8:
        """``(N, H, W, 3)``."""
        return self.sample.pixels()

    @cached_property
    def group_of(self) -> Int64 | None:
        """The super-class of each class: ``(C,)``."""
        return None if self.groups is None else group_labels(self.groups, self.classes)

    # --- what a patch is

    @cached_property
    def effective_field(self) -> EffectiveField:
        """How much of a patch's score comes from inside a window of each size; kept in the cache."""
        quick = "-fast" if self.fast_maps else ""
        path = None if self.cache is None else self.cache / f"effective-field-{self.features.key}{quick}.json"
        found = None if path is None else stored(path, self.network)
        if found is None:
            few = FEW if self.fast_maps else None
            found = effective_field(
                self.network, self.sample, positions=few, insides=few, seed=self.seed, progress=self.progress
            )
            if path is not None:
                make_folder(path.parent)
                write_json(path, found.to_json())
        return found

    @property
    def view(self) -> PatchView:
        """The window of each patch that the figures show, and how much of the evidence it holds."""
        return self.effective_field.view(self.window)

    # --- maps

    @property
    def has_maps(self) -> bool:
        """Whether there are enough points for t-SNE."""
        return self.has_scores and len(self.features.image_of) >= FEWEST_POINTS

    @cached_property
    def geometry_maps(self) -> dict[str, Floats]:
        """The maps of Fig. 5, by the names of `spaces_of`."""
        return map_all(
            spaces_of(self.features, self.baseline), self.cache, self.seed, self.progress, fast=self.fast_maps
        )

    @property
    def map_titles(self) -> dict[str, str]:
        """What the maps of Fig. 5 show, by their names."""
        before, after = block_ends(self.network.description.model)
        titles = {"block input": f"block input ({before})", "block output": f"block output ({after})"}
        for source, network in self.sources.get(BASELINE, ())[:1]:
            name = Path(source).name if Path(source).exists() else source  # shipped weights are no path
            short = within(name, 2.3, 10, keep_end=True)
            titles["baseline"] = f"baseline ({short}), {block_ends(network.description.model)[1]}"
        return titles

    @cached_property
    def sprite_maps(self) -> dict[str, Floats]:
        """The maps of Fig. 6: by class predictions, ``(P, 2)``, and by embedding vectors, ``(P + C + 1, 2)``.

        In the second one, the class vectors and zero follow the patches. Deep supervision has no second map.
        """
        assert self.features.softmax is not None
        spaces, fitted = {"predictions": self.features.softmax}, 0
        embedding, values = self.features.embedding, self.features.values
        if embedding is not None and values is not None:
            spaces["embedding vectors"] = np.concatenate([embedding, values, np.zeros_like(values[:1])])
            fitted = len(values) + 1  # class vectors and zero are fitted with the patches, not placed afterwards
        return map_all(spaces, self.cache, self.seed, self.progress, fast=self.fast_maps, fitted=fitted)

    # --- words, knock-outs and units

    @cached_property
    def words(self) -> Words:
        return find_words(self.features, WORDS, self.seed)

    @cached_property
    def knock_outs(self) -> KnockOuts:
        """Whether the block is at work, on random test images."""
        return trained_knock_outs(self.network, self.test_images, self.seed, self.progress, fast=self.fast_maps)

    @cached_property
    def units(self) -> ByKind[list[Unit]]:
        """What BN-ReLU does in the units of all networks that are compared, measured on first use."""
        networks = {kind: [one for _, one in found] for kind, found in self.sources.items()}
        networks[UNTRAINED] = self.untrained
        return {kind: self._units_of(found) for kind, found in networks.items()}

    def _units_of(self, networks: Sequence[AnyNetwork]) -> Sequence[list[Unit]]:
        return OnDemand(len(networks), cache(lambda index: measure_units(networks[index], self.sample, self.progress)))

    # --- figures

    def geometry(self) -> Any:
        """Fig. 5 as a matplotlib figure."""
        labels = self.features.labels[self.features.image_of]  # the same for the baseline
        panels = [(self.map_titles[name], coordinates, labels) for name, coordinates in self.geometry_maps.items()]
        named = None if self.groups is None or self.group_of is None else (list(self.groups), self.group_of)
        return geometry_figure(panels, self.classes, self.colours, named)

    def prediction_sprites(self, side: int = SIDE) -> Any:
        """The left of Fig. 6 as a Pillow picture."""
        return self._sprites(self.sprite_maps["predictions"], "patches by class prediction", side)

    def embedding_sprites(self, side: int = SIDE) -> Any:
        """The right of Fig. 6; None for deep supervision, which has no embedding."""
        coordinates = self.sprite_maps.get("embedding vectors")
        return None if coordinates is None else self._sprites(coordinates, "patches by embedding vector f'", side)

    def _sprites(self, coordinates: Floats, title: str, side: int) -> Any:
        view = self.view
        return sprite_map(
            self.features, self.images, coordinates, self.classes, self.colours, view, title=title, side=side
        )

    def chosen_words(self) -> Any:
        """Fig. 7: 16 words with their scores."""
        words = self.words
        return words_figure(self.features, self.images, words, words.chosen, self.classes, self.colours, self.view)

    def all_words(self) -> Any:
        """All words, the largest first."""
        which = np.arange(len(self.words.sizes))
        view = self.view
        return words_figure(self.features, self.images, self.words, which, self.classes, self.colours, view, columns=10)

    def legend(self) -> Any:
        """The marking of the sprite maps, shown on two patches (appendix B)."""
        points = legend_points(self.features, self.group_of)
        return legend_figure(self.features, self.images, points, self.classes, self.colours, self.view)


def analyze(
    source: str | Path,
    *,
    baseline: str | Path | None = None,
    also: Sequence[str | Path] = (),
    images_per_class: int | None = None,
    groups: Groups | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
    fast_maps: bool = False,
    accelerator: str = "auto",
    window: Window = "nominal",
) -> Analysis:
    """Extract the features of a run, a weights file or shipped weights on test images of its dataset.

    A network without patch scores is analysed by itself, without a baseline, and by its units only.
    ``baseline``: another run on the same dataset to compare with. ``also``: further seeds of the run, of the baseline,
    of the ``-aux`` and of the ``-1x1`` network. ``images_per_class``: by default the paper's 80, or as many as there
    are. ``groups``: super-classes to use instead of the dataset's own. ``cache``: a folder that keeps features and
    maps, so that they are computed once. ``fast_maps``: a first look with fewer images and points.
    ``accelerator``: "cpu", "cuda", "mps", or "auto" for a GPU if there is one. ``window``: "nominal" shows a patch as
    the block's window, "effective" as the smallest window that holds half of the evidence.
    """
    progress = progress or SILENT
    network = as_network(source, accelerator)
    recipe = recipe_of(network)
    scored = model_info(recipe.model).has_scores
    if not scored and (baseline is not None or also):
        raise no_scores(source, network)
    splits = load(recipe.data, recipe.split, recipe.split_seed, root).resized(network.description.input_size)
    _check_data(network, source, splits.test, splits.sha256, progress)
    groups = find_groups(recipe.data, groups)
    if groups is not None:
        group_labels(groups, network.description.classes)  # refuses a wrong grouping before any work
    if images_per_class is None:
        images = default_sample(splits.test, seed, progress, fast=fast_maps)
    else:
        images = sample(splits.test, images_per_class, seed)
    if not scored and not measure_units(network, images.subset(torch.tensor([0]))):
        raise TembedError(f"{source} is {recipe.model}: {NO_UNITS}, and it has no patch scores to look at")
    sources = sort_runs(source, network, baseline, also)
    device = next(network.parameters()).device
    for _, other in itertools.chain(*sources.values()):
        other.to(device)
    for name, other in sources[BASELINE]:
        model = other.description.model
        if model_info(model).has_block:
            progress.say(f"note: the baseline {name} is {model}, which has the block too")
    folder = None if cache is None else Path(cache)
    given: dict[str, list[Features]] = {}
    for kind, found in sources.items() if scored else ():
        given[kind] = [features_of(one, images, seed, folder, progress) for _, one in found]
        _check_maps(found, given[kind], sources[RUN][0][0], given[RUN][0])
    return Analysis(
        network=network,
        source=str(source),
        baseline_source=next((name for name, _ in sources[BASELINE]), None),
        sources=sources,
        sample=images,
        test_images=splits.test,
        calibration=calibration_images(splits.train, seed),
        given=given,
        groups=groups,
        seed=seed,
        cache=folder,
        progress=progress,
        fast_maps=fast_maps,
        window=window,
    )


def no_scores(source: str | Path, network: AnyNetwork) -> TembedError:
    return TembedError(
        f"{source} is {network.description.model}, which has no block and so no patch scores to look at: give a run of "
        "an -embed or -aux network, and this one as `baseline`"
    )


def block_ends(model: str) -> tuple[str, str]:
    """What the block of a network reads and where its output goes: by stages, or by the layer it is attached to."""
    if not is_foreign(model):
        return "output of stage 3", "input of stage 4"
    layer = parse_foreign(model).at
    return f"output of {layer}", f"behind {layer}"


def features_of(
    network: AnyNetwork, images: ImageSet, seed: int, cache: Path | None, progress: Progress = SILENT
) -> Features:
    """The features of a network on these images, from the cache if there is one."""
    if cache is None:
        return extract_features(network, images, seed, progress)
    return cached_features(network, images, cache, seed, progress)


def _check_data(network: AnyNetwork, source: object, images: ImageSet, sha256: str, progress: Progress) -> None:
    if images.classes != network.description.classes:
        raise TembedError(f"{recipe_of(network).data} does not have the classes that {source} was trained on")
    if network.description.data_sha256 != sha256:
        progress.say(
            f"warning: {recipe_of(network).data} is not the copy that {source} was trained on (sha256 {sha256})"
        )


def _check_maps(named: Sequence[Named], given: Sequence[Features], source: str, features: Features) -> None:
    """Refuse networks whose maps have another size than those of the run ``source``."""
    for (other, _), compared in zip(named, given, strict=True):
        if compared.map_size != features.map_size:
            raise TembedError(
                f"the maps of {other} are {compared.map_size}, but those of {source} are {features.map_size}: "
                "compare networks with maps of the same size"
            )
