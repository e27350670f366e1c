"""Where the patches' predictions are unsure: near the zero vector and in the passages between classes (appendix B)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tembed.analysis.claim import Array, Bootstrap, Claim, Measure, decided, not_measured, weighted_mean
from tembed.analysis.extra import needs
from tembed.analysis.features import Features, Floats
from tembed.analysis.kinship import Pair

PASSAGES: dict[str, tuple[Pair, ...]] = {
    "cifar10": (("bird", "airplane"), ("automobile", "truck"), ("airplane", "ship"))
}
"""The passages that the paper names, by dataset."""
NEAR, FEWEST = 0.01, 10
"""A place's surroundings: this share of all patches, the nearest to it, and not fewer than so many."""
ZERO = "patches near the zero vector have a larger entropy than those away from it"
BETWEEN = "entropy is higher in the passages between classes, and lower near the class vectors"
NO_MATCH = "BN-ReLU, unlike a soft-max, lets a patch match no class"
NOT_FED_BACK = "the scores are not fed back (deep supervision): there is no f'"


def uncertainty_claims(features: Features, data: str, classes: Sequence[str], seed: int = 0) -> list[Claim]:
    """The length of ``f'`` against entropy, the passages, and patches without a match."""
    names = ("entropy near zero", "entropy in passages", "no match")
    if features.embedding is None or features.values is None or features.mixing is None or features.entropy is None:
        return [not_measured(n, p, NOT_FED_BACK) for n, p in zip(names, (ZERO, BETWEEN, NO_MATCH), strict=True)]
    drawn = Bootstrap(features.labels, seed)
    length = np.linalg.norm(features.embedding, axis=1)
    correlation = drawn.measure(rank_correlation(length, features.entropy, len(features.labels)))
    verdict, why = decided(_negative(correlation), "minus the correlation:")
    claims = [
        Claim(
            names[0], ZERO, "Spearman's rank correlation of |f'| and the patch's entropy", verdict, why,
            {"block": correlation},
        ),
        *_passages(features, features.embedding, features.values, features.entropy, data, classes, drawn),
    ]  # fmt: skip
    none = drawn.mean((features.mixing <= 0).all(1).astype(float))
    claims.append(
        Claim(
            names[2],
            NO_MATCH,
            "share of the patches whose mixing weights are all 0",
            "no claim",
            "the paper gives no number; 0 would mean that the case never arises",
            {"block": none},
        )
    )
    return claims


def rank_correlation(a: NDArray[np.floating], b: NDArray[np.floating], images: int) -> Callable[[Array], Array]:
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


def surroundings(points: Floats, place: Floats) -> NDArray[np.bool_]:
    """Which points are among the nearest to a place: ``(P,)``."""
    count = min(len(points), max(FEWEST, round(NEAR * len(points))))
    near = np.zeros(len(points), bool)
    near[np.argsort(np.square(points - place).sum(1), kind="stable")[:count]] = True
    return near


def _passages(
    features: Features,
    embedding: Floats,
    values: Floats,
    unsure: Floats,
    data: str,
    classes: Sequence[str],
    drawn: Bootstrap,
) -> list[Claim]:
    name, images = "entropy in passages", len(features.labels)
    definition = (
        f"mean entropy (nats) of the {NEAR:.0%} of patches nearest in f' to the middle of the two class vectors, against that "
        "of those nearest to either vector"
    )
    near = {label: surroundings(embedding, value) for label, value in enumerate(values)}
    anywhere = np.logical_or.reduce(list(near.values()))
    everywhere = {
        "near any class vector": drawn.mean(np.where(anywhere, unsure, np.nan)),
        "all patches": drawn.mean(unsure),
    }
    if data not in PASSAGES:
        why = f"the paper names passages for CIFAR-10 only, not for {data}"
        return [Claim(name, BETWEEN, definition, "not measured", why, everywhere)]
    claims = []
    for one, other in PASSAGES[data]:
        ends = classes.index(one), classes.index(other)
        between = surroundings(embedding, (values[ends[0]] + values[ends[1]]) / 2)
        passage = np.where(between, unsure, np.nan)
        beside = np.where((near[ends[0]] | near[ends[1]]) & ~between, unsure, np.nan)
        inside, outside = weighted_mean(passage, images), weighted_mean(beside, images)
        higher = drawn.measure(lambda w, a=inside, b=outside: a(w) - b(w))  # type: ignore[misc]
        verdict, why = decided(higher, "passage less ends:")
        values_found = {"passage": drawn.measure(inside), "near the two class vectors": drawn.measure(outside)}
        claims.append(
            Claim(f"{name}: {one} to {other}", BETWEEN, definition, verdict, why, values_found | everywhere)
        )
    return claims


def _negative(measure: Measure) -> Measure:
    if measure.low is None or measure.high is None:
        return Measure(-measure.value)
    return Measure(-measure.value, -measure.high, -measure.low)
