"""Are classes that look alike closer in the embedding ``f'`` than in the predictions? (§4.3, Fig. 6)"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats
from tembed.common.errors import TembedError
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.features import Features
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import BLANK, RANDOM, register_control
from tembed.lab.claims.half_samples import Draws, HalfSamples, measure
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.lab.claims.other_groupings import other_pairs, pair_sets
from tembed.paper import LOOK_ALIKES

NO_PAIRS = "the dataset's record lists no pairs of look-alikes"
NO_EMBEDDING = "the scores are not fed back (deep supervision): there is no f'"

Pair = tuple[str, str]


@dataclass(frozen=True)
class Approach:
    """By how much pairs of classes are closer in ``f'``: all of them ``(1 + B, C, C)``, and the mean of the named."""

    gaps: NDArray[np.float64]
    named: Draws


def look_alikes(subject: Subject) -> Approach:
    gaps = approach(subject.features, subject.samples)
    return Approach(gaps, np.mean([gaps[:, i, j] for i, j in subject.once(named_pairs)], axis=0))


def named_pairs(analysis: Analysis) -> list[tuple[int, int]]:
    return [class_numbers(pair, analysis.classes) for pair in analysis.dataset.look_alikes]


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
    predictions, embedding = features.required("softmax"), features.required("embedding")
    return class_distances(predictions, samples) - class_distances(embedding, samples)


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


def _others(found: Found) -> list[tuple[int, int]]:
    return other_pairs(found.once(named_pairs), len(found.analysis.classes), found.analysis.seed)


def _ranked(found: Found) -> dict[str, list[NDArray[np.float64]]]:
    named, others = found.once(named_pairs), _others(found)
    if len(others) < len(named):
        return {}
    sets = pair_sets(len(others), len(named), found.analysis.seed)
    first, second = np.array(others).T
    return {"other pairs": [one.gaps[:, first, second][:, sets].mean(2) for one in found.own]}


def _each_pair(found: Found) -> dict[str, Measure]:
    """The number of each named pair, and its rank among all pairs."""
    named, others, gaps = found.once(named_pairs), _others(found), found.own[0].gaps
    notes = {}
    for pair, (i, j) in zip(found.analysis.dataset.look_alikes, named, strict=True):
        rank = 1 + sum(gaps[0, a, b] >= gaps[0, i, j] for a, b in [*named, *others] if {a, b} != {i, j})
        notes[f"{pair[0]} and {pair[1]} (rank {rank} of {len(named) + len(others)})"] = measure(gaps[:, i, j])
    return notes


def _missing(analysis: Analysis) -> str | None:
    return NO_EMBEDDING if analysis.features.embedding is None else None if analysis.dataset.look_alikes else NO_PAIRS


register_control("no change", constant=0.0)
_closer = ClaimSpec(
    "look-alikes move closer",
    LOOK_ALIKES,
    "distance between the mean vectors of two classes, divided by the mean over all pairs of classes: that in the "
    "predictions minus that in f', averaged over the named pairs",
    look_alikes,
    ("no change", BLANK),
    value=lambda result: result.named,
    ranked=_ranked,
    notes=_each_pair,
    missing=_missing,
)
register_claim(_closer)
register_claim(
    replace(
        _closer,
        name="look-alikes move closer by the class vectors",
        controls=(RANDOM,),
        part="mechanistic",
        ranked=lambda found: {},
        notes=lambda found: {},
    )
)
