"""Are classes that look alike closer in the embedding ``f'`` than in the predictions? (§4.3, Fig. 6)"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats
from tembed.common.errors import TembedError
from tembed.lab.analysis.features import Features
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, not_measured
from tembed.lab.claims.controls import Networks, all_random_class_vectors, other_pairs, pair_sets
from tembed.lab.claims.half_samples import Evidence, HalfSamples, claim, measure

NAME = "look-alikes move closer"
PAPER = "similar patches (car, truck) lie apart by their predictions; the embedding vectors bring them close"
NO_PAIRS = "the dataset's record lists no pairs of look-alikes"
NO_EMBEDDING = "the scores are not fed back (deep supervision): there is no f'"

Pair = tuple[str, str]


def look_alike_claims(
    networks: Networks, pairs: Sequence[Pair], classes: Sequence[str], samples: HalfSamples, seed: int = 0
) -> list[Claim]:
    """One claim about all named pairs together."""
    if networks.run[0].embedding is None:
        return [not_measured(NAME, PAPER, NO_EMBEDDING)]
    if not pairs:
        return [not_measured(NAME, PAPER, NO_PAIRS)]
    named = [class_numbers(pair, classes) for pair in pairs]
    drawn = samples.over_seeds(len(networks.run))
    gaps = [approach(f, some) for f, some in zip(networks.run, drawn, strict=True)]
    within = {"no change": [samples.constant(0.0)] * len(gaps)}
    random = [
        [_mean(approach(changed, some), named) for changed in all_random_class_vectors(f, seed)]
        for f, some in zip(networks.run, drawn, strict=True)
    ]
    blank = [_mean(approach(features, samples), named) for features in networks.untrained]
    others = other_pairs(named, len(classes), seed)
    ranked, notes = {}, {}
    for pair, (i, j) in zip(pairs, named, strict=True):
        rank = 1 + sum(gaps[0][0, a, b] >= gaps[0][0, i, j] for a, b in [*named, *others] if {a, b} != {i, j})
        notes[f"{pair[0]} and {pair[1]} (rank {rank} of {len(named) + len(others)})"] = measure(gaps[0][:, i, j])
    if len(others) >= len(named):
        sets = pair_sets(len(others), len(named), seed)
        first, second = np.array(others).T
        ranked = {"other pairs": [gap[:, first, second][:, sets].mean(2) for gap in gaps]}
    definition = (
        "distance between the mean vectors of two classes, divided by the mean over all pairs of classes: that in the "
        "predictions minus that in f', averaged over the named pairs"
    )
    own = [_mean(gap, named) for gap in gaps]
    evidence = Evidence(own, within, random={"random class vectors": random}, ranked=ranked, untrained=blank)
    return [claim(NAME, PAPER, definition, evidence, notes=notes)]


def class_numbers(pair: Pair, classes: Sequence[str]) -> tuple[int, int]:
    """The labels of two classes that a dataset's record names."""
    for name in pair:
        if name not in classes:
            raise TembedError(
                f"the dataset's record pairs {pair[0]!r} with {pair[1]!r}, but the dataset has no class {name!r}: "
                "correct the look_alikes and passages of the record"
            )
    return classes.index(pair[0]), classes.index(pair[1])


def approach(features: Features, samples: HalfSamples) -> NDArray[np.float64]:
    """By how much each pair of classes is closer in ``f'`` than in the predictions: ``(1 + B, C, C)``."""
    assert features.softmax is not None
    assert features.embedding is not None
    return class_distances(features.softmax, samples) - class_distances(features.embedding, samples)


def class_distances(points: Floats, samples: HalfSamples) -> NDArray[np.float64]:
    """The distances between class means, divided by the mean over all pairs: ``(1 + B, C, C)``.

    NaN for a class without images.
    """
    labels = samples.labels
    by_image = points.reshape(len(labels), -1, points.shape[1]).mean(1, dtype=np.float64)
    result = np.full((len(samples.rows), samples.classes, samples.classes), np.nan)
    present = np.unique(labels)
    rows, columns = np.triu_indices(len(present), 1)
    for draw, row in enumerate(samples.rows):
        centres = np.stack([by_image[row & (labels == label)].mean(0) for label in present])
        apart = np.linalg.norm(centres[:, None] - centres[None], axis=2)
        with np.errstate(invalid="ignore"):  # all means may be equal
            result[draw][np.ix_(present, present)] = apart / apart[rows, columns].mean()
    return result


def _mean(gaps: NDArray[np.float64], pairs: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    return np.mean([gaps[:, i, j] for i, j in pairs], axis=0)


register_claim(
    "look-alikes",
    lambda analysis: look_alike_claims(
        analysis.networks, analysis.dataset.look_alikes, analysis.classes, analysis.samples, analysis.seed
    ),
)
