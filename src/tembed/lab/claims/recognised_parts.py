"""Do patches of a shared part match the classes that share it? (§3.3, §4.3)

This needs a dataset whose parts are known pixel by pixel, such as the generated world.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.common.arrays import Int64
from tembed.common.extras import needs
from tembed.lab.analysis.features import Features, patch_span
from tembed.lab.analysis.words import Words, find_words, refitted
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, not_measured
from tembed.lab.claims.controls import Networks
from tembed.lab.claims.half_samples import Draws, Evidence, HalfSamples, claim, measure
from tembed.lab.data.image_set import ImageSet

VISIBLE = 8
"""Pixels of a part that a patch must cover for the part to count as visible."""
FEW = 20
"""Half-samples for the adjusted mutual information, which is slow."""
SHARED = "a patch of a part that several classes share matches those classes (0.5 plane + 0.5 bird = wing)"
ENTITIES = "different mixtures of classes are different semantic entities, such as wing, tire and fur"
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


def part_claims(
    networks: Networks,
    sample: ImageSet,
    test_images: ImageSet,
    words: Words,
    samples: HalfSamples,
    seed: int = 0,
) -> list[Claim]:
    """Score mass on the classes that share a part, and how well words recover the parts.

    ``sample``: the images of the features. ``test_images``: these show which classes share which parts. ``words``:
    those of the run.
    """
    if sample.part_map is None:
        return [not_measured(n, p, UNKNOWN) for n, p in zip(NAMES, (SHARED, SHARED, ENTITIES), strict=True)]
    features = networks.run[0]
    leading = leading_part(part_pixels(sample.part_map, len(sample.parts), features.map_size, features.window))
    sharing = classes_with_part(test_images)[leading]  # (P, C): the classes that share the patch's part
    return [
        _mass_claim(networks, sharing, samples, off=False),
        _mass_claim(networks, sharing, samples, off=True),
        _recovery_claim(networks, leading, words, samples.first(FEW), seed),
    ]


def _mass_claim(networks: Networks, sharing: NDArray[np.bool_], samples: HalfSamples, *, off: bool) -> Claim:
    """Score mass on the sharing classes, as a share of all mass or of the mass ``off`` the true class."""
    truth = networks.run[0].labels[networks.run[0].image_of]
    size, classes = sharing.sum(1), sharing.shape[1]
    counted = (size >= 2) & (size < classes)
    target = sharing.copy()
    if off:
        target[np.arange(len(truth)), truth] = False

    def share(features: Features, drawn: HalfSamples) -> Draws:
        assert features.softmax is not None
        total = 1 - features.softmax[np.arange(len(truth)), truth] if off else np.ones(len(truth))
        return drawn.ratio(np.where(counted, (features.softmax * target).sum(1), 0), np.where(counted, total, 0))

    by_chance = (size - 1) / (classes - 1) if off else size / classes
    chance = samples.ratio(np.where(counted, by_chance, 0), counted)
    own = [share(one, samples if i == 0 else samples.first(0)) for i, one in enumerate(networks.run)]
    within = {"chance": [chance] * len(own)}
    evidence = Evidence(own, within, untrained=[share(one, samples) for one in networks.untrained])
    notes = {"-aux": measure(share(networks.aux[0], samples))} if networks.aux else None
    return claim(NAMES[off], SHARED, OFF_TRUE if off else ON_SHARING, evidence, notes=notes)


def _recovery_claim(networks: Networks, leading: Int64, words: Words, samples: HalfSamples, seed: int) -> Claim:
    """How much a patch's word says about its leading part."""
    score = needs("sklearn.metrics").adjusted_mutual_info_score
    shows, count = leading > 0, len(words.sizes)

    def information(features: Features, found: Words, drawn: HalfSamples, what: Int64) -> Draws:
        assert features.softmax is not None
        values = []
        for row in drawn.of_points(features.per_image):
            some = found if row.all() else refitted(found, features.softmax[row])
            values.append(float(score(what[row][shows[row]], some.word_of[shows[row]])))
        return np.array(values)

    own = [information(networks.run[0], words, samples, leading)]
    own += [information(one, find_words(one, count, seed), samples.first(0), leading) for one in networks.run[1:]]
    within = {"chance": [samples.constant(0.0)] * len(own)}
    blank = [information(one, find_words(one, count, seed), samples, leading) for one in networks.untrained]
    truth = networks.run[0].labels[networks.run[0].image_of]
    notes = {"of word and class": measure(information(networks.run[0], words, samples, truth))}
    if networks.aux:
        aux = information(networks.aux[0], find_words(networks.aux[0], count, seed), samples, leading)
        notes["-aux"] = measure(aux)
    definition = "adjusted mutual information of a patch's word and its leading part (1: words are parts; 0: chance)"
    return claim(NAMES[2], ENTITIES, definition, Evidence(own, within, untrained=blank), notes=notes)


register_claim(
    "parts",
    lambda analysis: part_claims(
        analysis.networks, analysis.sample, analysis.test_images, analysis.words, analysis.samples, analysis.seed
    ),
)
