"""Adding a claim or a control takes one registration, inside the package or outside."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.claims import (
    BEFORE,
    FURTHER,
    HULL,
    LOOK_ALIKES,
    PARTS,
    SEPARATION,
    UNCERTAINTY,
    UNITS,
    WORDS,
    made_analysis,
    made_claims,
)
from support.features import made_features

from tembed.common.errors import TembedError
from tembed.lab.analysis.compared_runs import KINDS, compared_models
from tembed.lab.claims import ClaimSpec, Subject, measure_claims, register_claim, register_control
from tembed.lab.claims.controls import CONTROLS, random_class_vectors
from tembed.lab.claims.half_samples import Draws, HalfSamples
from tembed.lab.claims.measuring import CLAIMS
from tembed.paper import WORDS as WORDS_SENTENCE

LABELS = np.repeat(np.arange(4), 8)
SAMPLES = HalfSamples.draw(LABELS, 4, resamples=30)
FEATURES, OTHER = made_features(LABELS), made_features(LABELS, seed=1)


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    registries: list[dict[str, Any]] = [CLAIMS, CONTROLS, KINDS]
    before = [dict(one) for one in registries]
    yield
    for one, known in zip(registries, before, strict=True):
        one.clear()
        one.update(known)


def positive(subject: Subject) -> Draws:
    """The share of positive features behind the block."""
    return subject.samples.mean((subject.features.block_output > 0).mean(1))


def test_the_claims_are_registered_in_the_order_of_the_report() -> None:
    families = [*SEPARATION, *BEFORE, *FURTHER, *LOOK_ALIKES, *UNCERTAINTY, *HULL, *WORDS, *PARTS, *UNITS]
    assert list(CLAIMS) == families
    register_claim(ClaimSpec("mine", "", "", positive))
    assert list(CLAIMS) == [*families, "mine"]


def test_a_claim_is_a_measure_and_controls_by_name() -> None:
    register_control("nothing", constant=0.0)
    register_control("shifted", change=lambda features, seed: shifted(features, -1.0))
    register_control("drawn", change=lambda features, seed: shifted(features, -1.0 - seed / 10), draws=3)
    names = ("nothing", "shifted", "drawn", "baseline", "-aux", "untrained network")
    register_claim(ClaimSpec("mine", "paper", "definition", positive, names))
    networks = {"run": [FEATURES, OTHER], "baseline": [OTHER], "untrained": [OTHER, FEATURES]}
    (claim,) = made_claims(["mine"], networks, SAMPLES)
    assert [control.name for control in claim.controls] == [
        "nothing", "shifted", "drawn (3 draws)", "baseline", "untrained network (2 seeds)",
    ]  # fmt: skip
    expected = [
        0.0,
        (FEATURES.block_output > 1).mean(),
        np.mean([(FEATURES.block_output > 1 + seed / 10).mean() for seed in range(3)]),
        (OTHER.block_output > 0).mean(),
        np.mean([(one.block_output > 0).mean() for one in (OTHER, FEATURES)]),
    ]
    assert [control.value.value for control in claim.controls] == pytest.approx(expected)
    assert claim.value is not None
    assert claim.value.value == pytest.approx((FEATURES.block_output > 0).mean())
    assert claim.method.why.startswith("n = 1")  # of the baseline


def shifted(features: Any, by: float) -> Any:
    return replace(features, block_output=features.block_output + by)


def test_a_control_can_be_added_to_claims_of_the_package() -> None:
    behind = SEPARATION[0]
    register_control("-mine", kind="-mine", claims=(behind, "class purity", "look-alikes move closer"))
    register_control("doubled", change=lambda features, seed: shifted(features, 1.0), claims=[behind])
    networks = {"run": [FEATURES], "-mine": [OTHER]}
    pairs = [("a", "b")]
    names = [behind, "class purity", LOOK_ALIKES[0], *HULL]
    purity, further, pair, hull = made_claims(names, networks, SAMPLES, pairs=pairs)
    assert [control.name for control in purity.controls][-2:] == ["-mine", "doubled"]
    assert "-mine" in [control.name for control in further.shown]
    assert further.controls == (), "it has no verdict"
    (other,) = made_claims([behind], {"run": [OTHER]}, SAMPLES)
    assert other.value is not None
    assert purity.controls[-2].value.value == other.value.value
    assert "-mine" in [control.name for control in pair.controls]
    assert "-mine" not in [control.name for control in hull.controls]
    assert compared_models("rn26-embed")["-mine"] == "rn26-mine"


def test_a_control_of_another_network_has_seeds_of_its_own() -> None:
    """A claim about the baseline is paired with the baseline only."""
    register_control("output", change=lambda features, seed: features)
    register_control("half", kind="baseline", change=lambda features, seed: shifted(features, -0.5))
    register_claim(ClaimSpec("mine", "", "", positive, ("output", "half"), of="baseline"))
    networks = {"run": [FEATURES, OTHER, FEATURES], "baseline": [OTHER, FEATURES]}
    (claim,) = made_claims(["mine"], networks, SAMPLES)
    output, half = (control.seeds for control in claim.controls)
    assert output is not None
    assert half is not None
    assert (len(output.ours), len(output.theirs), output.paired) == (2, 3, False)
    assert (len(half.ours), len(half.theirs), half.paired) == (2, 2, True)
    assert claim.over_seeds == output.ours


def test_what_is_shown_takes_no_part_in_the_verdict() -> None:
    register_control("nothing", constant=0.0)
    register_control("everything", constant=1.0)
    register_claim(ClaimSpec("mine", WORDS_SENTENCE, "", positive, ("nothing",), shown=("everything",)))
    register_claim(ClaimSpec("both", "", "", positive, ("nothing", "everything"), "mechanistic"))
    register_claim(ClaimSpec("open", "", "", positive, ("nothing",), no_verdict="it is ours"))
    mine, both, unjudged = made_claims(["mine", "both", "open"], {"run": [FEATURES]}, SAMPLES)
    assert (mine.weights.verdict, both.weights.verdict) == ("holds", "does not hold")
    assert [control.name for control in mine.shown] == ["everything"]
    assert (mine.sentence, mine.paper, mine.part) == ("words", str(WORDS_SENTENCE), "descriptive")
    assert (both.sentence, both.part) == ("", "mechanistic")
    assert (unjudged.weights.verdict, unjudged.weights.why) == ("no verdict", "it is ours")
    assert [control.name for control in unjudged.shown] == ["nothing"]


def test_a_claim_with_an_undefined_control_cannot_hold() -> None:
    register_control("nothing", constant=0.0)
    register_control("undefined", constant=float("nan"))
    for name, controls in (("mine", ("nothing", "undefined")), ("none", ("undefined",))):
        register_claim(ClaimSpec(name, "", "", positive, controls))
    mine, none = made_claims(["mine", "none"], {"run": [FEATURES, OTHER, FEATURES]}, SAMPLES)
    assert (mine.weights.verdict, mine.weights.p, mine.undefined) == ("unclear", 1, ("undefined",))
    assert mine.weights.why == "undefined on these images: undefined"
    assert mine.method.verdict == "unclear"
    assert none.weights.verdict == "not measured"
    register_claim(
        ClaimSpec("mean", "", "", lambda one: one.samples.mean(one.features.block_output[:, 0]), ("nothing",))
    )
    for number in (np.nan, np.inf):
        lost = replace(OTHER, block_output=np.full_like(OTHER.block_output, number))
        (claim,) = made_claims(["mean"], {"run": [FEATURES, lost]}, SAMPLES)
        assert (claim.weights.why, claim.over_seeds) == ("its number is undefined on these images", ())


def test_a_control_without_what_the_measure_needs_is_refused() -> None:
    register_control("-mine", kind="-mine", claims=("entropy near zero",))
    deep = replace(OTHER, embedding=None, mixing=None, values=None)
    message = "claim 'entropy near zero', measured on '-mine': the network has no embedding"
    with pytest.raises(TembedError, match=message):
        made_claims(["entropy near zero"], {"run": [FEATURES], "-mine": [deep]}, SAMPLES)
    register_control("changed", kind="-mine", change=random_class_vectors, claims=("class purity",))
    with pytest.raises(TembedError, match="claim 'class purity', measured on 'changed': the network has no values"):
        made_claims(["class purity"], {"run": [FEATURES], "-mine": [deep]}, SAMPLES)


def test_a_constant_is_compared_with_measures_on_few_half_samples() -> None:
    register_control("half", constant=0.5)
    few = ClaimSpec("few", "", "", lambda one: positive(one)[:5], ("half",))
    register_claim(few)
    (claim,) = made_claims(["few"], {"run": [FEATURES, OTHER]}, SAMPLES)
    assert claim.controls[0].value.value == 0.5


def test_networks_are_measured_once_for_all_claims_with_the_same_measure() -> None:
    calls = []

    def counting(subject: Subject) -> Draws:
        calls.append(subject.features)
        return positive(subject)

    for name in ("first", "second"):
        register_claim(ClaimSpec(name, "", "", counting, ("baseline", "untrained network")))
    first, second = made_claims(["first", "second"], {"run": [FEATURES], "baseline": [OTHER]}, SAMPLES)
    assert first.controls == second.controls
    assert len(calls) == 2


def test_claims_are_corrected_across_all_of_them() -> None:
    CLAIMS.clear()
    register_control("a little less", constant=float((FEATURES.block_output > 0).mean()) - 0.03)
    images: Any = SimpleNamespace(labels=torch.from_numpy(LABELS))
    analysis = made_analysis({"run": [FEATURES]}, sample=images)
    register_claim(ClaimSpec("first", "", "", positive, ("a little less",)))
    (alone,) = measure_claims(analysis)
    register_claim(ClaimSpec("second", "", "", positive, ("a little less",)))
    first, second = measure_claims(analysis)
    assert alone.weights.p is not None
    assert 1e-6 < alone.weights.p < 0.2
    assert first.weights.p == second.weights.p == 2 * alone.weights.p
    assert measure_claims(made_analysis({}, sample=images, has_scores=False)) == [], "both are about features"


def test_a_name_can_be_registered_only_once() -> None:
    with pytest.raises(TembedError, match="a claim 'class purity' is already registered"):
        register_claim(ClaimSpec("class purity", "", "", positive))
    with pytest.raises(TembedError, match="a control 'block input' is already registered"):
        register_control("block input", constant=0.0)
    with pytest.raises(TembedError, match="a control 'run' is already registered"):
        register_control("run", constant=0.0)


def test_unknown_names_are_refused() -> None:
    register_claim(ClaimSpec("mine", "", "", positive, ("nobody",)))
    with pytest.raises(TembedError, match="no control 'nobody' is registered; known: baseline, -aux"):
        made_claims(["mine"], {"run": [FEATURES]}, SAMPLES)
    with pytest.raises(TembedError, match="'somebody' is no kind of network"):
        register_control("wrong", kind="somebody")
    register_control("lost", constant=0.0, claims=("no such claim",))
    found: Any = None
    with pytest.raises(TembedError, match="control 'lost' names the unknown claim 'no such claim'"):
        measure_claims(found)
