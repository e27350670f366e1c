"""Do patches of a shared part match the classes that share it? (§3.3, §4.3)

This needs a dataset whose parts are known pixel by pixel, such as the generated world.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.common.arrays import Int64
from tembed.common.extras import needs
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.features import Features, patch_span
from tembed.lab.analysis.words import Words, refitted
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import BLANK
from tembed.lab.claims.half_samples import Draws, HalfSamples, measure
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.lab.claims.mixed_words import inside_windows, words_of
from tembed.lab.data.image_set import ImageSet
from tembed.paper import SHARED_PARTS, WORDS

VISIBLE = 8
"""Pixels of a part that a patch must cover for the part to count as visible."""
FEW = 20
"""Half-samples for the adjusted mutual information, which is slow."""
UNKNOWN = "the parts of this dataset are not known"
ON_SHARING = (
    "mean score mass on the classes S that share the patch's leading part, over patches whose part is shared by "
    "two or more classes; chance level |S| / C. The image's own class is always in S"
)
OFF_TRUE = (
    "of the mass that these patches do not give to their image's class, the share that goes to the other classes "
    "of S; chance level (|S| - 1) / (C - 1)"
)
NAMES = ("mass on the sharing classes", "mass off the true class", "words recover parts")


def classes_with_part(images: ImageSet) -> NDArray[np.bool_]:
    """Whether each part, by its number in the part map, is seen in each class: ``(parts + 1, C)``; 0 is no part."""
    assert images.part_map is not None
    seen = np.zeros((len(images.parts) + 1, len(images.classes)), bool)
    for label in range(len(images.classes)):
        seen[images.part_map[images.labels == label].unique().long().numpy(), label] = True
    seen[0] = False
    return seen


def part_pixels(part_map: Tensor, parts: int, map_size: tuple[int, int], window: tuple[int, int]) -> Tensor:
    """Pixels of each part that each patch covers: ``(N, H, W)`` part numbers to ``(N, *map_size, parts + 1)``."""
    stride = part_map.shape[1] / map_size[0], part_map.shape[2] / map_size[1]
    counts = torch.zeros(len(part_map), *map_size, parts + 1, dtype=torch.int32)
    shown = torch.nn.functional.one_hot(part_map.long(), parts + 1).to(torch.int32)
    for row in range(map_size[0]):
        top, bottom = patch_span(row, window[0], stride[0])
        strip = shown[:, max(0, top) : max(0, bottom)].sum(1, dtype=torch.int32)
        for column in range(map_size[1]):
            left, right = patch_span(column, window[1], stride[1])
            counts[:, row, column] = strip[:, max(0, left) : max(0, right)].sum(1, dtype=torch.int32)
    return counts


def leading_part(counts: Tensor) -> Int64:
    """The part with the most pixels in each patch, 0 where no part has `VISIBLE` pixels: ``(P,)``."""
    parts = counts.flatten(0, 2)[:, 1:]
    most, which = parts.max(1)
    return torch.where(most >= VISIBLE, which + 1, 0).numpy()


def leading(analysis: Analysis) -> Int64:
    """The leading part of each patch of the sample: ``(P,)``."""
    sample, features = analysis.sample, analysis.features
    assert sample.part_map is not None
    return leading_part(part_pixels(sample.part_map, len(sample.parts), features.map_size, features.window))


def sharing(analysis: Analysis) -> NDArray[np.bool_]:
    """The classes that share the leading part of each patch, as all test images show them: ``(P, C)``."""
    return classes_with_part(analysis.test_images)[leading(analysis)]


def truth(features: Features) -> Int64:
    """The true class of each patch's image: ``(P,)``."""
    return features.labels[features.image_of]


# --- score mass


@dataclass(frozen=True)
class Mass:
    """The share of the mass on the sharing classes, and what it would be by chance."""

    share: Draws
    chance: Draws


def mass(subject: Subject, *, off: bool) -> Mass:
    """Score mass on the sharing classes, as a share of all mass or of the mass ``off`` the true class."""
    features, samples = subject.features, subject.samples
    softmax = features.required("softmax")
    target = subject.once(sharing).copy()
    size, classes = target.sum(1), target.shape[1]
    counted = (size >= 2) & (size < classes)
    points, own = np.arange(len(target)), truth(features)
    if off:
        target[points, own] = False
    total = 1 - softmax[points, own] if off else np.ones(len(target))
    by_chance = (size - 1) / (classes - 1) if off else size / classes
    return Mass(
        samples.ratio(np.where(counted, (softmax * target).sum(1), 0), np.where(counted, total, 0)),
        samples.ratio(np.where(counted, by_chance, 0), counted),
    )


# --- words


def recovery(subject: Subject) -> Draws:
    """How much a patch's word says about its leading part."""
    parts = subject.once(leading)
    return information(subject.features, words_of(subject), subject.samples.first(FEW), parts, parts > 0)


def information(features: Features, words: Words, samples: HalfSamples, what: Int64, shows: NDArray[np.bool_]) -> Draws:
    """The adjusted mutual information of the words and ``what`` of the patches that show a part."""
    score = needs("sklearn.metrics").adjusted_mutual_info_score
    softmax, values = features.required("softmax"), []
    for row in samples.of_points(features.per_image):
        some = words if row.all() else refitted(words, softmax[row])
        values.append(float(score(what[row][shows[row]], some.word_of[shows[row]])))
    return np.array(values)


def _of_classes(found: Found) -> dict[str, Measure]:
    analysis = found.analysis
    features, shows = analysis.features, found.once(leading) > 0
    by_class = information(features, analysis.words, found.samples.first(FEW), truth(features), shows)
    return {"of word and class": measure(by_class)} | inside_windows(found)


# --- claims


def _missing(analysis: Analysis) -> str | None:
    return UNKNOWN if analysis.sample.part_map is None else None


for _name, _definition, _off in ((NAMES[0], ON_SHARING, False), (NAMES[1], OFF_TRUE, True)):
    register_claim(
        ClaimSpec(
            _name,
            SHARED_PARTS,
            _definition,
            partial(mass, off=_off),
            (BLANK,),
            shown=("-aux",),
            value=lambda result: result.share,
            beside=lambda found: {"chance": [found.own[0].chance] * len(found.own)},
            missing=_missing,
        )
    )

register_claim(
    ClaimSpec(
        NAMES[2],
        WORDS,
        "adjusted mutual information of a patch's word and its leading part (1: words are parts; 0: chance)",
        recovery,
        (BLANK,),
        shown=("-aux",),
        beside=lambda found: {"chance": [np.zeros_like(found.own[0])] * len(found.own)},
        notes=_of_classes,
        missing=_missing,
    )
)
