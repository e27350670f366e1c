"""Explanations judged by removing parts: FunnyBirds' completeness, correctness and contrastivity (Hesse et al. 2023).

A part's importance in a map is the sum over its pixels. What it should be is read off the network: the scene is drawn
again without the part. Every subset of the visible parts is drawn once, so that each measure is a look-up.
docs/judge.md says where the measures differ from FunnyBirds'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.common.arrays import Floats, Int64, UInt8
from tembed.common.extras import needs
from tembed.images.pixels import normalised
from tembed.lab.data.catalogue import Dataset
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.leaving_out import ownership
from tembed.trained.weights_file import AnyNetwork

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

FEWEST_PIXELS = 4
"""A part with fewer visible pixels is not counted as visible."""
FEWEST_PARTS = 3
"""A rank correlation over fewer parts says nothing: the image is dropped."""
THRESHOLDS = np.linspace(0.01, 0.5, 80)
"""Shares of a map above which a part is important."""
UNIMPORTANT = 0.05
"""A part is unimportant if its removal lowers the logit by less than this share of it."""
BATCH = 100


def logits_of(network: AnyNetwork, x: Tensor) -> Floats:
    """The logits of normalised images, batch by batch: ``(N, C)``."""
    with torch.no_grad():
        return torch.cat([network(x[k : k + BATCH]).logits for k in range(0, len(x), BATCH)]).cpu().numpy()


def network_input(network: AnyNetwork, pixels: UInt8) -> Tensor:
    """Images as the network was trained on them: ``(N, 3, H, W)`` on its device."""
    mean, std = network.description.normalisation
    return normalised(pixels, mean, std).to(next(network.parameters()).device)


def spearman(a: Array, b: Array) -> float:
    """Spearman's correlation; 0 if ``a`` is constant, because such a map says nothing, NaN if ``b`` is."""
    if np.ptp(b) == 0:
        return np.nan
    if np.ptp(a) == 0:
        return 0.0
    rank = needs("scipy.stats").rankdata
    return float(np.corrcoef(rank(a), rank(b))[0, 1])


@dataclass(frozen=True, eq=False)
class Scenes:
    """Images of a world with known parts, and every one of them without each subset of its visible parts.

    ``visible``: for each image the numbers of the parts that it shows. ``start``: where its subsets begin in
    ``subsets``; subset ``bits`` lacks the visible parts whose bits are set, so that the first one is the whole image.
    """

    images: ImageSet
    has: Bools
    visible: list[list[int]]
    start: Int64
    subsets: UInt8

    @staticmethod
    def draw(images: ImageSet, record: Dataset) -> "Scenes":
        assert record.draw is not None
        has, masks = ownership(record), images.part_map
        assert masks is not None
        area = (masks[:, None] == torch.arange(1, has.shape[1] + 1)[:, None, None]).sum((2, 3)).numpy()
        visible = [np.flatnonzero(row >= FEWEST_PIXELS).tolist() for row in area]
        counts = np.array([2 ** len(parts) for parts in visible])
        without = np.zeros((counts.sum(), has.shape[1]), bool)
        start = np.concatenate([[0], counts.cumsum()[:-1]])
        for first, parts in zip(start, visible, strict=True):
            for bit, part in enumerate(parts):
                without[first : first + 2 ** len(parts), part] = (np.arange(2 ** len(parts)) >> bit) & 1
        drawn = record.draw(np.repeat(images.indices.numpy(), counts), without, size=images.size[0])
        return Scenes(images, has, visible, start, drawn.pixels())

    @cached_property
    def labels(self) -> Int64:
        return self.images.labels.numpy()

    @cached_property
    def part_map(self) -> UInt8:
        assert self.images.part_map is not None
        return self.images.part_map.numpy()

    def importances(self, maps: Floats, image: int, *, per_pixel: bool = False) -> Array:
        """The sum of a map over each visible part, or its mean."""
        masks = (self.part_map[image] == part + 1 for part in self.visible[image])
        return np.array([maps[image][mask].mean() if per_pixel else maps[image][mask].sum() for mask in masks], float)

    def region(self, image: int, parts: Bools) -> Bools:
        """The pixels of these parts."""
        return np.isin(self.part_map[image], np.flatnonzero(parts) + 1)


@dataclass(frozen=True, eq=False)
class Answers:
    """What a network says about scenes and all their subsets. ``logits``: ``(subsets, C)``."""

    scenes: Scenes
    logits: Floats

    @staticmethod
    def ask(network: AnyNetwork, scenes: Scenes) -> "Answers":
        chunks = range(0, len(scenes.subsets), BATCH)
        found = [logits_of(network, network_input(network, scenes.subsets[k : k + BATCH])) for k in chunks]
        return Answers(scenes, np.concatenate(found))

    def of(self, image: int) -> Floats:
        """The logits of all subsets of an image: ``(2 ** parts, C)``."""
        first = self.scenes.start[image]
        return self.logits[first : first + 2 ** len(self.scenes.visible[image])]

    def drops(self, image: int, label: int) -> Array:
        """How much the removal of each visible part lowers the logit of a class."""
        logits = self.of(image)[:, label].astype(float)
        return logits[0] - logits[2 ** np.arange(len(self.scenes.visible[image]))]

    def correct(self, image: int) -> bool:
        return int(self.of(image)[0].argmax()) == int(self.scenes.labels[image])


# --- correctness


def correctness(maps: Floats, answers: Answers, *, per_pixel: bool = False) -> Array:
    """SD: Spearman's correlation between importances and drops, from 0 to 1 with chance at 0.5: ``(N,)``.

    NaN where fewer than `FEWEST_PARTS` parts are visible or all drops are equal.
    """
    scenes, found = answers.scenes, np.full(len(maps), np.nan)
    for image, parts in enumerate(scenes.visible):
        if len(parts) >= FEWEST_PARTS:
            drops = answers.drops(image, scenes.labels[image])
            found[image] = (spearman(scenes.importances(maps, image, per_pixel=per_pixel), drops) + 1) / 2
    return found


# --- completeness


def sufficient_sets(has: Bools, label: int, visible: Sequence[int]) -> list[frozenset[int]]:
    """The minimal sets of visible parts that no other class has all of."""
    found: list[frozenset[int]] = []
    others = np.delete(has, label, 0)
    for size in range(1, len(visible) + 1):
        for parts in combinations(visible, size):
            if not others[:, parts].all(1).any() and not any(known <= set(parts) for known in found):
                found.append(frozenset(parts))
    return found


@dataclass(frozen=True, eq=False)
class Completeness:
    """The four parts of completeness for every image and every threshold: ``(N, thresholds)``, NaN where dropped."""

    csdc: Array
    pc: Array
    dc: Array
    d: Array

    @property
    def total(self) -> Array:
        """``((CSDC + PC + DC) / 3 + D) / 2``, of the images for which all four are defined."""
        return ((self.csdc + self.pc + self.dc) / 3 + self.d) / 2

    @property
    def best(self) -> int:
        """The threshold with the highest mean."""
        means = [np.nanmean(one, 0) for one in (self.csdc, self.pc, self.dc, self.d)]
        return int(((means[0] + means[1] + means[2]) / 3 + means[3]).argmax())


def completeness(maps: Floats, answers: Answers) -> Completeness:
    """A part is important if its sum exceeds a threshold times the sum of the map's absolute values.

    Only images that are classified correctly count. CSDC: the largest share of a sufficient set that is important. PC:
    whether the prediction stays when all other parts are removed. DC: whether it changes when the important parts are
    removed. D: the share of the unimportant parts that are not called important.
    """
    scenes = answers.scenes
    found = Completeness(*(np.full((len(maps), len(THRESHOLDS)), np.nan) for _ in range(4)))
    for image, parts in enumerate(scenes.visible):
        if not answers.correct(image) or not parts:
            continue
        label, logits = int(scenes.labels[image]), answers.of(image)
        important = scenes.importances(maps, image) > THRESHOLDS[:, None] * np.abs(maps[image]).sum()
        bits = important @ 2 ** np.arange(len(parts))
        answer = logits.argmax(1)
        found.pc[image] = answer[2 ** len(parts) - 1 - bits] == label
        found.dc[image] = answer[bits] != label
        if sets := sufficient_sets(scenes.has, label, parts):
            found.csdc[image] = np.max([important[:, [parts.index(p) for p in one]].mean(1) for one in sets], 0)
        idle = answers.drops(image, label) < UNIMPORTANT * abs(float(logits[0, label]))
        if idle.any():
            found.d[image] = 1 - important[:, idle].mean(1)
    return found


# --- contrastivity


@dataclass(frozen=True)
class Contrast:
    """Two other classes that share different visible parts with a scene. ``behaves``: see `contrasts`."""

    image: int
    first: int
    second: int
    first_parts: Bools
    second_parts: Bools
    behaves: bool


def contrasts(answers: Answers, seed: int = 0) -> list[Contrast]:
    """For each scene that has one, a random pair of classes, each with visible parts of the scene that the other lacks.

    A pair behaves if the network uses the parts so: without the first class's own parts its logit falls more than the
    second's, and the reverse.
    """
    scenes, rng, found = answers.scenes, np.random.default_rng(seed), []
    for image, parts in enumerate(scenes.visible):
        shown = np.isin(np.arange(scenes.has.shape[1]), parts)
        others = [label for label in range(len(scenes.has)) if label != scenes.labels[image]]
        pairs = [
            (a, b)
            for a, b in combinations(others, 2)
            if (shown & scenes.has[a] & ~scenes.has[b]).any() and (shown & scenes.has[b] & ~scenes.has[a]).any()
        ]
        if pairs:
            a, b = pairs[rng.integers(len(pairs))]
            own_a, own_b = shown & scenes.has[a] & ~scenes.has[b], shown & scenes.has[b] & ~scenes.has[a]
            logits, places = answers.of(image), 2 ** np.arange(len(parts))
            without_a, without_b = (logits[0] - logits[places[own[parts]].sum()] for own in (own_a, own_b))
            behaves = without_a[a] > without_a[b] and without_b[b] > without_b[a]
            found.append(Contrast(image, a, b, own_a, own_b, bool(behaves)))
    return found


def contrastivity(first: Floats, second: Floats, pairs: Sequence[Contrast], scenes: Scenes) -> Array:
    """TS: whether each class's map has more on its own parts than the other class's map: ``(pairs,)``.

    Half a point for each of the two classes; ties count half of that. Maps are divided by the sum of their absolute
    values. A map that does not depend on the class has 0.5.
    """
    found = []
    for one, other, pair in zip(first, second, pairs, strict=True):
        a, b = (values / max(float(np.abs(values).sum()), 1e-30) for values in (one, other))
        difference = [
            (a - b)[scenes.region(pair.image, pair.first_parts)].sum(),
            (b - a)[scenes.region(pair.image, pair.second_parts)].sum(),
        ]
        found.append(np.mean([0.5 if abs(gap) < 1e-9 else float(gap > 0) for gap in difference]))
    return np.array(found, float)
