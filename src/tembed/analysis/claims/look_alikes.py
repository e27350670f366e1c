"""Do classes that look alike lie closer in the embedding ``f'`` than in the predictions? (§4.3, Fig. 6)"""

from collections.abc import Callable, Sequence

import numpy as np

from tembed.analysis.claims.claim import Array, Bootstrap, Claim, decided, not_measured
from tembed.analysis.features import Features
from tembed.arrays import Floats, Int64

Pair = tuple[str, str]

ALIKE: dict[str, tuple[Pair, ...]] = {"cifar10": (("automobile", "truck"), ("airplane", "bird"))}
"""The pairs of look-alikes that the paper names, by dataset."""
PAPER = "by their predictions similar patches (car, truck) lie apart; the embedding vectors bring them close"


def kinship_claims(features: Features, data: str, classes: Sequence[str], seed: int = 0) -> list[Claim]:
    """One claim for each pair that the paper names on this dataset."""
    name = "look-alikes move closer"
    if features.embedding is None or features.softmax is None:
        return [not_measured(name, PAPER, "the scores are not fed back (deep supervision): there is no f'")]
    if data not in ALIKE:
        return [not_measured(name, PAPER, f"the paper names pairs of look-alikes for CIFAR-10 only, not for {data}")]
    drawn, claims = Bootstrap(features.labels, seed), []
    for one, other in ALIKE[data]:
        pair = classes.index(one), classes.index(other)
        in_predictions = pair_distance(features.softmax, features.labels, pair)
        in_embedding = pair_distance(features.embedding, features.labels, pair)
        closer = drawn.measure(lambda w, a=in_predictions, b=in_embedding: a(w) - b(w))  # type: ignore[misc]
        verdict, why = decided(closer, "predictions less f':")
        claims.append(
            Claim(
                f"{name}: {one} and {other}",
                PAPER,
                "distance of the two classes' mean vectors, divided by the mean distance of all pairs of classes",
                verdict,
                why,
                {"predictions": drawn.measure(in_predictions), "f'": drawn.measure(in_embedding)},
            )
        )
    return claims


def pair_distance(points: Floats, labels: Int64, pair: tuple[int, int]) -> Callable[[Array], Array]:
    """The distance of two class means over the mean distance of all pairs, as a function of the images' weights."""
    by_image = points.reshape(len(labels), -1, points.shape[1]).mean(1, dtype=np.float64)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    rows, columns = np.triu_indices(len(members), 1)

    def statistic(weights: Array) -> Array:
        centres = np.stack(
            [(weights[:, m] @ by_image[m]) / weights[:, m].sum(1, keepdims=True) for m in members], 1
        )  # (B, C, d)
        squares = np.square(centres).sum(-1)
        products = centres @ centres.transpose(0, 2, 1)
        apart = np.sqrt(np.maximum(squares[:, :, None] + squares[:, None, :] - 2 * products, 0))
        return apart[:, pair[0], pair[1]] / apart[:, rows, columns].mean(1)

    return statistic
