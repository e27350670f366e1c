"""Are the class vectors the vertices of the convex hull of the embeddings? (appendix B)

An embedding is ``f' = sum_k p_k nu_k`` with ``p_k >= 0``. If the class vectors are linearly independent, the weights
``p`` are unique, and both questions about the hull have closed forms: ``f'`` lies in the hull of the class vectors and
zero if and only if ``sum_k p_k <= 1``; and ``nu_k`` is not an extreme point of the embeddings, the class vectors and
zero if and only if some patch mixes class ``k`` alone, with ``p_k > 1``.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats
from tembed.lab.analysis.features import Features
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, Judgement, Measure, not_measured
from tembed.lab.claims.controls import Networks
from tembed.lab.claims.half_samples import Evidence, HalfSamples, claim
from tembed.lab.claims.look_alikes import NO_EMBEDDING

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


def hull_claims(networks: Networks, classes: Sequence[str], samples: HalfSamples) -> list[Claim]:
    """One claim: the share of the patches inside the hull, and whether every class vector is extreme."""
    name, features = "class vectors are vertices", networks.run[0]
    if features.mixing is None or features.values is None:
        return [not_measured(name, PAPER, NO_EMBEDDING)]
    if np.linalg.matrix_rank(features.values) < len(features.values):
        return [not_measured(name, PAPER, "the class vectors are linearly dependent")]
    drawn = samples.over_seeds(len(networks.run))
    inside = [some.mean(_weights_sum(one) <= 1 + ROUNDING) for one, some in zip(networks.run, drawn, strict=True)]
    vertices = extreme(features.mixing)
    definition = (
        "share of the patches in the hull of class vectors and zero, that is, with mixing weights that sum to 1 or "
        "less; every class vector must also be an extreme point of all embeddings, class vectors and zero"
    )
    notes = {
        "class vectors that are extreme": Measure(float(vertices.mean())),
        "median sum of the mixing weights": Measure(float(np.median(_weights_sum(features)))),
    }
    evidence = Evidence(inside, {f"{ENOUGH:.0%} of the patches": [samples.constant(ENOUGH)] * len(drawn)})
    found = claim(name, PAPER, definition, evidence, notes=notes)
    if not vertices.all():
        found = replace(found, weights=Judgement("does not hold", _inner(classes, vertices)))
    failed = sum(not extreme(one.mixing).all() for one in networks.run if one.mixing is not None)
    if failed and found.method.verdict == "holds":
        why = f"in {failed} of {len(networks.run)} seeds, some class vectors are not extreme"
        found = replace(found, method=Judgement("does not hold", why))
    return [found]


def _weights_sum(features: Features) -> Floats:
    assert features.mixing is not None
    return features.mixing.sum(1)


def _inner(classes: Sequence[str], vertices: NDArray[np.bool_]) -> str:
    """Which class vectors lie inside, as a reason."""
    inner = ", ".join(name for name, is_vertex in zip(classes, vertices, strict=True) if not is_vertex)
    if len(inner) >= NAMES_LENGTH:
        inner = inner[: NAMES_LENGTH - 3] + "…"
    return f"{int(vertices.sum())} of {len(vertices)} class vectors are extreme (not extreme: {inner})"


register_claim("hull", lambda analysis: hull_claims(analysis.networks, analysis.classes, analysis.samples))
