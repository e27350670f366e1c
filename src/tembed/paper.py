"""What the paper prints: labels and numbers of Table 1, constants, and what it says about them (§4.1-4.2).

This module imports no torch, so that all other modules can read it.
"""

from dataclasses import dataclass

BATCH_SIZES = (8, 32)
"""Batch sizes of the comparison of maximizers (Fig. 3)."""

LABELS = {
    "rn26": "RN26",
    "rn26-aux": "RN26-aux.",
    "rn26-embed": "RN26-Ours",
    "rn38": "RN38",
    "rn38-embed": "RN38-Ours",
    "wrn16": "WRN16",
    "wrn16-embed": "WRN16-Ours",
    "dn100": "DN100",
    "dn100-embed": "DN100-Ours",
    "dn100-embed-cat": "DN100-Ours-C",
}
"""The networks of Table 1 in its order: our name, and the paper's label."""

_ACCURACY = {
    "cifar10": (89.52, 90.57, 91.06, 90.78, 91.36, 90.52, 91.10, 92.62, 92.92, 92.71),
    "cifar100": (65.94, 66.21, 66.78, 68.15, 69.01, 67.11, 67.36, 71.65, 71.25, 72.14),
    "mini-imagenet": (60.43, 60.70, 61.23, 60.72, 63.83, 60.73, 62.92, 65.03, 68.86, 68.93),
}

DATASETS = tuple(_ACCURACY)
"""The datasets of Table 1 in its order."""

ACCURACY = {
    (model, data): value for data, column in _ACCURACY.items() for model, value in zip(LABELS, column, strict=True)
}
"""Table 1: test accuracy in % by network and dataset."""

TEST_IMAGES = 12_000
"""Test images behind each accuracy of Table 1: 20 % of 60,000 (§4)."""
PARAMETERS_ONLY = "rn26-1x1"
"""Our control for the claim about parameters: RN26 with the convolution of the block's shortcut and nothing else."""

BASELINES = (
    ("rn26", "rn26-aux"),
    ("rn26", "rn26-embed"),
    ("rn38", "rn38-embed"),
    ("wrn16", "wrn16-embed"),
    ("dn100", "dn100-embed"),
    ("dn100", "dn100-embed-cat"),
)
"""Pairs of a baseline and a network that extends it."""


@dataclass(frozen=True)
class Comparison:
    """States that the summed accuracy of the networks ``plus`` exceeds that of the networks ``minus``.

    ``on_par``: it states instead that they differ by less than a point.
    """

    text: str
    plus: tuple[str, ...]
    minus: tuple[str, ...]
    on_par: bool = False

    @property
    def models(self) -> tuple[str, ...]:
        return self.plus + self.minus


@dataclass(frozen=True)
class PaperClaim:
    """A sentence of §4.1 or §4.2. ``reading``: our interpretation as comparisons, on every dataset.

    All of the comparisons must hold, or more than half of them if the paper says ``mostly``.
    """

    text: str
    reading: str
    comparisons: tuple[Comparison, ...]
    mostly: bool = False


def _beats(better: str, worse: str) -> Comparison:
    return Comparison(f"{LABELS[better]} > {LABELS[worse]}", (better,), (worse,))


def _gains_more(shallow: str, deep: str) -> Comparison:
    text = f"gain of {LABELS[shallow]} > gain of {LABELS[deep]}"
    return Comparison(text, (f"{shallow}-embed", deep), (shallow, f"{deep}-embed"))


CLAIMS = (
    PaperClaim(
        "The block improves every baseline.",
        "each -Ours network beats its baseline",
        tuple(_beats(extended, baseline) for baseline, extended in BASELINES if extended != "rn26-aux"),
    ),
    PaperClaim(
        "RN26 with the block is mostly superior to the deeper RN38 without it.",
        "RN26-Ours beats RN38",
        (_beats("rn26-embed", "rn38"),),
        mostly=True,
    ),
    PaperClaim(
        "With less depth, the method performs on par with the deeper baseline.",
        "RN26-Ours and RN38 differ by less than a point (the paper does not say what on par means)",
        (Comparison("RN26-Ours on par with RN38", ("rn26-embed",), ("rn38",), on_par=True),),
    ),
    PaperClaim(
        "Shallow architectures gain more.",
        "the gains of RN26 and WRN16 exceed those of RN38 and DN100 (the paper does not say which are shallow)",
        tuple(_gains_more(shallow, deep) for shallow in ("rn26", "wrn16") for deep in ("rn38", "dn100")),
    ),
    PaperClaim(
        "In DN, concatenation is marginally superior to addition.",
        "DN100-Ours-C beats DN100-Ours",
        (_beats("dn100-embed-cat", "dn100-embed"),),
    ),
    PaperClaim(
        "Using the scores is better than deep supervision alone.",
        "RN26-Ours beats RN26-aux",
        (_beats("rn26-embed", "rn26-aux"),),
    ),
    PaperClaim(
        "Depth boosts the performance of the method.",
        "RN38-Ours beats RN26-Ours",
        (_beats("rn38-embed", "rn26-embed"),),
    ),
    PaperClaim(
        "The improvement does not come from the additional parameters.",
        f"RN26-Ours beats {PARAMETERS_ONLY}, which has the convolution of the block's shortcut and nothing else",
        (Comparison(f"RN26-Ours > {PARAMETERS_ONLY}", ("rn26-embed",), (PARAMETERS_ONLY,)),),
    ),
)
"""The claims of §4.1 and §4.2 about Table 1."""


@dataclass(frozen=True)
class Sentence:
    """A statement of the paper in our words. ``key``: a short name for tables."""

    key: str
    section: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.section})"


SEPARATION = Sentence(
    "separation",
    "§4.3, Fig. 5",
    "behind the block features cluster by meaning, animals in one half of the space and vehicles in the other; this "
    "is the result of the class vectors; in the baseline and before the block features are scattered",
)
LOOK_ALIKES = Sentence(
    "look-alikes",
    "§4.3, Fig. 6",
    "similar patches (car, truck) lie apart by their predictions; the embedding vectors bring them close",
)
WORDS = Sentence(
    "words",
    "§4.3, Fig. 7",
    "different mixtures of classes are different semantic entities, such as wing, tire and fur, in addition to words "
    "of a single class",
)
SHARED_PARTS = Sentence(
    "shared parts",
    "§3.3, §4.3",
    "a patch of a part that several classes share matches those classes (0.5 plane + 0.5 bird = wing)",
)
NEAR_ZERO = Sentence(
    "near zero", "appendix B", "patches near the zero vector have a larger entropy than those away from it"
)
NEAR_CLASS_VECTORS = Sentence(
    "near class vectors", "appendix B", "discriminative patches, those near the class vectors, have a smaller entropy"
)
PASSAGES = Sentence(
    "passages", "appendix B", "entropy is higher in the passages between classes than near the class vectors"
)
VERTICES = Sentence(
    "vertices", "appendix B", "the class vectors are the vertices of the convex hull of the embedded features"
)
SOFT_ARG_MAX = Sentence(
    "soft arg-max",
    "§3.2",
    "BN-ReLU is a soft maximizer of the best matching kernel: it preserves the relative order of the entropic "
    "solution, and maps activations around 0, where e^x is about 1 + x",
)
CONSTANTS = Sentence(
    "constants",
    "§4.1",
    "the ablation replaces BN-ReLU by a soft maximizer and a constant scale eta",
)

PARAMETERS = {
    "rn26": (0.96, 257),
    "rn26-aux": (0.96, 386),
    "rn26-embed": (0.98, 516),
    "rn38": (1.42, 257),
    "rn38-embed": (1.44, 516),
    "wrn16": (1.28, 129),
    "wrn16-embed": (1.30, 388),
    "dn100": (1.20, 535),
    "dn100-embed": (1.32, 1222),
    "dn100-embed-cat": (1.36, 1264),
}
"""Table 1's parameter column by model: millions of parameters without those per class, and parameters per class."""

_RN = "16 64 1, 64 128 2, 128 128 2, -, 128 256 1"
_RN_OURS = "16 64 1, 64 128 2, 128 128 2, 128 128 1, 128 256 1"
_WRN = "16 32 1, 32 64 2, 64 128 2, -, 128 128 -"
_WRN_OURS = "16 32 1, 32 64 2, 64 128 2, 128 128 1, 128 128 -"
STAGES = {
    32: {
        "rn26": _RN,
        "rn26-embed": _RN_OURS,
        "rn38": _RN,
        "rn38-embed": _RN_OURS,
        "wrn16": _WRN,
        "wrn16-embed": _WRN_OURS,
        "dn100": "24 108 2, 108 150 2, 150 342 -, -, 342 534 -",
        "dn100-embed": "24 108 2, 108 150 2, 150 342 -, 342 342 1, 342 534 -",
        "dn100-embed-cat": "24 108 2, 108 150 2, 150 342 -, 342 534 -, 534 726 -",
    },
    84: {
        "rn26": "16 64 2" + _RN[7:],
        "rn26-embed": "16 64 2" + _RN_OURS[7:],
        "rn38": "16 64 2" + _RN[7:],
        "rn38-embed": "16 64 2" + _RN_OURS[7:],
        "wrn16": "16 32 2" + _WRN[7:],
        "wrn16-embed": "16 32 2" + _WRN_OURS[7:],
        "dn100": "24 108 2, 108 150 2, 150 171 2, -, 171 363 -",
        "dn100-embed": "24 108 2, 108 150 2, 150 171 2, 171 171 1, 171 363 -",
        "dn100-embed-cat": "24 108 2, 108 150 2, 150 171 2, 171 363 -, 363 555 -",
    },
}
"""Appendix A's tables by image side and model: stages 1 to 3, the block, stage 4.

Channels in and out and the reduction of each: by how much its linear transform divides the side, or - without one.
"""

MU = 2.5
"""Threshold of the soft maximizers, for ResNet20 on CIFAR-10 (§4.1)."""
ETA = 17.0
"""Output scale of the soft maximizers: the mean of ``sum_k p_k`` after BN-ReLU (§4.1)."""
EPS = 1.0
"""Sharpness of the soft maximizers (§4.1)."""
SAMPLES = 600
"""Noise samples per estimate of P2 (§4.1)."""
EPOCHS = 200
"""Passes over the training images that we assume: the paper does not say how many."""
LAMBDA = 0.5
"""Weight of the patch loss (Eq. 3.1)."""
