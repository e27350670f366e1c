"""Where the patches' predictions are unsure: near the zero vector and in the passages between classes (appendix B)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tembed.analysis.claims.claim import Array, Bootstrap, Claim, Measure, decided, not_measured, weighted_mean
from tembed.analysis.claims.look_alikes import Pair
from tembed.analysis.features import Features
from tembed.arrays import Floats
from tembed.extras import needs

PASSAGES: dict[str, tuple[Pair, ...]] = {
    "cifar10": (("bird", "airplane"), ("automobile", "truck"), ("airplane", "ship"))
}
"""The passages that the paper names, by dataset."""
NEAR, FEWEST = 0.01, 10
"""A place's surroundings: this share of all patches, the nearest to it, and not fewer than so many."""
ZERO = "patches near the zero vector have a larger entropy than those away from it"
CLOSE = "for the discriminative patches, those near the class vectors, the entropy is smaller"
BETWEEN = "entropy is higher in the passages between classes than near the class vectors"
NO_MATCH = "BN-ReLU, unlike a soft-max, lets a patch match no class"
NOT_FED_BACK = "the scores are not fed back (deep supervision): there is no f'"


def uncertainty_claims(features: Features, data: str, classes: Sequence[str], seed: int = 0) -> list[Claim]:
    """Entropy near zero, near the class vectors and in the passages; patches without a match."""
    names = {"entropy near zero": ZERO, "entropy near class vectors": CLOSE, "entropy in passages": BETWEEN}
    names |= {"no match": NO_MATCH}
    if features.embedding is None or features.values is None or features.mixing is None or features.entropy is None:
        return [not_measured(name, paper, NOT_FED_BACK) for name, paper in names.items()]
    drawn = Bootstrap(features.labels, seed)
    length = np.linalg.norm(features.embedding, axis=1)
    correlation = drawn.measure(rank_correlation(length, features.entropy, len(features.labels)))
    verdict, why = decided(_negative(correlation), "minus the correlation:")
    measured = "Spearman's rank correlation of |f'| and the patch's entropy"
    none = drawn.mean((features.mixing <= 0).all(1).astype(float))
    # The same mixture with weights of sum 1; zero stays zero.
    convex = features.embedding / np.maximum(features.mixing.sum(1, keepdims=True), np.finfo(np.float32).tiny)
    return [
        Claim("entropy near zero", ZERO, measured, verdict, why, {"block": correlation}),
        _close(features.embedding, convex, features.values, features.entropy, drawn),
        *_passages(convex, features.values, features.entropy, data, classes, drawn),
        Claim(
            "no match",
            NO_MATCH,
            "share of the patches whose mixing weights are all 0",
            "no claim",
            "the paper gives no number; 0 means that the case does not arise",
            {"block": none},
        ),
    ]


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


def _close(embedding: Floats, convex: Floats, values: Floats, unsure: Floats, drawn: Bootstrap) -> Claim:
    """Entropy near the class vectors against all the rest, as the map has it and with the scale taken out."""
    images, measures, verdicts = len(drawn.labels), {}, {}
    for name, points in (("f'", embedding), ("f' / sum of weights", convex)):
        near = np.logical_or.reduce([surroundings(points, value) for value in values])
        inside, outside = (weighted_mean(np.where(which, unsure, np.nan), images) for which in (near, ~near))
        lower = drawn.measure(lambda w, a=inside, b=outside: b(w) - a(w))  # type: ignore[misc]
        verdicts[name] = decided(lower, f"elsewhere less near, by {name}:")
        measures[f"near, by {name}"], measures[f"elsewhere, by {name}"] = drawn.measure(inside), drawn.measure(outside)
    definition = (
        f"mean entropy (nats) of the {NEAR:.0%} of the patches nearest to each class vector, against all others; by f' "
        "as it is, which decides, and by f' with its mixing weights scaled to sum 1"
    )
    verdict, why = verdicts["f'"]
    other, why_other = verdicts["f' / sum of weights"]
    return Claim(
        "entropy near class vectors",
        CLOSE,
        definition,
        verdict,
        f"{why}; {why_other}, where it {_short(other)}",
        measures,
    )


def _short(verdict: str) -> str:
    return "is unclear" if verdict == "unclear" else verdict


def _passages(
    convex: Floats, values: Floats, unsure: Floats, data: str, classes: Sequence[str], drawn: Bootstrap
) -> list[Claim]:
    name, images = "entropy in passages", len(drawn.labels)
    if data not in PASSAGES:
        return [not_measured(name, BETWEEN, f"the paper names passages for CIFAR-10 only, not for {data}")]
    definition = (
        f"mean entropy (nats) of the {NEAR:.0%} of the patches nearest to the middle of the two class vectors, against "
        "that of those nearest to either vector; by f' with its mixing weights scaled to sum 1"
    )
    claims = []
    for one, other in PASSAGES[data]:
        ends = [values[classes.index(label)] for label in (one, other)]
        between = surroundings(convex, (ends[0] + ends[1]) / 2)
        beside = (surroundings(convex, ends[0]) | surroundings(convex, ends[1])) & ~between
        inside, outside = (weighted_mean(np.where(which, unsure, np.nan), images) for which in (between, beside))
        higher = drawn.measure(lambda w, a=inside, b=outside: a(w) - b(w))  # type: ignore[misc]
        verdict, why = decided(higher, "passage less ends:")
        found = {"passage": drawn.measure(inside), "near the two class vectors": drawn.measure(outside)}
        found["all patches"] = drawn.mean(unsure)
        claims.append(Claim(f"{name}: {one} to {other}", BETWEEN, definition, verdict, why, found))
    return claims


def _negative(measure: Measure) -> Measure:
    if measure.low is None or measure.high is None:
        return Measure(-measure.value)
    return Measure(-measure.value, -measure.high, -measure.low)
