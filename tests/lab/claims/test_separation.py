"""Separation is found where it was planted, and nowhere else."""

import dataclasses

import numpy as np
import pytest
from support.claims import BEFORE, FURTHER, made_claims
from support.claims import SEPARATION as NAMES
from support.features import made_features, planted_network

from tembed.lab.analysis.compared_runs import ByKind
from tembed.lab.analysis.features import Features
from tembed.lab.claims.claim import Claim, corrected
from tembed.lab.claims.half_samples import HalfSamples

GROUPS = np.array([0, 0, 1, 1, 1, 1, 1, 1, 0, 0])
LABELS = np.repeat(np.arange(10), 8)
NOISE = planted_network(LABELS, GROUPS, 0, seed=90)
BEHIND, BY_VECTORS = NAMES


def separation_claims(networks: ByKind[Features], group_of: np.ndarray | None, samples: HalfSamples) -> list[Claim]:
    return made_claims((*NAMES, *BEFORE, *FURTHER), networks, samples, group_of=group_of)


def judged(run: Features, *, baseline: Features = NOISE, labels: np.ndarray = LABELS) -> dict[str, Claim]:
    run, baseline, blank = (dataclasses.replace(one, labels=labels) for one in (run, baseline, NOISE))
    networks = {"run": [run], "baseline": [baseline], "untrained": [blank]}
    samples = HalfSamples.draw(labels, 10, resamples=30)
    return {claim.name: claim for claim in corrected(separation_claims(networks, GROUPS, samples))}


def on_the_way(claim: Claim) -> int:
    """The percentage in the reason of a claim about what is before the block."""
    return int(claim.weights.why.partition("purity is ")[2].partition("%")[0])


@pytest.fixture(scope="module")
def found() -> dict[str, Claim]:
    return judged(planted_network(LABELS, GROUPS, 2.0))


def test_a_block_that_separates_holds_in_both_parts(found: dict[str, Claim]) -> None:
    controls = {name: [control.name for control in found[name].controls] for name in found}
    shown = {name: [control.name for control in found[name].shown] for name in found}
    assert controls[BEHIND] == ["block input", "baseline", "untrained network"]
    assert controls[BY_VECTORS] == ["output without f'", "random class vectors (5 draws)"]
    means = ["2x2 mean of the block input", "2x2 mean of the baseline"]
    assert shown[BEHIND] == [*means, "95% of other groupings (rank 1 of 210)"]
    assert shown[BY_VECTORS] == ["random projection of the window's mean (5 draws)"]
    for name, part in ((BEHIND, "descriptive"), (BY_VECTORS, "mechanistic")):
        claim = found[name]
        assert (claim.weights.verdict, claim.part) == ("holds", part), (name, claim.weights)
        assert claim.method.verdict == "unclear"
        assert "n = 1" in claim.method.why
    for name in FURTHER:
        assert (found[name].weights.verdict, controls[name]) == ("no verdict", [])
        assert {*controls[BEHIND], *controls[BY_VECTORS], *means, *shown[BY_VECTORS]} <= set(shown[name])


def test_a_verdict_names_the_controls_that_were_not_given(found: dict[str, Claim]) -> None:
    assert found[BEHIND].not_given == ()
    assert "not compared" not in found[BEHIND].weights.why
    assert found[BY_VECTORS].not_given == ("-aux", "-1x1")
    for judgement in (found[BY_VECTORS].weights, found[BY_VECTORS].method):
        assert judgement.why.endswith("; not compared with -aux, -1x1, which were not given")


def test_before_such_a_block_nothing_is_separate(found: dict[str, Claim]) -> None:
    for name in BEFORE:
        assert (found[name].weights.verdict, found[name].part) == ("no verdict", "not before")
        assert abs(on_the_way(found[name])) < 10


def test_what_separates_before_the_block_is_no_merit_of_it() -> None:
    """The planted features are the block's input and the baseline's; the block passes them on."""
    planted = planted_network(LABELS, GROUPS, 2.0)
    assert planted.embedding is not None
    idle = dataclasses.replace(
        planted, block_input=planted.block_output, block_output=planted.block_output + 1e-3 * planted.embedding,
        embedding=1e-3 * planted.embedding,
    )  # fmt: skip
    found = judged(idle, baseline=planted)
    assert all(on_the_way(found[name]) > 50 for name in BEFORE)
    assert {found[name].weights.verdict for name in NAMES} <= {"unclear", "does not hold"}


def test_a_block_that_destroys_separation_does_not_hold() -> None:
    planted = planted_network(LABELS, GROUPS, 2.0)
    found = judged(dataclasses.replace(NOISE, block_input=planted.block_output))[BEHIND]
    assert found.weights.verdict == "does not hold"
    assert "block input" in found.weights.why


@pytest.mark.slow
def test_noise_and_shuffled_labels_hold_nothing() -> None:
    planted = planted_network(LABELS, GROUPS, 2.0)
    shuffled = np.random.default_rng(5).permutation(LABELS)
    for found in (judged(planted_network(LABELS, GROUPS, 0, seed=1)), judged(planted, labels=shuffled)):
        assert {found[name].weights.verdict for name in NAMES} <= {"unclear", "does not hold"}
        assert all(abs(on_the_way(found[name])) < 20 for name in BEFORE)


@pytest.mark.slow
def test_three_seeds_of_each_network_decide_about_the_method() -> None:
    runs = tuple(planted_network(LABELS, GROUPS, 2.0, seed) for seed in range(3))
    noise = tuple(planted_network(LABELS, GROUPS, 0, 50 + seed) for seed in range(3))
    samples = HalfSamples.draw(LABELS, 10, resamples=4)
    claims = separation_claims({"run": runs, "baseline": noise, "-aux": noise, "untrained": noise}, GROUPS, samples)
    found = {claim.name: claim for claim in corrected(claims)}
    assert {found[name].method.verdict for name in NAMES} == {"holds"}
    assert "-aux" in [control.name for control in found[BY_VECTORS].controls]
    assert found[BEHIND].method.why.startswith("n = 3; ")
    assert len(found["class purity"].over_seeds) == 3
    two = separation_claims({"run": runs, "baseline": noise[:2], "untrained": noise}, GROUPS, samples)
    assert two[0].method.verdict == "unclear"
    assert "n = 2" in two[0].method.why


def test_without_super_classes_class_purity_is_judged() -> None:
    labels = np.repeat(np.arange(4), 8)
    features, samples = made_features(labels), HalfSamples.draw(labels, 4, resamples=10)
    claims = {claim.name: claim for claim in separation_claims({"run": [features]}, None, samples)}
    assert claims[BEHIND].value == claims["class purity"].value
    assert "the patch's class" in claims[BEHIND].definition
    assert claims[BEHIND].weights.verdict in ("holds", "unclear", "does not hold")
    missing = "the dataset has no super-classes and none were given"
    assert {claims[name].weights.why for name in FURTHER[2:]} == {missing}
    assert claims[BEFORE[1]].weights.why == "no baseline was given"
    deep = dataclasses.replace(features, embedding=None, mixing=None, values=None)
    found = separation_claims({"run": [deep]}, np.array([0, 1, 0, 1]), samples)
    assert {claim.weights.verdict for claim in found} == {"not measured"}
    assert all("deep supervision" in claim.weights.why for claim in found)
