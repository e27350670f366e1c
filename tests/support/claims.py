"""Claims on made-up networks, without an analysis of trained ones."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from tembed.common.progress import SILENT
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.compared_runs import RUN, ByKind
from tembed.lab.analysis.effective_fields import EffectiveField, WindowShare
from tembed.lab.analysis.features import Features
from tembed.lab.claims.claim import Claim
from tembed.lab.claims.half_samples import HalfSamples
from tembed.lab.claims.measuring import CLAIMS, Measuring

SEPARATION = ("separation behind the block", "separation by the class vectors")
BEFORE = ("separation in the block input", "separation in the baseline")
FURTHER = ("class purity", "class LDA", "super-class silhouette", "super-class probe")
LOOK_ALIKES = ("look-alikes move closer", "look-alikes move closer by the class vectors")
UNCERTAINTY = ("entropy near zero", "entropy near class vectors", "entropy in passages")
HULL = ("class vectors are vertices",)
WORDS = ("words that mix classes",)
PARTS = ("mass on the sharing classes", "mass off the true class", "words recover parts")
UNITS = (
    "BN-ReLU preserves the arg-max of a",
    "BN-ReLU preserves the order of a",
    "BN-ReLU preserves the arg-max of a - mu",
    "BN-ReLU preserves the order of a - mu",
    "BN-ReLU preserves the order of BN(a)",
    "normalised activations are near 0, where e^x is 1 + x",
    "few kernels are active",
    "the sum of the activations is nearly constant",
)


def made_analysis(networks: ByKind[Features], *, pairs: Sequence[tuple[str, str]] = (), **further: Any) -> Analysis:
    """What the claims read of an analysis; ``pairs``: look-alikes and passages of the dataset."""
    window = WindowShare((16, 16), 0, 0.55, 0.5, 0.6, 0.05)
    field = EffectiveField((16, 16), (43, 43), (window,), 2, 3, 3, "")
    fields = {
        "effective_field": field,
        "seed": 0,
        "progress": SILENT,
        "group_of": None,
        "classes": tuple("abcd"),
        "has_scores": True,
    } | further
    fields |= {"networks": networks, "features": networks[RUN][0] if RUN in networks else None}
    fields["dataset"] = SimpleNamespace(look_alikes=tuple(pairs), passages=tuple(pairs))
    return cast(Analysis, SimpleNamespace(**fields))


def made_claims(names: Sequence[str], networks: ByKind[Features], samples: HalfSamples, **further: Any) -> list[Claim]:
    """These claims on these networks, before the correction across claims."""
    measuring = Measuring(made_analysis(networks, **further), samples)
    return [measuring.claim(CLAIMS[name]) for name in names]
