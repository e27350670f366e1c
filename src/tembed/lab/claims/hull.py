"""Are the class vectors the vertices of the convex hull of the embeddings? (appendix B)

An embedding is ``f' = sum_k p_k nu_k`` with ``p_k >= 0``. If the class vectors are linearly independent, the weights
``p`` are unique, and both questions about the hull have closed forms: ``f'`` lies in the hull of the class vectors and
zero if and only if ``sum_k p_k <= 1``; and ``nu_k`` is not an extreme point of the embeddings, the class vectors and
zero if and only if some patch mixes class ``k`` alone, with ``p_k > 1``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.half_samples import Draws
from tembed.lab.claims.look_alikes import NO_EMBEDDING
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.paper import VERTICES

ROUNDING = 1e-5


@dataclass(frozen=True)
class Hull:
    """``inside``: share of the patches in the hull of class vectors and zero. ``vertices``: see `extreme`."""

    inside: Draws
    vertices: NDArray[np.bool_]
    median_sum: float


def extreme(mixing: Floats) -> NDArray[np.bool_]:
    """Whether each class vector is an extreme point of all embeddings, class vectors and zero: ``(C,)``."""
    alone = (mixing > 0).sum(1) == 1
    return ~(mixing[alone] > 1 + ROUNDING).any(0)


def hull(subject: Subject) -> Hull:
    mixing = subject.features.required("mixing")
    total = mixing.sum(1)
    inside = subject.samples.mean(total <= 1 + ROUNDING)
    return Hull(inside, extreme(mixing), float(np.median(total)))


def _by_construction(found: Found) -> str:
    """Why the sentence is not tested."""
    share = found.own[0].inside[0]
    return (
        "scaled to weights that sum to 1, every embedding lies in the hull of the class vectors, by construction; as "
        f"they are, {share:.1%} do"
    )


def _notes(found: Found) -> dict[str, Measure]:
    return {
        "class vectors that are extreme": Measure(float(found.own[0].vertices.mean())),
        "median sum of the mixing weights": Measure(found.own[0].median_sum),
    }


def _missing(analysis: Analysis) -> str | None:
    values = analysis.features.values
    if analysis.features.mixing is None or values is None:
        return NO_EMBEDDING
    return "the class vectors are linearly dependent" if np.linalg.matrix_rank(values) < len(values) else None


register_claim(
    ClaimSpec(
        "class vectors are vertices",
        VERTICES,
        "share of the patches in the hull of class vectors and zero: those with mixing weights that sum to 1 or less",
        hull,
        no_verdict=_by_construction,
        value=lambda result: result.inside,
        notes=_notes,
        missing=_missing,
    )
)
