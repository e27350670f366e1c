"""Where are the patches' predictions uncertain? Near the zero vector and in the passages between classes (appendix B).

*Scaled* embeddings are ``f'`` divided by the sum of its mixing weights: the same mixture with weights that sum to 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tembed.analysis.claims import register_claim
from tembed.analysis.claims.look_alikes import Pair, class_numbers
from tembed.analysis.claims.statistics import Array, Bootstrap, Statistic, decide, weighted_mean
from tembed.analysis.features import Features
from tembed.arrays import Floats
from tembed.claims import Claim, Measure, not_measured
from tembed.extras import needs

NEAR, FEWEST = 0.01, 10
"""The points nearest to a vector count as near it: this share of all points, and at least this many."""
ZERO = "patches near the zero vector have a larger entropy than those away from it"
CLOSE = "discriminative patches, those near the class vectors, have a smaller entropy"
BETWEEN = "entropy is higher in the passages between classes than near the class vectors"
NO_MATCH = "BN-ReLU, unlike a soft-max, lets a patch match no class"
NOT_FED_BACK = "the scores are not fed back (deep supervision): there is no f'"
NO_PASSAGES = "the dataset's record lists no passages between classes"


def uncertainty_claims(
    features: Features, passages: Sequence[Pair], classes: Sequence[str], seed: int = 0
) -> list[Claim]:
    """Entropy near zero, near the class vectors and in the passages; the share of patches without a match."""
    names = {"entropy near zero": ZERO, "entropy near class vectors": CLOSE, "entropy in passages": BETWEEN}
    names |= {"no match": NO_MATCH}
    if features.embedding is None or features.values is None or features.mixing is None or features.entropy is None:
        return [not_measured(name, paper, NOT_FED_BACK) for name, paper in names.items()]
    bootstrap = Bootstrap(features.labels, seed)
    length = np.linalg.norm(features.embedding, axis=1)
    correlation = bootstrap.measure(rank_correlation(length, features.entropy, len(features.labels)))
    verdict, why = decide(_negative(correlation), "negated correlation:")
    definition = "Spearman's rank correlation of |f'| and the patch's entropy"
    unmatched = bootstrap.mean((features.mixing <= 0).all(1).astype(float))
    # A mixture without weights stays zero instead of 0 / 0.
    scaled = features.embedding / np.maximum(features.mixing.sum(1, keepdims=True), np.finfo(np.float32).tiny)
    return [
        Claim("entropy near zero", ZERO, definition, verdict, why, {"block": correlation}),
        _near_class_vectors(features.embedding, scaled, features.values, features.entropy, bootstrap),
        *_in_passages(scaled, features.values, features.entropy, passages, classes, bootstrap),
        Claim(
            "no match",
            NO_MATCH,
            "share of the patches whose mixing weights are all 0",
            "no claim",
            "the paper gives no number; 0 means that the case does not arise",
            {"block": unmatched},
        ),
    ]


def rank_correlation(a: NDArray[np.floating], b: NDArray[np.floating], images: int) -> Statistic:
    """Spearman's correlation over the points, with the ranks of all points, as a function of the images' weights."""
    rank = needs("scipy.stats").rankdata
    x, y = (rank(values).reshape(images, -1) / values.size for values in (a, b))
    sums = np.stack([np.full(images, x.shape[1]), *(v.sum(1) for v in (x, y, x * x, y * y, x * y))], 1)

    def statistic(weights: Array) -> Array:
        n, sx, sy, sxx, syy, sxy = (weights @ sums).T
        spread = (sxx - sx * sx / n) * (syy - sy * sy / n)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (sxy - sx * sy / n) / np.sqrt(spread)

    return statistic


def near(points: Floats, vector: Floats) -> NDArray[np.bool_]:
    """Which points ``(P, v)`` are among those nearest to a vector: ``(P,)``."""
    count = min(len(points), max(FEWEST, round(NEAR * len(points))))
    found = np.zeros(len(points), bool)
    found[np.argsort(np.square(points - vector).sum(1), kind="stable")[:count]] = True
    return found


def _near_class_vectors(
    embedding: Floats, scaled: Floats, values: Floats, entropy: Floats, bootstrap: Bootstrap
) -> Claim:
    """Entropy near the class vectors, compared with all other patches, by ``f'`` and by scaled ``f'``."""
    images, measures, verdicts = len(bootstrap.labels), {}, {}
    for name, points in (("f'", embedding), ("f' / sum of weights", scaled)):
        close = np.logical_or.reduce([near(points, value) for value in values])
        inside, outside = (weighted_mean(np.where(which, entropy, np.nan), images) for which in (close, ~close))
        verdicts[name] = decide(bootstrap.difference(outside, inside), f"elsewhere minus near, by {name}:")
        measures[f"near, by {name}"] = bootstrap.measure(inside)
        measures[f"elsewhere, by {name}"] = bootstrap.measure(outside)
    definition = (
        f"mean entropy (nats) of the {NEAR:.0%} of the patches nearest to each class vector, against all others; by f' "
        "itself, which decides the verdict, and by f' with its mixing weights scaled to sum to 1"
    )
    verdict, why = verdicts["f'"]
    other, why_other = verdicts["f' / sum of weights"]
    other_text = "is unclear" if other == "unclear" else other
    return Claim(
        "entropy near class vectors",
        CLOSE,
        definition,
        verdict,
        f"{why}; {why_other}, where the claim {other_text}",
        measures,
    )


def _in_passages(
    scaled: Floats,
    values: Floats,
    entropy: Floats,
    passages: Sequence[Pair],
    classes: Sequence[str],
    bootstrap: Bootstrap,
) -> list[Claim]:
    """Entropy halfway between two class vectors, compared with that near either of them, by scaled ``f'``."""
    name, images = "entropy in passages", len(bootstrap.labels)
    if not passages:
        return [not_measured(name, BETWEEN, NO_PASSAGES)]
    definition = (
        f"mean entropy (nats) of the {NEAR:.0%} of the patches nearest to the middle of the two class vectors, against "
        "the patches nearest to either vector; by f' with its mixing weights scaled to sum to 1"
    )
    claims = []
    for pair in passages:
        first, second = (values[number] for number in class_numbers(pair, classes))
        between = near(scaled, (first + second) / 2)
        beside = (near(scaled, first) | near(scaled, second)) & ~between
        inside, outside = (weighted_mean(np.where(which, entropy, np.nan), images) for which in (between, beside))
        verdict, why = decide(bootstrap.difference(inside, outside), "passage minus ends:")
        measures = {
            "passage": bootstrap.measure(inside),
            "near the two class vectors": bootstrap.measure(outside),
            "all patches": bootstrap.mean(entropy),
        }
        claims.append(Claim(f"{name}: {pair[0]} to {pair[1]}", BETWEEN, definition, verdict, why, measures))
    return claims


def _negative(measure: Measure) -> Measure:
    if measure.low is None or measure.high is None:
        return Measure(-measure.value)
    return Measure(-measure.value, -measure.high, -measure.low)


register_claim(
    "uncertainty",
    lambda analysis: uncertainty_claims(analysis.features, analysis.dataset.passages, analysis.classes, analysis.seed),
)
