"""Are the class vectors the vertices of the convex hull of the embeddings? (appendix B)

An embedding is ``f' = sum_k p_k nu_k`` with ``p_k >= 0``. If the class vectors are linearly independent, the weights
``p`` are unique, and both questions about the hull have closed forms: ``f'`` lies in the hull of the class vectors and
zero if and only if ``sum_k p_k <= 1``; and ``nu_k`` is not an extreme point of the embeddings, the class vectors and
zero if and only if some patch mixes class ``k`` alone, with ``p_k > 1``.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tembed.analysis.claims import register_claim
from tembed.analysis.claims.statistics import Bootstrap
from tembed.analysis.claims.uncertainty import NOT_FED_BACK
from tembed.analysis.features import Features
from tembed.arrays import Floats
from tembed.claims import Claim, Measure, Verdict, not_measured

PAPER = "the class vectors are the vertices of the convex hull of the embedded features"
ROUNDING = 1e-5
ENOUGH = 0.95
"""Share of the patches that must lie in the hull of the class vectors for the claim to hold."""
NAMES_LENGTH = 60
"""Maximum length of the list of class names in a reason, in characters."""


def extreme(mixing: Floats) -> NDArray[np.bool_]:
    """Whether each class vector is an extreme point of all embeddings, class vectors and zero: ``(C,)``."""
    alone = (mixing > 0).sum(1) == 1
    return ~(mixing[alone] > 1 + ROUNDING).any(0)


def hull_claims(features: Features, classes: Sequence[str], seed: int = 0) -> list[Claim]:
    """One claim, with the count of extreme class vectors and the share of patches inside their hull."""
    name = "class vectors are vertices"
    if features.mixing is None or features.values is None:
        return [not_measured(name, PAPER, NOT_FED_BACK)]
    if np.linalg.matrix_rank(features.values) < len(features.values):
        return [not_measured(name, PAPER, "the class vectors are linearly dependent")]
    bootstrap = Bootstrap(features.labels, seed)
    total = features.mixing.sum(1)
    inside = bootstrap.mean((total <= 1 + ROUNDING).astype(float))
    vertices = extreme(features.mixing)
    holds = inside.value >= ENOUGH and bool(vertices.all())
    verdict: Verdict = "holds" if holds else "does not hold"
    inner = ", ".join(name for name, is_vertex in zip(classes, vertices, strict=True) if not is_vertex)
    if len(inner) >= NAMES_LENGTH:
        inner = inner[: NAMES_LENGTH - 3] + "…"
    why = (
        f"{int(vertices.sum())} of {len(vertices)} class vectors are extreme"
        + (f" (not extreme: {inner})" if inner else "")
        + f"; {inside.value:.1%} of the patches lie in the hull of the class vectors and zero ({ENOUGH:.0%} "
        "needed). Embeddings divided by the sum of their weights all do, by construction"
    )
    values = {
        "extreme class vectors": Measure(float(vertices.mean())),
        "patches inside": inside,
        "median sum of the mixing weights": Measure(float(np.median(total))),
    }
    definition = (
        "share of the class vectors that are extreme points of all embeddings, class vectors and zero; share of the "
        "patches in the hull of class vectors and zero, that is, with mixing weights that sum to 1 or less"
    )
    return [Claim(name, PAPER, definition, verdict, why, values)]


register_claim("hull", lambda analysis: hull_claims(analysis.features, analysis.classes, analysis.seed))
