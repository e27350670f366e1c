"""The whole analysis of a trained run (§4.3): features, maps, words, claims and figures."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tembed.analysis.claims.claim import Claim
from tembed.analysis.claims.hull import hull_claims
from tembed.analysis.claims.look_alikes import kinship_claims
from tembed.analysis.claims.parts import truth_claims
from tembed.analysis.claims.separation import separation_claims, spaces_of
from tembed.analysis.claims.uncertainty import uncertainty_claims
from tembed.analysis.colours import Colour, class_colours
from tembed.analysis.features import Features, collect, collected, pixels_of
from tembed.analysis.figures import geometry_figure, legend_figure, legend_points, words_figure
from tembed.analysis.maps import map_all
from tembed.analysis.sampling import Groups, find_groups, group_labels, images_per_class, sample
from tembed.analysis.sprites import SIDE, sprite_map
from tembed.analysis.words import WORDS, Words, find_words, words_claim
from tembed.arrays import Floats, Int64, UInt8
from tembed.data import load
from tembed.data.types import ImageSet
from tembed.errors import TembedError
from tembed.reporting.progress import Progress
from tembed.training import Trained, load_trained

TITLES = {
    "baseline": "baseline, input of stage 4",
    "block input": "block input (stage-3 output)",
    "block output": "block output (stage-4 input)",
}


@dataclass(frozen=True)
class Analysis:
    """What was collected, and everything that follows from it, computed when first asked for.

    ``sample``: the images looked at. ``part``: the part of the dataset that they are from. ``cache``: where maps
    are kept.
    """

    trained: Trained
    source: str
    baseline_source: str | None
    sample: ImageSet
    part: ImageSet
    features: Features
    baseline: Features | None
    groups: Groups | None
    seed: int
    cache: Path | None
    progress: Progress = field(default_factory=Progress)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.trained.classes

    @property
    def data(self) -> str:
        return self.trained.recipe.data

    @property
    def colours(self) -> tuple[Colour, ...]:
        return class_colours(len(self.classes))

    @cached_property
    def images(self) -> UInt8:
        """``(N, H, W, 3)``."""
        return pixels_of(self.sample)

    @cached_property
    def group_of(self) -> Int64 | None:
        """The super-class of each class."""
        return None if self.groups is None else group_labels(self.groups, self.classes)

    # --- maps

    @cached_property
    def geometry_maps(self) -> dict[str, Floats]:
        """The maps of Fig. 5, by the names of `spaces_of`."""
        return map_all(spaces_of(self.features, self.baseline), self.cache, self.seed, self.progress)

    @cached_property
    def sprite_maps(self) -> dict[str, Floats]:
        """Those of Fig. 6: by class predictions, ``(P, 2)``, and by embedding vectors, with class vectors and zero
        behind, ``(P + C + 1, 2)``; deep supervision has no embedding.
        """
        assert self.features.softmax is not None
        spaces = {"predictions": self.features.softmax}
        embedding, values = self.features.embedding, self.features.values
        if embedding is not None and values is not None:
            spaces["embedding vectors"] = np.concatenate([embedding, values, np.zeros_like(values[:1])])
        return map_all(spaces, self.cache, self.seed, self.progress)

    # --- words and claims

    @cached_property
    def words(self) -> Words:
        return find_words(self.features, WORDS, self.seed)

    @cached_property
    def baseline_words(self) -> Words | None:
        """Of a baseline that has patch scores."""
        if self.baseline is None or self.baseline.softmax is None:
            return None
        return find_words(self.baseline, WORDS, self.seed)

    @cached_property
    def claims(self) -> list[Claim]:
        """The paper's claims as numbers."""
        features, seed = self.features, self.seed
        return [
            *separation_claims(features, self.baseline, self.group_of, seed, self.progress),
            *kinship_claims(features, self.data, self.classes, seed),
            *uncertainty_claims(features, self.data, self.classes, seed),
            *hull_claims(features, self.classes, seed),
            words_claim(self.words, self.baseline_words),
            *truth_claims(features, self.baseline, self.sample, self.part, self.words, self.baseline_words, seed),
        ]

    # --- figures

    def geometry(self) -> Any:
        """Fig. 5 as a matplotlib figure."""
        labels = self.features.labels[self.features.image_of]
        panels = [(TITLES[name], places, labels) for name, places in self.geometry_maps.items()]
        if self.baseline is not None:  # its map may have another size
            panels[0] = (*panels[0][:2], self.baseline.labels[self.baseline.image_of])
        named = None if self.groups is None or self.group_of is None else (list(self.groups), self.group_of)
        return geometry_figure(panels, self.classes, self.colours, named)

    def prediction_sprites(self, side: int = SIDE) -> Any:
        """The left of Fig. 6 as a Pillow picture."""
        return self._sprites(self.sprite_maps["predictions"], "patches by class prediction", side)

    def embedding_sprites(self, side: int = SIDE) -> Any:
        """The right of Fig. 6; None for deep supervision, which has no embedding."""
        places = self.sprite_maps.get("embedding vectors")
        return None if places is None else self._sprites(places, "patches by embedding vector f'", side)

    def _sprites(self, places: Floats, title: str, side: int) -> Any:
        return sprite_map(self.features, self.images, places, self.classes, self.colours, title=title, side=side)

    def chosen_words(self) -> Any:
        """Fig. 7: 16 words with their scores."""
        words = self.words
        return words_figure(self.features, self.images, words, words.chosen, self.classes, self.colours)

    def all_words(self) -> Any:
        """All words, the largest first."""
        which = np.arange(len(self.words.sizes))
        return words_figure(self.features, self.images, self.words, which, self.classes, self.colours, columns=10)

    def legend(self) -> Any:
        """The convention of the sprite maps on two patches (appendix B)."""
        points = legend_points(self.features, self.group_of)
        return legend_figure(self.features, self.images, points, self.classes, self.colours)


def analyze(
    source: str | Path,
    *,
    baseline: str | Path | None = None,
    images_per_class: int | None = None,
    groups: Groups | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Collect the features of a run, a weights file or shipped weights on test images of its dataset.

    ``baseline``: another run on the same dataset to compare with. ``groups``: super-classes, in place of the built-in
    ones. ``cache``: a folder to keep features and maps in, so that they are computed once.
    """
    progress = progress or Progress()
    trained = load_trained(source)
    if trained.model.block is None:
        raise TembedError(
            f"{source} is {trained.recipe.model}, which has no block and so no patch scores to look at: give a run of "
            "an -embed or -aux network, and this one as --baseline"
        )
    recipe = trained.recipe
    splits = load(recipe.data, recipe.split, recipe.split_seed, root)
    _check_data(trained, source, splits.test, splits.sha256, progress)
    found = find_groups(recipe.data, groups)
    if found is not None:
        group_labels(found, trained.classes)
    chosen = sample(splits.test, _per_class(splits.test, images_per_class, progress), seed)
    other = None if baseline is None else load_trained(baseline)
    if other is not None:
        if other.recipe.data != recipe.data or other.classes != trained.classes:
            raise TembedError(
                f"the baseline {baseline} was trained on {other.recipe.data}, {source} on {recipe.data}: compare runs "
                "on one dataset"
            )
        if (other.recipe.split, other.recipe.split_seed) != (recipe.split, recipe.split_seed):
            raise TembedError(f"the baseline {baseline} was trained on another split than {source}")
    folder = None if cache is None else Path(cache)

    def take(which: Trained) -> Features:
        if folder is None:
            return collect(which, chosen, seed, progress)
        return collected(which, chosen, folder, seed, progress)

    features = take(trained)
    compared = None if other is None else take(other)
    if compared is not None and compared.map_size != features.map_size:
        raise TembedError(
            f"the maps of the baseline {baseline} are {compared.map_size}, those of {source} {features.map_size}"
        )
    return Analysis(
        trained=trained,
        source=str(source),
        baseline_source=None if baseline is None else str(baseline),
        sample=chosen,
        part=splits.test,
        features=features,
        baseline=compared,
        groups=found,
        seed=seed,
        cache=folder,
        progress=progress,
    )


def _per_class(images: ImageSet, asked: int | None, progress: Progress) -> int:
    count = images_per_class(images, asked)
    if asked is None and count < 80:
        progress.say(f"{count} images of each of the {len(images.classes)} classes; --images-per-class takes more")
    return count


def _check_data(trained: Trained, source: object, images: ImageSet, sha256: str, progress: Progress) -> None:
    if images.classes != trained.classes:
        raise TembedError(f"{trained.recipe.data} has other classes than {source} was trained for")
    if trained.about.get("data_sha256") != sha256:
        progress.say(f"warning: {trained.recipe.data} is not the copy that {source} was trained on (sha256 {sha256})")
