"""Verdicts follow from p-values by rules that can be checked by hand, by simulation and against SciPy."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tembed.common.errors import TembedError
from tembed.lab.claims.claim import (
    Claim,
    Control,
    Judgement,
    Measure,
    Seeds,
    beats,
    corrected,
    not_measured,
    over_seeds,
    read_claim,
    recomputed,
    with_verdicts,
    without_verdict,
)
from tembed.lab.claims.statistics import detectable_gap

ROOT = Path(__file__).parents[3]


def control(name: str, ahead: float, p: float, reading: str = "") -> Control:
    seeds = Seeds(name, (0.5 + ahead, 0.51 + ahead, 0.52 + ahead), (0.5, 0.52, 0.51))
    return Control(name, Measure(0.5), Measure(ahead, ahead - 0.1, ahead + 0.1), p, 1 - p, seeds, reading)


def test_a_claim_must_beat_every_control() -> None:
    good, close, bad = control("good", 0.3, 1e-6), control("close", 0.05, 0.2), control("bad", -0.3, 1 - 1e-6)
    assert beats([good]).verdict == "holds"
    assert beats([good, close]).verdict == "unclear"
    assert beats([good, close]).why == "not clearly ahead of: close, +0.050 [-0.050, +0.150]"
    assert beats([good, close, bad]).verdict == "does not hold"
    assert beats([good, close, bad]).why.startswith("behind: bad, -0.300")
    assert beats([good, close]).p == 0.2


def test_a_claim_that_holds_names_the_control_with_the_weakest_evidence() -> None:
    noisy, near = control("noisy", 0.3, 0.01), control("near", 0.05, 1e-6)
    assert beats([noisy, near]).why == "ahead of all 2 controls; least surely of: noisy, +0.300 [+0.200, +0.400]"
    assert beats([near]).why == "ahead of its only control: near, +0.050 [-0.050, +0.150]"
    seeds = [Seeds("noisy", (0.9, 1.0, 1.1), (0.1, 0.4, 0.1)), Seeds("near", (0.9, 1.0, 1.1), (0.8, 0.9, 1.0))]
    assert over_seeds(seeds).why == "n = 3; ahead of all controls; least surely of: noisy, +0.800"


def test_one_of_many_controls_ahead_by_chance_does_not_refute_a_claim() -> None:
    """Among 20 controls that are equal to the claim, one is usually ahead at p < 0.05."""
    assert beats([control("one", -0.1, 0.97)]).verdict == "does not hold"
    assert beats([control(str(i), -0.1, 0.97) for i in range(20)]).verdict == "unclear"


def test_verdicts_are_corrected_across_claims() -> None:
    many = [with_verdicts(Claim(str(i), "", "", controls=(control("c", 0.1, 0.02),))) for i in range(4)]
    (alone,) = corrected(many[:1])
    assert alone.weights.verdict == "holds"
    together = corrected(many)
    assert [claim.weights.verdict for claim in together] == ["unclear"] * 4
    assert together[0].weights.p == pytest.approx(0.08)
    assert "taken alone: holds; corrected for 4 claims" in together[0].weights.why
    without = without_verdict(Claim("open", "", ""), "no verdict", "the paper names no limit")
    assert corrected([*many[:1], without, not_measured("x", "", "no")])[0].weights.verdict == "holds"
    fixed = Claim("own", "", "", weights=Judgement("holds", "mine"))
    assert corrected([fixed])[0].weights.why == "mine"


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [(0.3, 0.3, "holds"), (-0.3, -0.3, "does not hold"), (-0.3, 0.3, "unclear"), (0.3, -0.3, "unclear")],
)
def test_a_sentence_with_two_readings_needs_both_and_fails_in_both(first: float, second: float, verdict: str) -> None:
    aheads = {"a": first, "b": second}
    controls = [control("zero", ahead, 0.001 if ahead > 0 else 0.999, name) for name, ahead in aheads.items()]
    claim = with_verdicts(Claim("x", "", "", controls=tuple(controls)))
    assert (claim.weights.verdict, claim.method.verdict) == (verdict, verdict)
    assert f"zero, {first:+.3f}" in claim.weights.why.partition("; b: ")[0]
    assert f"zero, {second:+.3f}" in claim.weights.why.partition("; b: ")[2]


def test_the_seeds_of_a_method_are_tested_as_scipy_does() -> None:
    ours, theirs = (0.9, 0.92, 0.91, 0.95), (0.9, 0.89, 0.9, 0.91)
    paired = over_seeds([Seeds("input", ours, theirs)])
    assert paired.p == pytest.approx(stats.ttest_rel(ours, theirs, alternative="greater").pvalue)
    other = over_seeds([Seeds("baseline", ours, theirs[:3], paired=False)])
    assert other.p == pytest.approx(stats.ttest_ind(ours, theirs[:3], equal_var=False, alternative="greater").pvalue)
    both = over_seeds([Seeds("input", ours, theirs), Seeds("far", ours, (0.1, 0.2, 0.1, 0.1))])
    assert both.p == paired.p
    assert both.why.startswith("n = 4; ")


def test_seeds_give_each_verdict() -> None:
    low, high = (0.1, 0.11, 0.12), (0.8, 0.81, 0.79)
    assert over_seeds([Seeds("c", high, low, paired=False)]).verdict == "holds"
    assert over_seeds([Seeds("c", low, high, paired=False)]).verdict == "does not hold"
    assert over_seeds([Seeds("c", (0.1, 0.5, 0.9), (0.5, 0.1, 0.8), paired=False)]).verdict == "unclear"
    assert over_seeds([Seeds("limit", (1.0,) * 3, (0.95,) * 3)]).verdict == "holds"
    assert over_seeds([Seeds("limit", (0.9,) * 3, (0.9,) * 3)]).verdict == "unclear"


def test_below_three_seeds_the_method_is_unclear_and_the_smallest_gap_is_printed() -> None:
    for n in (1, 2):
        found = over_seeds([Seeds("c", (0.8, 0.81)[:n], (0.1, 0.12)[:n])])
        assert (found.verdict, found.p) == ("unclear", None)
        assert found.why.startswith(f"n = {n}")
    assert "the smallest gap that n = 2 could detect is " in found.why
    said = float(found.why.split()[-1])
    spread = float(np.std([0.7, 0.69], ddof=1))
    assert said == pytest.approx(detectable_gap(spread, 2), rel=0.05)
    assert "could detect one of 1.8 standard deviations" not in found.why
    alone = over_seeds([Seeds("c", (0.8,), (0.1,), paired=False)]).why
    assert f"could detect one of {detectable_gap(1, 3, 3):.1f} standard deviations" in alone


def test_a_claim_is_written_as_plain_values() -> None:
    made = Claim("a", "b", "c", Measure(0.7), (control("x", 0.2, 0.001),), notes={"n": Measure(1.0)})
    (claim,) = corrected([with_verdicts(made)])
    found = claim.to_json()
    assert found["weights"] == {
        "verdict": "holds", "why": "ahead of its only control: x, +0.200 [+0.100, +0.300]", "p": 0.001, "against": 0.999
    }  # fmt: skip
    assert found["controls"][0]["beaten"] is True
    assert found["value"] == {"value": 0.7, "low": None, "high": None}
    assert found["controls"][0]["seeds"]["theirs"] == (0.5, 0.52, 0.51)


def test_the_verdicts_follow_from_the_file_alone() -> None:
    good, bad = control("good", 0.3, 0.001), control("bad", -0.3, 0.9999)
    claims = [
        Claim("a", "p", "d", Measure(0.7, 0.6, 0.8), (good,), shown=(bad,), sentence="words", over_seeds=(0.7, 0.8)),
        Claim("b", "p", "d", Measure(0.7), (good, bad), part="mechanistic", notes={"n": Measure(1.0)}),
        Claim("c", "p", "d", Measure(0.7), (good,), undefined=("lost",)),
        Claim("d", "p", "d", Measure(0.7), (good,), refuted=(None, "no word mixes", None)),
        Claim("e", "p", "d", Measure(0.7), (control("z", 0.2, 0.02, "r"), control("z", -0.2, 0.98, "s"))),
    ]
    made = corrected(
        [
            *map(with_verdicts, claims),
            without_verdict(Claim("f", "p", "d", Measure(0.1), shown=(good,)), "no verdict", "assumed"),
            not_measured("g", "p", "no baseline"),
        ]
    )
    assert [claim.weights.verdict for claim in made] == [
        "holds", "does not hold", "unclear", "holds", "unclear", "no verdict", "not measured",
    ]  # fmt: skip
    assert made[3].method.why == "in 1 of 3 seeds, no word mixes"
    record = json.loads(json.dumps({"claims": [claim.to_json() for claim in made]}))
    assert recomputed(record) == made
    for one in record["claims"]:  # the verdicts in the file are not read
        if one["controls"]:
            one["weights"] = one["method"] = {"verdict": "unclear", "why": "", "p": 1.0, "against": 1.0}
    assert recomputed(record) == made


def test_claims_of_earlier_versions_can_be_read_but_not_judged_again() -> None:
    record = json.loads((ROOT / "results" / "analysis" / "rn26-embed-cifar10-fast-8epochs.json").read_text("utf-8"))
    (old,) = (one for one in record["claims"] if one["name"] == "look-alikes move closer")
    for key in ("sentence", "part", "shown", "over_seeds"):
        old.pop(key, None)
    old["controls"] = [{key: one[key] for key in one if key != "seeds"} for one in old["controls"]]
    claim = read_claim(old | {"less": False})
    assert (claim.sentence, claim.part, claim.shown) == ("", "descriptive", ())
    assert claim.weights.verdict == old["weights"]["verdict"]
    with pytest.raises(TembedError, match="without the numbers of each seed"):
        recomputed({"claims": [old]})
