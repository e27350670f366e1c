"""Does the block's output separate classes and super-classes, and not what comes before it? (§4.3, Fig. 5)"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Int64
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.analysis.compared_runs import BASELINE
from tembed.lab.claims.claim import Measure
from tembed.lab.claims.controls import (
    BASELINE_MEANS,
    BLANK,
    INPUT,
    INPUT_MEANS,
    NO_EMBEDDING,
    PROJECTED,
    RANDOM,
)
from tembed.lab.claims.half_samples import RANKED, Draws, measure
from tembed.lab.claims.measuring import ClaimSpec, Found, Subject, register_claim
from tembed.lab.claims.other_groupings import other_groupings
from tembed.lab.claims.separability import K, Separability, numbers_of, separability
from tembed.paper import SEPARATION

CLASS, LDA = "class purity", "class LDA"
PURITY, SILHOUETTE, PROBE = "super-class purity", "super-class silhouette", "super-class probe"
NO_OUTPUT = "the scores are not fed back (deep supervision), so there is no block output"
NO_GROUPS = "the dataset has no super-classes and none were given"
FURTHER = "a further measure of the same sentence"
DEFINITIONS = {
    CLASS: f"mean share of the {K} nearest patches from other images that show the patch's class",
    LDA: (
        "share of the patches whose class is predicted correctly by a linear discriminant analysis fitted on the other "
        "half of the images (both halves in turn)"
    ),
    PURITY: f"mean share of the {K} nearest patches from other images that show its super-class",
    SILHOUETTE: (
        "mean of (b - a) / max(a, b), with a the mean distance of a patch to its super-class and b to the nearest "
        "other one; patches of its own image are left out; 0 means no separation"
    ),
    PROBE: (
        "share of the patches whose super-class is predicted correctly by a ridge regression fitted on the other half "
        "of the images (both halves in turn)"
    ),
}

DESCRIPTIVE, MEANS = (INPUT, BASELINE, BLANK), (INPUT_MEANS, BASELINE_MEANS)
MECHANISTIC = (NO_EMBEDDING, RANDOM, "-aux", "-1x1")


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
    return {PURITY: purities, SILHOUETTE: found.other_silhouettes, PROBE: found.other_probes}


def _number(name: str, result: Separation) -> Draws:
    """The draws of a measure; without super-classes, those of class purity instead of super-class purity."""
    return result.numbers.get(name, result.numbers[CLASS])


def _ranked(name: str, found: Found) -> dict[str, list[NDArray[np.float64]]]:
    return {"other groupings": [one.others[name] for one in found.own]} if name in found.own[0].others else {}


def _chance(name: str, found: Found) -> dict[str, Measure]:
    """What a measure gives by chance."""
    samples, group_of = found.samples, found.analysis.group_of
    share = np.bincount(samples.labels, minlength=samples.classes) / len(samples.labels)
    by_group = share if group_of is None or name in (CLASS, LDA) else np.bincount(group_of, share)
    levels = {CLASS: float(np.square(by_group).sum()), PROBE: float(by_group.max())}
    levels[LDA] = levels[PROBE]
    levels[PURITY] = levels[CLASS]
    return {"chance level": Measure(levels[name])} if name in levels else {}


def _way(found: Found) -> Measure:
    """How far the purity is on the way from untrained networks, or from chance if that is more, to 1."""
    floor = found.samples.constant(_chance(PURITY, found)["chance level"].value)
    if untrained := [_number(PURITY, one) for one in found.of(BLANK)]:
        floor = np.maximum(floor, np.mean(untrained, axis=0))
    return measure((_number(PURITY, found.own[0]) - floor) / (1 - floor))


def _on_the_way(found: Found) -> str:
    way = _way(found)
    between = "" if way.low is None or way.high is None else f" [{way.low:.0%}, {way.high:.0%}]"
    return f"the paper names no limit; purity is {way.value:.0%}{between} of the way from untrained networks to 1"


def _definition(analysis: Analysis) -> str:
    return DEFINITIONS[CLASS if analysis.group_of is None else PURITY]


def _no_output(analysis: Analysis) -> str | None:
    return NO_OUTPUT if analysis.features.embedding is None else None


def _no_groups(analysis: Analysis) -> str | None:
    return _no_output(analysis) or (NO_GROUPS if analysis.group_of is None else None)


_purity = ClaimSpec(
    "separation behind the block",
    SEPARATION,
    _definition,
    separation,
    DESCRIPTIVE,
    shown=MEANS,
    value=partial(_number, PURITY),
    ranked=partial(_ranked, PURITY),
    notes=partial(_chance, PURITY),
    missing=_no_output,
)
register_claim(_purity)
register_claim(
    replace(
        _purity,
        name="separation by the class vectors",
        controls=MECHANISTIC,
        part="mechanistic",
        shown=(PROJECTED,),
        ranked=lambda found: {},
    )
)
for _space in (INPUT, BASELINE):
    register_claim(
        replace(
            _purity,
            name=f"separation in the {_space}",
            controls=(),
            part="not before",
            shown=(BLANK,),
            no_verdict=_on_the_way,
            ranked=lambda found: {},
            of=_space,
        )
    )
for _name in (CLASS, LDA, SILHOUETTE, PROBE):
    register_claim(
        ClaimSpec(
            _name,
            SEPARATION,
            DEFINITIONS[_name],
            separation,
            shown=(*DESCRIPTIVE, *MEANS, *MECHANISTIC, PROJECTED),
            no_verdict=FURTHER,
            value=partial(_number, _name),
            ranked=partial(_ranked, _name),
            notes=partial(_chance, _name),
            missing=_no_output if _name in (CLASS, LDA) else _no_groups,
        )
    )
