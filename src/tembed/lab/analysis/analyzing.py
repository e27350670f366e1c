"""The whole analysis of a trained run (§4.3): features, maps, words, claims and figures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tembed.common.arrays import Floats, Int64, UInt8
from tembed.common.errors import TembedError
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.colours import Colour, class_colours
from tembed.lab.analysis.compared_runs import Sorted, sort_runs
from tembed.lab.analysis.features import Features, cached_features, extract_features
from tembed.lab.analysis.figures import geometry_figure, legend_figure, legend_points, within, words_figure
from tembed.lab.analysis.knock_outs import VitalSigns, trained_vital_signs
from tembed.lab.analysis.maps import FEWEST_POINTS, map_all
from tembed.lab.analysis.sampling import Groups, default_sample, find_groups, group_labels, sample
from tembed.lab.analysis.sprites import SIDE, sprite_map
from tembed.lab.analysis.units_of_networks import NetworkUnits, units_of_networks
from tembed.lab.analysis.words import WORDS, Words, find_words
from tembed.lab.claims import measure_claims
from tembed.lab.claims.claim import Claim
from tembed.lab.claims.controls import CALIBRATION, UNTRAINED, Networks, untrained
from tembed.lab.claims.half_samples import RESAMPLES, HalfSamples
from tembed.lab.claims.separation import spaces_of
from tembed.lab.data.catalogue import Dataset, dataset
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.loading import load
from tembed.models.foreign import is_foreign, parse_foreign
from tembed.models.registry import model_info
from tembed.trained.weights_file import Trained, as_trained


@dataclass(frozen=True)
class Analysis:
    """The features of a trained run, and everything that follows from them, computed on first use.

    ``sample``: the images whose features these are. ``test_images``: the test subset that they were drawn from.
    ``given``: the features of the run, of its baseline and of further runs on the same images. ``sources``: where they
    come from. ``calibration``: training images for the BN statistics of untrained networks. ``groups``: the
    super-classes. ``cache``: the folder that keeps features and t-SNE maps.
    """

    trained: Trained
    source: str
    baseline_source: str | None
    sources: Sorted
    sample: ImageSet
    test_images: ImageSet
    calibration: ImageSet
    given: Networks
    groups: Groups | None
    seed: int
    cache: Path | None
    progress: Progress = SILENT
    fast_maps: bool = False

    def __repr__(self) -> str:
        points = f"{len(self.features.image_of):,} points of {len(self.sample):,} images"
        return f"Analysis({self.source}, {self.trained.recipe.model} on {self.data}: {points})"

    @property
    def features(self) -> Features:
        """The features of the run."""
        return self.given.run[0]

    @property
    def baseline(self) -> Features | None:
        """The features of the baseline, if one was given."""
        return self.given.baseline[0] if self.given.baseline else None

    @cached_property
    def blank(self) -> list[Trained]:
        """The network of the run, untrained."""
        return [untrained(self.trained, self.calibration, seed) for seed in range(UNTRAINED)]

    @cached_property
    def networks(self) -> Networks:
        """All networks that the claims compare: those that were given, and untrained ones."""
        found = [features_of(one, self.sample, self.seed, self.cache, self.progress) for one in self.blank]
        return replace(self.given, untrained=tuple(found))

    @cached_property
    def samples(self) -> HalfSamples:
        """The half-samples of the images behind every interval and test."""
        return HalfSamples.draw(self.features.labels, len(self.classes), self.seed, RESAMPLES)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.trained.classes

    @property
    def data(self) -> str:
        """The name of the dataset."""
        return self.trained.recipe.data

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

    # --- maps

    @property
    def has_maps(self) -> bool:
        """Whether there are enough points for t-SNE."""
        return len(self.features.image_of) >= FEWEST_POINTS

    @cached_property
    def geometry_maps(self) -> dict[str, Floats]:
        """The maps of Fig. 5, by the names of `spaces_of`."""
        return map_all(
            spaces_of(self.features, self.baseline), self.cache, self.seed, self.progress, fast=self.fast_maps
        )

    @property
    def map_titles(self) -> dict[str, str]:
        """What the maps of Fig. 5 show, by their names."""
        before, after = block_ends(self.trained.recipe.model)
        titles = {"block input": f"block input ({before})", "block output": f"block output ({after})"}
        for source, trained in self.sources.baseline[:1]:
            name = Path(source).name if Path(source).exists() else source  # shipped weights are no path
            short = within(name, 2.3, 10, keep_end=True)
            titles["baseline"] = f"baseline ({short}), {block_ends(trained.recipe.model)[1]}"
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

    # --- words and claims

    @cached_property
    def words(self) -> Words:
        return find_words(self.features, WORDS, self.seed)

    @cached_property
    def claims(self) -> list[Claim]:
        """The claims of all registered families, measured."""
        return measure_claims(self)

    @cached_property
    def vital_signs(self) -> VitalSigns:
        """Whether the block is at work, on random test images."""
        return trained_vital_signs(self.trained, self.test_images, self.seed, self.progress, fast=self.fast_maps)

    @cached_property
    def units(self) -> NetworkUnits:
        """What BN-ReLU does in the units of the run, its baseline and untrained networks."""
        runs, baselines = ([one for _, one in kind] for kind in (self.sources.run, self.sources.baseline))
        return units_of_networks(runs, baselines, self.blank, self.sample, self.progress)

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
        return sprite_map(self.features, self.images, coordinates, self.classes, self.colours, title=title, side=side)

    def chosen_words(self) -> Any:
        """Fig. 7: 16 words with their scores."""
        words = self.words
        return words_figure(self.features, self.images, words, words.chosen, self.classes, self.colours)

    def all_words(self) -> Any:
        """All words, the largest first."""
        which = np.arange(len(self.words.sizes))
        return words_figure(self.features, self.images, self.words, which, self.classes, self.colours, columns=10)

    def legend(self) -> Any:
        """The marking of the sprite maps, shown on two patches (appendix B)."""
        points = legend_points(self.features, self.group_of)
        return legend_figure(self.features, self.images, points, self.classes, self.colours)


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
) -> Analysis:
    """Extract the features of a run, a weights file or shipped weights on test images of its dataset.

    ``baseline``: another run on the same dataset to compare with. ``also``: further seeds of the run, of the baseline,
    of the ``-aux`` and of the ``-1x1`` network. ``images_per_class``: by default the paper's 80, or as many as there
    are. ``groups``: super-classes to use instead of the dataset's own. ``cache``: a folder that keeps features and
    maps, so that they are computed once. ``fast_maps``: a first look with fewer images and points.
    ``accelerator``: "cpu", "cuda", or "auto" for a GPU if there is one.
    """
    progress = progress or SILENT
    trained = as_trained(source, accelerator)
    recipe = trained.recipe
    if not model_info(recipe.model).has_scores:
        raise TembedError(
            f"{source} is {recipe.model}, which has no block and so no patch scores to look at: give a run of an "
            "-embed or -aux network, and this one as `baseline`"
        )
    splits = load(recipe.data, recipe.split, recipe.split_seed, root)
    _check_data(trained, source, splits.test, splits.sha256, progress)
    groups = find_groups(recipe.data, groups)
    if groups is not None:
        group_labels(groups, trained.classes)  # refuses a wrong grouping before any work
    if images_per_class is None:
        images = default_sample(splits.test, seed, progress, fast=fast_maps)
    else:
        images = sample(splits.test, images_per_class, seed)
    found = sort_runs(source, trained, baseline, also)
    for _, other in (*found.run, *found.baseline, *found.aux, *found.one_by_one):
        other.model.to(next(trained.model.parameters()).device)
    for name, other in found.baseline:
        if model_info(other.recipe.model).has_block:
            progress.say(f"note: the baseline {name} is {other.recipe.model}, which has the block too")
    folder = None if cache is None else Path(cache)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(splits.train))[:CALIBRATION])
    given = Networks(
        *(
            tuple(features_of(one, images, seed, folder, progress) for _, one in kind)
            for kind in (found.run, found.baseline, found.aux, found.one_by_one)
        )
    )
    _check_maps(found, given)
    return Analysis(
        trained=trained,
        source=str(source),
        baseline_source=found.baseline[0][0] if found.baseline else None,
        sources=found,
        sample=images,
        test_images=splits.test,
        calibration=splits.train.subset(torch.from_numpy(chosen)),
        given=given,
        groups=groups,
        seed=seed,
        cache=folder,
        progress=progress,
        fast_maps=fast_maps,
    )


def block_ends(model: str) -> tuple[str, str]:
    """What the block of a network reads and where its output goes: by stages, or by the layer it is attached to."""
    if not is_foreign(model):
        return "output of stage 3", "input of stage 4"
    layer = parse_foreign(model).at
    return f"output of {layer}", f"behind {layer}"


def features_of(
    network: Trained, images: ImageSet, seed: int, cache: Path | None, progress: Progress = SILENT
) -> Features:
    """The features of a network on these images, from the cache if there is one."""
    if cache is None:
        return extract_features(network, images, seed, progress)
    return cached_features(network, images, cache, seed, progress)


def _check_data(trained: Trained, source: object, images: ImageSet, sha256: str, progress: Progress) -> None:
    if images.classes != trained.classes:
        raise TembedError(f"{trained.recipe.data} does not have the classes that {source} was trained on")
    if trained.about.get("data_sha256") != sha256:
        progress.say(f"warning: {trained.recipe.data} is not the copy that {source} was trained on (sha256 {sha256})")


def _check_maps(found: Sorted, given: Networks) -> None:
    """Refuse networks whose maps have another size than those of the run."""
    (source, _), features = found.run[0], given.run[0]
    for sources, kind in zip(
        (found.run, found.baseline, found.aux, found.one_by_one),
        (given.run, given.baseline, given.aux, given.one_by_one),
        strict=True,
    ):
        for (other, _), compared in zip(sources, kind, strict=True):
            if compared.map_size != features.map_size:
                raise TembedError(
                    f"the maps of {other} are {compared.map_size}, but those of {source} are {features.map_size}: "
                    "compare networks with maps of the same size"
                )
