"""Do patches of a shared part match the classes that share it? (§3.3, §4.3)

This needs a dataset whose parts are known pixel by pixel, such as the generated world.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.analysis.claims import register_claim
from tembed.analysis.claims.statistics import Bootstrap, Statistic, decide, weighted_mean
from tembed.analysis.features import Features, patch_span
from tembed.analysis.words import Words
from tembed.arrays import Int64
from tembed.claims import Claim, Measure, Verdict, not_measured
from tembed.data.types import ImageSet
from tembed.extras import needs

VISIBLE = 8
"""Pixels of a part that a patch must cover for the part to count as visible."""
RECOVERED = 0.05
"""The words count as recovering the parts if their adjusted mutual information exceeds this."""
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

Networks = dict[str, tuple[Features, Words]]
"""Features and words by column: "baseline" (if it has patch scores) and "block"."""


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
    features: Features,
    baseline: Features | None,
    sample: ImageSet,
    test_images: ImageSet,
    words: Words,
    baseline_words: Words | None,
    seed: int = 0,
) -> list[Claim]:
    """Score mass on the classes that share a part, and how well words recover the parts.

    ``sample``: the images of the features. ``test_images``: these show which classes share which parts.
    """
    if sample.part_map is None:
        return [not_measured(n, p, UNKNOWN) for n, p in zip(NAMES, (SHARED, SHARED, ENTITIES), strict=True)]
    networks: Networks = {"block": (features, words)}
    if baseline is not None and baseline.softmax is not None and baseline_words is not None:
        networks = {"baseline": (baseline, baseline_words)} | networks
    note = "" if len(networks) == 2 else "; no baseline with patch scores (deep supervision) was given to compare with"
    leading = leading_part(part_pixels(sample.part_map, len(sample.parts), features.map_size, features.window))
    truth = features.labels[features.image_of]
    sharing = classes_with_part(test_images)[leading]  # (P, C): the classes that share the patch's part
    return [
        *_mass_claims(networks, sharing, truth, Bootstrap(features.labels, seed), note),
        _recovery_claim(networks, leading, truth, note),
    ]


def _mass_claims(
    networks: Networks, sharing: NDArray[np.bool_], truth: Int64, bootstrap: Bootstrap, note: str
) -> list[Claim]:
    """Score mass on the sharing classes, as a share of all mass and of the mass off the true class."""
    images, classes = len(bootstrap.labels), sharing.shape[1]
    size = sharing.sum(1)
    counted = (size >= 2) & (size < classes)
    others = sharing.copy()
    others[np.arange(len(others)), truth] = False
    claims = []
    for name, definition, off in zip(NAMES[:2], (ON_SHARING, OFF_TRUE), (False, True), strict=True):
        shares: dict[str, Statistic] = {}
        for column, (features, _) in networks.items():
            assert features.softmax is not None
            own = features.softmax[np.arange(len(truth)), truth]
            mass = (features.softmax * (others if off else sharing)).sum(1)
            total = 1 - own if off else np.ones_like(own)
            shares[column] = _ratio(np.where(counted, mass, 0), np.where(counted, total, 0), images)
        by_chance = (size - 1) / (classes - 1) if off else size / classes
        chance = float(by_chance[counted].mean())
        values = {column: bootstrap.measure(share) for column, share in shares.items()}
        values["chance"] = Measure(chance)
        gain = bootstrap.difference(shares["block"], _constant(chance))
        verdict, why = decide(gain, "block minus chance:")
        if "baseline" in shares:
            why += "; " + _minus_baseline(bootstrap.difference(shares["block"], shares["baseline"]))
        claims.append(Claim(name, SHARED, definition, verdict, why + note, values))
    return claims


def _recovery_claim(networks: Networks, leading: Int64, truth: Int64, note: str) -> Claim:
    """How much a patch's word says about its leading part."""
    score = needs("sklearn.metrics").adjusted_mutual_info_score
    shows = leading > 0
    values = {}
    for column, (_, words) in networks.items():
        values[f"{column}: parts"] = Measure(float(score(leading[shows], words.word_of[shows])))
        values[f"{column}: classes"] = Measure(float(score(truth[shows], words.word_of[shows])))
    found = values["block: parts"].value
    verdict: Verdict = "holds" if found > RECOVERED else "does not hold"
    why = f"adjusted mutual information {found:.3f} with the parts (more than {RECOVERED} needed)"
    if "baseline" in networks:
        why += "; " + _minus_baseline(Measure(found - values["baseline: parts"].value))
    definition = (
        "adjusted mutual information of a patch's word and its leading part (1: words are parts; 0: chance), and "
        "for comparison that of the word and the image's class"
    )
    return Claim(NAMES[2], ENTITIES, definition, verdict, why + note, values)


def _minus_baseline(difference: Measure) -> str:
    """The difference between block and baseline, and whether it is clear."""
    low, high = difference.low, difference.high
    if low is None or high is None:
        return f"block minus baseline {difference.value:+.3f}"
    text = f"block minus baseline {difference.value:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"{text}, no clear difference" if low <= 0 <= high else text


def _constant(value: float) -> Statistic:
    return lambda weights: np.full(len(weights), value)


def _ratio(top: NDArray[np.floating], bottom: NDArray[np.floating], images: int) -> Statistic:
    """The ratio of two means, as a function of the images' weights."""
    above, below = weighted_mean(top, images), weighted_mean(bottom, images)
    return lambda weights: above(weights) / below(weights)


register_claim(
    "parts",
    lambda analysis: part_claims(
        analysis.features,
        analysis.baseline,
        analysis.sample,
        analysis.test_images,
        analysis.words,
        analysis.baseline_words,
        analysis.seed,
    ),
)
