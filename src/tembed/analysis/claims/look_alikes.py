"""Are classes that look alike closer in the embedding ``f'`` than in the predictions? (§4.3, Fig. 6)"""

from collections.abc import Sequence

import numpy as np

from tembed.analysis.claims import register_claim
from tembed.analysis.claims.statistics import Array, Bootstrap, Statistic, decide
from tembed.analysis.features import Features
from tembed.arrays import Floats, Int64
from tembed.claims import Claim, not_measured
from tembed.errors import TembedError

PAPER = "similar patches (car, truck) lie apart by their predictions; the embedding vectors bring them close"
NO_PAIRS = "the dataset's record lists no pairs of look-alikes"

Pair = tuple[str, str]


def look_alike_claims(features: Features, pairs: Sequence[Pair], classes: Sequence[str], seed: int = 0) -> list[Claim]:
    """One claim for each pair of classes."""
    name = "look-alikes move closer"
    if features.embedding is None or features.softmax is None:
        return [not_measured(name, PAPER, "the scores are not fed back (deep supervision): there is no f'")]
    if not pairs:
        return [not_measured(name, PAPER, NO_PAIRS)]
    bootstrap, claims = Bootstrap(features.labels, seed), []
    for pair in pairs:
        numbers = class_numbers(pair, classes)
        in_predictions = pair_distance(features.softmax, features.labels, numbers)
        in_embedding = pair_distance(features.embedding, features.labels, numbers)
        verdict, why = decide(bootstrap.difference(in_predictions, in_embedding), "predictions minus f':")
        claims.append(
            Claim(
                f"{name}: {pair[0]} and {pair[1]}",
                PAPER,
                "distance between the two classes' mean vectors, divided by the mean over all pairs of classes",
                verdict,
                why,
                {"predictions": bootstrap.measure(in_predictions), "f'": bootstrap.measure(in_embedding)},
            )
        )
    return claims


def class_numbers(pair: Pair, classes: Sequence[str]) -> tuple[int, int]:
    """The labels of two classes that a dataset's record names."""
    for name in pair:
        if name not in classes:
            raise TembedError(
                f"the dataset's record pairs {pair[0]!r} with {pair[1]!r}, but the dataset has no class {name!r}: "
                "correct the look_alikes and passages of the record"
            )
    return classes.index(pair[0]), classes.index(pair[1])


def pair_distance(points: Floats, labels: Int64, pair: tuple[int, int]) -> Statistic:
    """The distance of two class means, divided by the mean over all pairs, as a function of the images' weights."""
    by_image = points.reshape(len(labels), -1, points.shape[1]).mean(1, dtype=np.float64)
    by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    rows, columns = np.triu_indices(len(by_class), 1)

    def statistic(weights: Array) -> Array:
        centres = np.stack(
            [(weights[:, i] @ by_image[i]) / weights[:, i].sum(1, keepdims=True) for i in by_class], 1
        )  # (B, C, d)
        squares = np.square(centres).sum(-1)
        products = centres @ centres.transpose(0, 2, 1)
        distances = np.sqrt(np.maximum(squares[:, :, None] + squares[:, None, :] - 2 * products, 0))
        return distances[:, pair[0], pair[1]] / distances[:, rows, columns].mean(1)

    return statistic


register_claim(
    "look-alikes",
    lambda analysis: look_alike_claims(
        analysis.features, analysis.dataset.look_alikes, analysis.classes, analysis.seed
    ),
)
