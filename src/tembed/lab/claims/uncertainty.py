"""Where are the patches' predictions uncertain? Near the zero vector and in the passages between classes (appendix B).

*Scaled* embeddings are ``f'`` divided by the sum of its mixing weights: the same mixture with weights that sum to 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats
from tembed.lab.analysis.features import Features
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, Measure, not_measured
from tembed.lab.claims.controls import Networks, all_random_class_vectors, other_pairs, pair_sets, random_class_vectors
from tembed.lab.claims.half_samples import RANKED, Draws, Evidence, HalfSamples, claim, measure
from tembed.lab.claims.look_alikes import NO_EMBEDDING, Pair, class_numbers

NEAR, FEWEST = 0.01, 10
"""The points nearest to a vector count as near it: this share of all points, and at least this many."""
ZERO = "patches near the zero vector have a larger entropy than those away from it"
CLOSE = "discriminative patches, those near the class vectors, have a smaller entropy"
BETWEEN = "entropy is higher in the passages between classes than near the class vectors"
NAMES = {"entropy near zero": ZERO, "entropy near class vectors": CLOSE, "entropy in passages": BETWEEN}
NO_PASSAGES = "the dataset's record lists no passages between classes"

Form = Callable[[Features, HalfSamples], Draws]
"""A measure of one network."""


def uncertainty_claims(
    networks: Networks, passages: Sequence[Pair], classes: Sequence[str], samples: HalfSamples, seed: int = 0
) -> list[Claim]:
    """Entropy near zero, near the class vectors and in the passages."""
    features = networks.run[0]
    if features.embedding is None:
        return [not_measured(name, paper, NO_EMBEDDING) for name, paper in NAMES.items()]
    assert features.mixing is not None
    drawn = random_class_vectors(features, seed)
    unmatched = measure(samples.mean(features.mixing.max(1) <= 0))
    return [
        claim(
            "entropy near zero",
            ZERO,
            "Spearman's rank correlation of |f'| and the patch's entropy, negated",
            _evidence(networks, zero_correlation, samples, vectors=seed),
            notes={"patches that match no class": unmatched},
        ),
        claim(
            "entropy near class vectors",
            CLOSE,
            f"mean entropy (nats) of all other patches minus that of the {NEAR:.0%} of the patches nearest to each "
            "class vector, by f'",
            _evidence(networks, lambda f, s: class_vector_gap(f, s, scaled=False), samples),
            notes={
                "the same by f' / sum of its weights": measure(class_vector_gap(features, samples, scaled=True)),
                "the same with random class vectors": measure(class_vector_gap(drawn, samples, scaled=False)),
            },
        ),
        _passages(networks, passages, classes, samples, seed),
    ]


def _evidence(networks: Networks, form: Form, samples: HalfSamples, vectors: int | None = None) -> Evidence:
    """The measure of the run, of no difference, of untrained networks, and of random class vectors from a seed.

    Being near a class vector, or between two of them, refers to the class vectors themselves. Any distinct ones have
    about the same patches near them, so random ones are a control only for the length of ``f'``.
    """
    drawn = samples.over_seeds(len(networks.run))
    within = {"no difference": [samples.constant(0.0)] * len(drawn)}
    random = {}
    if vectors is not None:
        random["random class vectors"] = [
            [form(changed, some) for changed in all_random_class_vectors(f, vectors)]
            for f, some in zip(networks.run, drawn, strict=True)
        ]
    own = [form(f, some) for f, some in zip(networks.run, drawn, strict=True)]
    return Evidence(own, within, random=random, untrained=[form(f, samples) for f in networks.untrained])


# --- near zero


def zero_correlation(features: Features, samples: HalfSamples) -> Draws:
    """Spearman's correlation of ``|f'|`` and entropy over the points of each draw, negated."""
    assert features.embedding is not None
    assert features.entropy is not None
    lengths = np.linalg.norm(features.embedding, axis=1)
    levels = [np.unique(values, return_inverse=True)[1] for values in (lengths, features.entropy)]
    found = []
    for row in samples.of_points(features.per_image):
        x, y = (_ranks(level[row]) for level in levels)
        spread = float(x.std() * y.std())
        found.append(-float(((x - x.mean()) * (y - y.mean())).mean()) / spread if spread else float("nan"))
    return np.array(found)


def _ranks(levels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ranks of values that are given as levels 0, 1, ...; equal values share their mean rank."""
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
    assert features.embedding is not None
    assert features.mixing is not None
    # A mixture without weights stays zero instead of 0 / 0.
    return features.embedding / np.maximum(features.mixing.sum(1, keepdims=True), np.finfo(np.float32).tiny)


def squared_to(points: Floats, vectors: Floats) -> Floats:
    """Squared distances ``(P, K)`` of points to vectors."""
    return (points**2).sum(1)[:, None] - 2 * points @ vectors.T + (vectors**2).sum(1)[None]


def class_vector_gap(features: Features, samples: HalfSamples, *, scaled: bool) -> Draws:
    """Mean entropy elsewhere minus near the class vectors."""
    assert features.embedding is not None
    assert features.values is not None
    assert features.entropy is not None
    distances = squared_to(scaled_embedding(features) if scaled else features.embedding, features.values)
    found = []
    for row in samples.of_points(features.per_image):
        close = np.logical_or.reduce([near(distances[row, k]) for k in range(distances.shape[1])])
        found.append(_mean_gap(features.entropy[row], ~close, close))
    return np.array(found)


def _mean_gap(values: Floats, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """The mean over ``first`` minus that over ``second``; NaN if either is empty."""
    if not first.any() or not second.any():
        return float("nan")
    return float(values[first].mean(dtype=np.float64) - values[second].mean(dtype=np.float64))


# --- passages


def passage_gaps(features: Features, pairs: Sequence[tuple[int, int]], samples: HalfSamples) -> NDArray[np.float64]:
    """Mean entropy halfway between two class vectors minus that near either, for each pair: ``(1 + B, pairs)``."""
    assert features.values is not None
    assert features.entropy is not None
    points = scaled_embedding(features)
    ends = squared_to(points, features.values)
    found = np.empty((len(samples.rows), len(pairs)))
    for draw, row in enumerate(samples.of_points(features.per_image)):
        entropy, used = features.entropy[row], {k for pair in pairs for k in pair}
        beside = {k: near(ends[row, k]) for k in used}
        for number, (first, second) in enumerate(pairs):
            # |x - (a + b) / 2|^2 = (|x - a|^2 + |x - b|^2) / 2 - |a - b|^2 / 4; the last term is the same for all x.
            between = near(ends[row, first] + ends[row, second])
            found[draw, number] = _mean_gap(entropy, between, (beside[first] | beside[second]) & ~between)
    return found


def _passages(
    networks: Networks, passages: Sequence[Pair], classes: Sequence[str], samples: HalfSamples, seed: int
) -> Claim:
    name = "entropy in passages"
    if not passages:
        return not_measured(name, BETWEEN, NO_PASSAGES)
    named = [class_numbers(pair, classes) for pair in passages]
    others = other_pairs(named, len(classes), seed)
    evidence = _evidence(networks, lambda f, s: passage_gaps(f, named, s).mean(1), samples)
    few = samples.first(min(RANKED, len(samples.rows) - 1))
    gaps = [passage_gaps(f, others, few if i == 0 else samples.first(0)) for i, f in enumerate(networks.run)]
    if len(others) >= len(named):
        sets = pair_sets(len(others), len(named), seed)
        evidence = replace(evidence, ranked={"other pairs": [g[:, sets].mean(2) for g in gaps]})
    notes: dict[str, Measure] = {}
    own = passage_gaps(networks.run[0], named, samples)
    for number, pair in enumerate(passages):
        value = own[0, number]
        rank = 1 + int((gaps[0][0] >= value).sum()) + int((own[0] > value).sum())
        notes[f"{pair[0]} to {pair[1]} (rank {rank} of {len(named) + len(others)})"] = measure(own[:, number])
    drawn = random_class_vectors(networks.run[0], seed)
    notes["the same with random class vectors"] = measure(passage_gaps(drawn, named, samples).mean(1))
    definition = (
        f"mean entropy (nats) of the {NEAR:.0%} of the patches nearest to the middle of two class vectors, minus that "
        "of the patches nearest to either vector, averaged over the named passages; by f' / sum of its weights"
    )
    return claim(name, BETWEEN, definition, evidence, notes=notes)


register_claim(
    "uncertainty",
    lambda analysis: uncertainty_claims(
        analysis.networks, analysis.dataset.passages, analysis.classes, analysis.samples, analysis.seed
    ),
)
