"""Where are the patches' predictions uncertain? Near the zero vector and in the passages between classes (appendix B).

*Scaled* embeddings are ``f'`` divided by the sum of its mixing weights: the same mixture with weights that sum to 1.

The paper does not say on which scale a patch is near a class vector. ``f'`` is several times longer than the class
vectors, so the patches near them by ``f'`` are the short ones. By the scaled embeddings they are those that mix little
else. Both readings are measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.features import Features
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import BLANK, MANY_BLANK, RANDOM, register_control
from tembed.lab.claims.half_samples import RANKED, Draws, HalfSamples, measure
from tembed.lab.claims.look_alikes import NO_EMBEDDING, class_numbers
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.lab.claims.other_groupings import other_pairs, pair_sets
from tembed.paper import NEAR_CLASS_VECTORS, NEAR_ZERO, PASSAGES

NEAR, FEWEST = 0.01, 10
"""The points nearest to a vector count as near it: this share of all points, and at least this many."""
NO_PASSAGES = "the dataset's record lists no passages between classes"


# --- near zero


def zero_correlation(features: Features, samples: HalfSamples) -> Draws:
    """Spearman's correlation of ``|f'|`` and entropy over the points of each draw, negated."""
    lengths = np.linalg.norm(features.required("embedding"), axis=1)
    levels = [np.unique(values, return_inverse=True)[1] for values in (lengths, features.required("entropy"))]
    found = []
    for row in samples.of_points(features.per_image):
        x, y = (_ranks(level[row]) for level in levels)
        spread = float(x.std() * y.std())
        found.append(-float(((x - x.mean()) * (y - y.mean())).mean()) / spread if spread else float("nan"))
    return np.array(found)


def _ranks(levels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ranks of values that are given as levels 0, 1, ...; equal values share their mean rank.

    The values are sorted once for all half-samples. ``scipy.stats.rankdata`` would sort each one: 28 times the time.
    """
    counts = np.bincount(levels)
    return (np.cumsum(counts) - (counts - 1) / 2)[levels]


# --- near vectors


def near(distances: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which points are among the nearest, by their distances ``(P,)`` to a vector."""
    count = min(len(distances), max(FEWEST, round(NEAR * len(distances))))
    found = np.zeros(len(distances), bool)
    found[np.argsort(distances, kind="stable")[:count]] = True
    return found


def scaled_embedding(features: Features) -> Floats:
    total = features.required("mixing").sum(1, keepdims=True)
    return features.required("embedding") / np.maximum(total, np.finfo(np.float32).tiny)  # 0 instead of 0 / 0


def squared_to(points: Floats, vectors: Floats) -> Floats:
    """Squared distances ``(P, K)`` of points to vectors."""
    return (points**2).sum(1)[:, None] - 2 * points @ vectors.T + (vectors**2).sum(1)[None]


def class_vector_gap(features: Features, samples: HalfSamples, *, scaled: bool) -> Draws:
    """Mean entropy elsewhere minus near the class vectors."""
    points = scaled_embedding(features) if scaled else features.required("embedding")
    distances, entropy = squared_to(points, features.required("values")), features.required("entropy")
    found = []
    for row in samples.of_points(features.per_image):
        close = np.logical_or.reduce([near(distances[row, k]) for k in range(distances.shape[1])])
        found.append(_mean_gap(entropy[row], ~close, close))
    return np.array(found)


def _mean_gap(values: Floats, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """The mean over ``first`` minus that over ``second``; NaN if either is empty."""
    if not first.any() or not second.any():
        return float("nan")
    return float(values[first].mean(dtype=np.float64) - values[second].mean(dtype=np.float64))


# --- passages


def passage_gaps(features: Features, pairs: Sequence[tuple[int, int]], samples: HalfSamples) -> NDArray[np.float64]:
    """Mean entropy halfway between two class vectors minus that near either, for each pair: ``(1 + B, pairs)``."""
    ends, entropies = squared_to(scaled_embedding(features), features.required("values")), features.required("entropy")
    found = np.empty((len(samples.rows), len(pairs)))
    for draw, row in enumerate(samples.of_points(features.per_image)):
        entropy, used = entropies[row], {k for pair in pairs for k in pair}
        beside = {k: near(ends[row, k]) for k in used}
        for number, (first, second) in enumerate(pairs):
            # |x - (a + b) / 2|^2 = (|x - a|^2 + |x - b|^2) / 2 - |a - b|^2 / 4; the last term is the same for all x.
            between = near(ends[row, first] + ends[row, second])
            found[draw, number] = _mean_gap(entropy, between, (beside[first] | beside[second]) & ~between)
    return found


@dataclass(frozen=True)
class Passages:
    """The gaps of the named pairs ``(1 + B, pairs)``, and those of other pairs, ``(1 + R, others)``, for the run."""

    named: NDArray[np.float64]
    others: NDArray[np.float64] | None


def passages(subject: Subject) -> Passages:
    features, samples = subject.features, subject.samples
    named = passage_gaps(features, subject.once(named_passages), samples)
    few = samples.first(min(RANKED, len(samples.rows) - 1))
    return Passages(named, passage_gaps(features, subject.once(other_passages), few) if subject.own else None)


def named_passages(analysis: Analysis) -> list[tuple[int, int]]:
    return [class_numbers(pair, analysis.classes) for pair in analysis.dataset.passages]


def other_passages(analysis: Analysis) -> list[tuple[int, int]]:
    return other_pairs(named_passages(analysis), len(analysis.classes), analysis.seed)


def _ranked(found: Found) -> dict[str, list[NDArray[np.float64]]]:
    named, others = found.once(named_passages), found.once(other_passages)
    if len(others) < len(named):
        return {}
    sets = pair_sets(len(others), len(named), found.analysis.seed)
    return {"other pairs": [one.others[:, sets].mean(2) for one in found.own]}


# --- notes


def _unmatched(found: Found) -> dict[str, Measure]:
    mixing = found.analysis.features.required("mixing")
    return {"patches that match no class": measure(found.samples.mean(mixing.max(1) <= 0))}


def _each_passage(found: Found) -> dict[str, Measure]:
    """The number of each passage, with its rank among all pairs."""
    analysis, own = found.analysis, found.own[0]
    notes = {}
    for number, pair in enumerate(analysis.dataset.passages):
        value = own.named[0, number]
        rank = 1 + int((own.others[0] >= value).sum()) + int((own.named[0] > value).sum())
        count = own.named.shape[1] + own.others.shape[1]
        notes[f"{pair[0]} to {pair[1]} (rank {rank} of {count})"] = measure(own.named[:, number])
    return notes


# --- claims


def _no_embedding(analysis: Analysis) -> str | None:
    return NO_EMBEDDING if analysis.features.embedding is None else None


def _no_passages(analysis: Analysis) -> str | None:
    return _no_embedding(analysis) or (None if analysis.dataset.passages else NO_PASSAGES)


NO_DIFFERENCE = "no difference"
register_control(NO_DIFFERENCE, constant=0.0)
register_claim(
    ClaimSpec(
        "entropy near zero",
        NEAR_ZERO,
        "Spearman's rank correlation of |f'| and the patch's entropy, negated",
        lambda subject: zero_correlation(subject.features, subject.samples),
        (NO_DIFFERENCE,),
        shown=(MANY_BLANK, RANDOM),
        notes=_unmatched,
        missing=_no_embedding,
    )
)
register_claim(
    ClaimSpec(
        "entropy near class vectors",
        NEAR_CLASS_VECTORS,
        f"mean entropy (nats) of all other patches minus that of the {NEAR:.0%} of the patches nearest to each class "
        "vector, by f' and by f' / sum of its weights",
        lambda subject: [class_vector_gap(subject.features, subject.samples, scaled=one) for one in (False, True)],
        (NO_DIFFERENCE,),
        shown=(BLANK,),
        readings={"by f'": lambda gaps: gaps[0], "by f' / sum of its weights": lambda gaps: gaps[1]},
        missing=_no_embedding,
    )
)
register_claim(
    ClaimSpec(
        "entropy in passages",
        PASSAGES,
        f"mean entropy (nats) of the {NEAR:.0%} of the patches nearest to the middle of two class vectors, minus that "
        "of the patches nearest to either vector, averaged over the named passages; by f' / sum of its weights",
        passages,
        (NO_DIFFERENCE, BLANK),
        value=lambda result: result.named.mean(1),
        ranked=_ranked,
        notes=_each_passage,
        missing=_no_passages,
    )
)
