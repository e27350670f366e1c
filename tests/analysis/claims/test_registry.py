"""Adding a family of claims takes one registration, inside the package or outside."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.features import made_features

from tembed.analysis import claims, register_claim
from tembed.claims import Claim, Measure
from tembed.errors import TembedError


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_MEASUREMENTS", dict(claims._MEASUREMENTS))


def count_classes(analysis: Any) -> list[Claim]:
    value = Measure(float(len(analysis.classes)))
    return [Claim("many classes", "there are many classes", "their number", "holds", "it is above 2", {"all": value})]


def test_the_built_in_families_are_registered_in_the_order_of_the_report() -> None:
    families = ["separation", "look-alikes", "uncertainty", "hull", "words", "parts"]
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
    assert [claim.plain() for claim in measured] == [
        {
            "name": "many classes",
            "paper": "there are many classes",
            "definition": "their number",
            "verdict": "holds",
            "why": "it is above 2",
            "values": {"all": {"value": 3.0, "low": None, "high": None}},
        }
    ] * 2


def test_the_example_of_the_docs_runs() -> None:
    text = (Path(__file__).parents[3] / "docs" / "analysis.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n([^`]*register_claim\(\"head\".*?)```", text, flags=re.DOTALL)
    space: dict[str, Any] = {}
    exec(compile(example, "docs/analysis.md", "exec"), space)
    assert claims.claim_families()[-1] == "head"
    features = made_features(np.repeat(np.arange(4), 8))
    (claim,) = space["head_accuracy"](SimpleNamespace(features=features))
    assert claim.values["block"].value == (features.head == features.labels).mean()


def test_a_name_can_be_registered_only_once() -> None:
    with pytest.raises(TembedError, match="'hull' are already registered"):
        register_claim("hull", count_classes)
