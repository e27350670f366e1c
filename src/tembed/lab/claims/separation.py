"""Does the block's output separate classes and super-classes, and not what comes before it? (§4.3, Fig. 5)"""

import numpy as np
from numpy.typing import NDArray

from tembed.common.arrays import Floats, Int64
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.features import Features
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, Measure, not_measured
from tembed.lab.claims.controls import (
    RANDOM,
    Networks,
    all_random_class_vectors,
    other_groupings,
    spatial_mean,
    with_embedding,
)
from tembed.lab.claims.half_samples import RANKED, Draws, Evidence, HalfSamples, claim
from tembed.lab.claims.separability import K, Separability, numbers_of, separability

PAPER = (
    "the baseline's features before the last stage are scattered; animals and vehicles separate in the block, "
    "not before it"
)
NAMES = ("class purity", "super-class purity", "super-class silhouette", "super-class probe")
BEFORE = ("super-classes not separate in the block input", "super-classes not separate in the baseline")
NO_OUTPUT = "the scores are not fed back (deep supervision), so there is no block output"
NO_GROUPS = "the dataset has no super-classes and none were given"
OUTPUT, INPUT, BASELINE = "block output", "block input", "baseline"
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

Numbers = dict[str, Draws]
"""The draws of each measure."""


def spaces_of(features: Features, baseline: Features | None) -> dict[str, Floats]:
    """The features that Fig. 5 compares: the stage-4 input of the baseline, the block's input and its output."""
    found = {} if baseline is None else {BASELINE: baseline.block_output}
    found[INPUT] = features.block_input
    if features.embedding is not None:
        found[OUTPUT] = features.block_output
    return found


def with_means(name: str, points: Floats, features: Features) -> dict[str, Floats]:
    """Features before the block, and their means over 2x2 and over the block's window."""
    found = {name: points}
    for window in sorted({2, max(features.window)} - {1}):
        found[f"{window}x{window} mean of the {name}"] = spatial_mean(points, features.map_size, window)
    return found


def controls_within(features: Features) -> dict[str, Floats]:
    """The controls that are changed features of the same network."""
    assert features.embedding is not None
    without = with_embedding(features, np.zeros_like(features.embedding))
    return with_means(INPUT, features.block_input, features) | {"output without f'": without}


class Measuring:
    """Measures spaces one after the other and tells the progress."""

    def __init__(self, group_of: Int64 | None, others: Int64 | None, progress: Progress, total: int):
        self.group_of, self.others, self.progress, self.total = group_of, others, progress, total
        self.done = 0

    def __call__(
        self, space: Floats, features: Features, samples: HalfSamples, *, ranked: bool = False
    ) -> Separability:
        self.progress.update("separation", self.done, self.total)
        others = self.others if ranked else None
        few = min(RANKED, len(samples.rows) - 1)
        found = separability(space, features.map_size, samples, self.group_of, others, few)
        self.done += 1
        self.progress.update("separation", self.done, self.total)
        return found

    def numbers(self, space: Floats, features: Features, samples: HalfSamples) -> Numbers:
        return numbers_of(self(space, features, samples), self.group_of)


def separation_claims(
    networks: Networks,
    group_of: Int64 | None,
    samples: HalfSamples,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Claim]:
    """Purity, silhouette and probe of the block's output, and whether the super-classes separate before it.

    ``group_of``: ``(C,)``, the super-class of each class.
    """
    if networks.run[0].embedding is None:
        return [not_measured(name, PAPER, NO_OUTPUT) for name in (*NAMES, *BEFORE)]
    others = None if group_of is None else other_groupings(group_of, seed)
    measuring = Measuring(group_of, others, progress, _count(networks))
    outputs: list[Separability] = []
    within: dict[str, list[Numbers]] = {}
    between: dict[str, list[Numbers]] = {}
    random: list[list[Numbers]] = []
    for index, features in enumerate(networks.run):
        drawn = samples if index == 0 else samples.first(0)
        outputs.append(measuring(features.block_output, features, drawn, ranked=True))
        for name, space in controls_within(features).items():
            within.setdefault(name, []).append(measuring.numbers(space, features, drawn))
        changed = all_random_class_vectors(features, seed)
        random.append([measuring.numbers(one.block_output, features, drawn) for one in changed])
    for index, features in enumerate(networks.baseline):
        drawn = samples if index == 0 else samples.first(0)
        for name, space in with_means(BASELINE, features.block_output, features).items():
            between.setdefault(name, []).append(measuring.numbers(space, features, drawn))
    for name, found in (("-aux", networks.aux), ("-1x1", networks.one_by_one)):
        for index, features in enumerate(found):
            drawn = samples if index == 0 else samples.first(0)
            between.setdefault(name, []).append(measuring.numbers(features.block_output, features, drawn))
    blank = [measuring.numbers(features.block_output, features, samples) for features in networks.untrained]
    own = [numbers_of(found, group_of) for found in outputs]
    chance = _chance(group_of, samples)
    claims = []
    for name in NAMES:
        if name not in own[0]:
            claims.append(not_measured(name, PAPER, NO_GROUPS))
            continue
        evidence = Evidence(
            [numbers[name] for numbers in own],
            {control: [numbers[name] for numbers in found] for control, found in within.items()},
            {control: [numbers[name] for numbers in found] for control, found in between.items()},
            {"random class vectors": [[numbers[name] for numbers in found] for found in random]},
            _ranked(name, outputs, others),
            [numbers[name] for numbers in blank],
        )
        claims.append(claim(name, PAPER, DEFINITIONS[name], evidence, notes=chance.get(name)))
    before = [(BEFORE[0], within[INPUT]), (BEFORE[1], between.get(BASELINE, []))]
    return [*claims, *(_before(name, found, blank, group_of, samples) for name, found in before)]


def _count(networks: Networks) -> int:
    """The number of spaces."""
    means = len({2, max(networks.run[0].window)} - {1})
    others = len(networks.aux) + len(networks.one_by_one) + len(networks.untrained)
    return (3 + RANDOM + means) * len(networks.run) + (1 + means) * len(networks.baseline) + others


def _ranked(name: str, outputs: list[Separability], others: Int64 | None) -> dict[str, list[NDArray[np.float64]]]:
    """The numbers of the other groupings, over the seeds of the run."""
    if others is None or not len(others) or name == "class purity":
        return {}
    found = []
    for output in outputs:
        if name == "super-class purity":
            draws = min(RANKED + 1, len(output.joint))
            found.append(np.stack([output.purity(grouping)[:draws] for grouping in others], 1))
        else:
            numbers = output.other_silhouettes if name == "super-class silhouette" else output.other_probes
            assert numbers is not None
            found.append(numbers)
    return {"other groupings": found}


def _chance(group_of: Int64 | None, samples: HalfSamples) -> dict[str, dict[str, Measure]]:
    """What each measure gives by chance."""
    share = np.bincount(samples.labels, minlength=samples.classes) / len(samples.labels)
    found = {"class purity": Measure(float(np.square(share).sum()))}
    if group_of is not None:
        by_group = np.bincount(group_of, share)
        found["super-class purity"] = Measure(float(np.square(by_group).sum()))
        found["super-class probe"] = Measure(float(by_group.max()))
    return {name: {"chance level": value} for name, value in found.items()}


def _before(
    name: str, found: list[Numbers], blank: list[Numbers], group_of: Int64 | None, samples: HalfSamples
) -> Claim:
    """The claim that the super-classes are not separate in some space before the block."""
    if group_of is None:
        return not_measured(name, PAPER, NO_GROUPS)
    if not found:
        return not_measured(name, PAPER, "no baseline was given")
    key = "super-class purity"
    floor = samples.constant(_chance(group_of, samples)[key]["chance level"].value)
    if blank:
        floor = np.maximum(floor, np.mean([numbers[key] for numbers in blank], axis=0))
    limit = floor + REMNANT * (1 - floor)
    definition = (
        f"super-class purity before the block; the limit is {REMNANT:.0%} of the way from untrained networks (or "
        "chance, if that is higher) to 1"
    )
    evidence = Evidence([numbers[key] for numbers in found], {LIMIT: [limit] * len(found)})
    return claim(name, PAPER, definition, evidence, less=True)


register_claim(
    "separation",
    lambda analysis: separation_claims(
        analysis.networks, analysis.group_of, analysis.samples, analysis.seed, analysis.progress
    ),
)
