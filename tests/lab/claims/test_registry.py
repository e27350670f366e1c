"""Adding a family of claims takes one registration, inside the package or outside."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.features import made_features

from tembed.common.errors import TembedError
from tembed.lab import claims
from tembed.lab.claims import register_claim
from tembed.lab.claims.claim import Claim, Control, Measure, corrected
from tembed.lab.claims.half_samples import HalfSamples


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_MEASUREMENTS", dict(claims._MEASUREMENTS))


def count_classes(analysis: Any) -> list[Claim]:
    count = Measure(float(len(analysis.classes)))
    two = Control("two classes", Measure(2.0), Measure(count.value - 2), p=0.01, against=0.99)
    return [Claim("many classes", "there are many classes", "their number", count, (two,))]


def test_the_built_in_families_are_registered_in_the_order_of_the_report() -> None:
    families = ["separation", "look-alikes", "uncertainty", "hull", "words", "parts", "soft arg-max"]
    assert claims.claim_families() == families
    register_claim("mine", count_classes)
    assert claims.claim_families() == [*families, "mine"]


def test_a_registered_family_measures_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_MEASUREMENTS", {})
    register_claim("mine", count_classes)
    register_claim("none", lambda analysis: [])
    register_claim("again", count_classes)
    found: Any = SimpleNamespace(classes=("a", "b", "c"))
    measured = claims.measure_claims(found)
    assert [claim.name for claim in measured] == ["many classes", "many classes"]
    assert {claim.weights.verdict for claim in measured} == {"holds"}
    assert {claim.weights.p for claim in measured} == {0.02}, "not corrected for two claims"
    assert measured[0].plain()["controls"][0]["name"] == "two classes"


def test_the_example_of_the_docs_runs() -> None:
    text = (Path(__file__).parents[3] / "docs" / "analysis.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n([^`]*register_claim\(\"head\".*?)```", text, flags=re.DOTALL)
    space: dict[str, Any] = {}
    exec(compile(example, "docs/analysis.md", "exec"), space)
    assert claims.claim_families()[-1] == "head"
    features = made_features(np.repeat(np.arange(4), 8))
    samples = HalfSamples.draw(features.labels, 4)
    (claim,) = space["head_accuracy"](SimpleNamespace(features=features, samples=samples))
    assert claim.value.value == (features.head == features.labels).mean()
    (judged,) = corrected([claim])
    assert judged.weights.verdict == "does not hold"  # the head of random features guesses among four classes


def test_a_name_can_be_registered_only_once() -> None:
    with pytest.raises(TembedError, match="'hull' are already registered"):
        register_claim("hull", count_classes)
