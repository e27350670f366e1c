"""Does the block's output separate classes and super-classes, and not what comes before it? (§4.3, Fig. 5)"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Int64
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.compared_runs import BASELINE
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import BASELINE_MEANS, BLANK, INPUT, INPUT_MEANS, NO_EMBEDDING, RANDOM
from tembed.lab.claims.half_samples import RANKED, Draws
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.lab.claims.other_groupings import other_groupings
from tembed.lab.claims.separability import K, Separability, numbers_of, separability

PAPER = (
    "the baseline's features before the last stage are scattered; animals and vehicles separate in the block, "
    "not before it"
)
PURITY = "super-class purity"
NAMES = ("class purity", PURITY, "super-class silhouette", "super-class probe")
BEFORE = ("super-classes not separate in the block input", "super-classes not separate in the baseline")
NO_OUTPUT = "the scores are not fed back (deep supervision), so there is no block output"
NO_GROUPS = "the dataset has no super-classes and none were given"
REMNANT = 0.1
"""Super-classes count as separate if purity covers more than this share of the way from an untrained network to 1."""
LIMIT = f"{100 * REMNANT:.0f} % of the way from untrained to 1"
DEFINITIONS = {
    "class purity": f"mean share of the {K} nearest patches from other images that show the patch's class",
    "super-class purity": f"mean share of the {K} nearest patches from other images that show its super-class",
    "super-class silhouette": (
        "mean of (b - a) / max(a, b), with a the mean distance of a patch to its super-class and b to the nearest "
        "other one; patches of its own image are left out; 0 means no separation"
    ),
    "super-class probe": (
        "share of the patches whose super-class is predicted correctly by a ridge regression fitted on the other half "
        "of the images (both halves in turn)"
    ),
}

CONTROLS = (INPUT, INPUT_MEANS, NO_EMBEDDING, BASELINE, BASELINE_MEANS, "-aux", "-1x1", RANDOM, BLANK)


@dataclass(frozen=True)
class Separation:
    """The draws of each measure of a network, and those of other groupings, ``(1 + R, G)``, for the run's own."""

    numbers: dict[str, Draws]
    others: dict[str, NDArray[np.float64]]


def separation(subject: Subject) -> Separation:
    """All measures of the space behind the block."""
    features, samples, group_of = subject.features, subject.samples, subject.analysis.group_of
    others = subject.once(groupings) if subject.own else None
    few = min(RANKED, len(samples.rows) - 1)
    found = separability(features.block_output, features.map_size, samples, group_of, others, few)
    return Separation(numbers_of(found, group_of), _others(found, others))


def groupings(analysis: Analysis) -> Int64 | None:
    return None if analysis.group_of is None else other_groupings(analysis.group_of, analysis.seed)


def _others(found: Separability, others: Int64 | None) -> dict[str, NDArray[np.float64]]:
    if others is None or not len(others):
        return {}
    assert found.other_silhouettes is not None
    assert found.other_probes is not None
    draws = min(RANKED + 1, len(found.joint))
    purities = np.stack([found.purity(grouping)[:draws] for grouping in others], 1)
    return {NAMES[1]: purities, NAMES[2]: found.other_silhouettes, NAMES[3]: found.other_probes}


def _number(name: str, result: Separation) -> Draws:
    return result.numbers[name]


def _ranked(name: str, found: Found) -> dict[str, list[NDArray[np.float64]]]:
    return {"other groupings": [one.others[name] for one in found.own]} if name in found.own[0].others else {}


def _chance(name: str, found: Found) -> dict[str, Measure]:
    """What a measure gives by chance."""
    samples, group_of = found.samples, found.analysis.group_of
    share = np.bincount(samples.labels, minlength=samples.classes) / len(samples.labels)
    levels = {"class purity": float(np.square(share).sum())}
    if group_of is not None:
        by_group = np.bincount(group_of, share)
        levels |= {PURITY: float(np.square(by_group).sum()), "super-class probe": float(by_group.max())}
    return {"chance level": Measure(levels[name])} if name in levels else {}


def _limit(found: Found) -> dict[str, list[Draws]]:
    """Above it, the super-classes count as separate."""
    floor = found.samples.constant(_chance(PURITY, found)["chance level"].value)
    if untrained := [one.numbers[PURITY] for one in found.of(BLANK)]:
        floor = np.maximum(floor, np.mean(untrained, axis=0))
    return {LIMIT: [floor + REMNANT * (1 - floor)] * len(found.own)}


def _no_output(analysis: Analysis) -> str | None:
    return NO_OUTPUT if analysis.features.embedding is None else None


def _no_groups(analysis: Analysis) -> str | None:
    return _no_output(analysis) or (NO_GROUPS if analysis.group_of is None else None)


for _name in NAMES:
    register_claim(
        ClaimSpec(
            _name,
            PAPER,
            DEFINITIONS[_name],
            separation,
            CONTROLS,
            value=partial(_number, _name),
            ranked=partial(_ranked, _name),
            notes=partial(_chance, _name),
            missing=_no_output if _name == "class purity" else _no_groups,
        )
    )

for _name, _space in zip(BEFORE, (INPUT, BASELINE), strict=True):
    register_claim(
        ClaimSpec(
            _name,
            PAPER,
            f"super-class purity before the block; the limit is {REMNANT:.0%} of the way from untrained networks (or "
            "chance, if that is higher) to 1",
            separation,
            value=partial(_number, PURITY),
            beside=_limit,
            missing=_no_groups,
            of=_space,
            less=True,
        )
    )
