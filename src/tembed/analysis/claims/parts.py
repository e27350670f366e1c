"""What patches show, where the dataset knows its parts, and what they say about it (§3.3, §4.3)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tembed.analysis.claims.claim import Bootstrap, Claim, Measure, Verdict, decided, not_measured, weighted_mean
from tembed.analysis.features import Features, patch_span
from tembed.analysis.words import Words
from tembed.arrays import Int64
from tembed.data.types import ImageSet
from tembed.extras import needs

VISIBLE = 8
"""Pixels of a part that a patch must cover to show it."""
RECOVERED = 0.05
"""Adjusted mutual information above which words are said to tell something of parts."""
SHARED = "a patch of a part that several classes share matches those classes (0.5 plane + 0.5 bird = wing)"
ENTITIES = "different mixtures of classes are different semantic entities, such as wing, tire and fur"
UNKNOWN = "this dataset does not know its parts"


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
    """The part of which each patch shows most, 0 where it shows too little of any: ``(P,)``."""
    parts = counts.flatten(0, 2)[:, 1:]
    most, which = parts.max(1)
    return torch.where(most >= VISIBLE, which + 1, 0).numpy()


def truth_claims(
    features: Features,
    baseline: Features | None,
    sample: ImageSet,
    part: ImageSet,
    words: Words,
    baseline_words: Words | None,
    seed: int = 0,
) -> list[Claim]:
    """Score mass on the classes that share a part, and how well words recover the parts.

    ``sample``: the images of the features. ``part``: those from which it is read which classes share which parts.
    """
    names = ("mass on the sharing classes", "mass off the true class", "words recover parts")
    if sample.part_map is None:
        return [not_measured(n, p, UNKNOWN) for n, p in zip(names, (SHARED, SHARED, ENTITIES), strict=True)]
    known = {"block": (features, words)}
    if baseline is not None and baseline.softmax is not None and baseline_words is not None:
        known = {"baseline": (baseline, baseline_words)} | known
    alone = "" if len(known) == 2 else "; no baseline with patch scores (deep supervision) was given to compare with"
    sharing = classes_with_part(part)
    leading = leading_part(part_pixels(sample.part_map, len(sample.parts), features.map_size, features.window))
    drawn, truth = Bootstrap(features.labels, seed), features.labels[features.image_of]
    ours = sharing[leading]  # (P, C): the classes that share what the patch shows
    size = ours.sum(1)
    asked = (size >= 2) & (size < ours.shape[1])
    other = ours.copy()
    other[np.arange(len(other)), truth] = False
    claims = []
    definitions = (
        "mean score mass on the classes S that share the patch's leading part, over patches whose part is shared by "
        "two or more classes; by chance |S| / C. The image's own class is always in S",
        "of the mass that these patches do not give to their image's class, the share that goes to the other classes "
        "of S; by chance (|S| - 1) / (C - 1)",
    )
    for name, definition, off in zip(names[:2], definitions, (False, True), strict=True):
        shares = {}
        for column, (found, _) in known.items():
            assert found.softmax is not None
            own = found.softmax[np.arange(len(truth)), truth]
            mass = (found.softmax * (other if off else ours)).sum(1)
            weight = 1 - own if off else np.ones_like(own)
            shares[column] = _ratio(np.where(asked, mass, 0), np.where(asked, weight, 0), len(features.labels))
        chance = (size - 1) / (ours.shape[1] - 1) if off else size / ours.shape[1]
        values = {column: drawn.measure(share) for column, share in shares.items()}
        values["chance"] = Measure(float(chance[asked].mean()))
        gain = drawn.measure(lambda w, s=shares["block"], c=values["chance"].value: s(w) - c)  # type: ignore[misc]
        verdict, why = decided(gain, "block less chance:")
        if len(known) == 2:
            apart = drawn.measure(lambda w, s=shares: s["block"](w) - s["baseline"](w))  # type: ignore[misc]
            why += "; " + difference(apart)
        claims.append(Claim(name, SHARED, definition, verdict, why + alone, values))
    claims.append(_recovery(names[2], known, leading, truth, alone))
    return claims


def difference(apart: Measure) -> str:
    """Whether block and baseline differ, in words."""
    same = apart.low is not None and apart.high is not None and apart.low <= 0 <= apart.high
    span = "" if apart.low is None else f" [{apart.low:+.3f}, {apart.high:+.3f}]"
    return f"block less baseline {apart.value:+.3f}{span}" + (", no clear difference" if same else "")


def _ratio(top: NDArray[np.floating], bottom: NDArray[np.floating], images: int):  # type: ignore[no-untyped-def]
    above, below = weighted_mean(top, images), weighted_mean(bottom, images)
    return lambda weights: above(weights) / below(weights)


def _recovery(name: str, known: dict[str, tuple[Features, Words]], leading: Int64, truth: Int64, alone: str) -> Claim:
    score = needs("sklearn.metrics").adjusted_mutual_info_score
    shows = leading > 0
    values = {}
    for column, (_, words) in known.items():
        values[f"{column}: parts"] = Measure(float(score(leading[shows], words.word_of[shows])))
        values[f"{column}: classes"] = Measure(float(score(truth[shows], words.word_of[shows])))
    found = values["block: parts"].value
    verdict: Verdict = "holds" if found > RECOVERED else "does not hold"
    why = f"adjusted mutual information {found:.3f} with the parts (more than {RECOVERED} asked for)"
    if len(known) == 2:
        why += "; " + difference(Measure(found - values["baseline: parts"].value))
    definition = (
        "adjusted mutual information of a patch's word and its leading part (1: words are parts; 0: chance), and "
        "beside it that of the word and the image's class"
    )
    return Claim(name, ENTITIES, definition, verdict, why + alone, values)
