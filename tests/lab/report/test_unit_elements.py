"""`tembed analyze` on a network without patch scores."""

import json
from pathlib import Path

import pytest
from support.datasets import store_world
from support.features import save_untrained

from tembed.cli.main import main
from tembed.lab.data.loading import load


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    store_world(root, "tiny", 200, 16)
    return root


@pytest.mark.slow
@pytest.mark.usefixtures("quick_analysis")
def test_a_run_without_a_block_gets_a_report_on_its_units(
    root: Path,
    tmp_path: Path,
    quick_analysis: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(root))
    weights = save_untrained(tmp_path / "w.safetensors", "rn26", "tiny", load("tiny", root=root).test.classes, 16)
    assert main(["analyze", str(weights), "--images-per-class", "4", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "BN-ReLU preserves the arg-max of a: " in said
    text = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "| stage4.1 | 128 | " in text
    assert "no patch scores" in text
    record = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert (record["model"], record["images"], len(record["claims"])) == ("rn26", 40, 8)
    # Its normalisations have their initial statistics and so change nothing: arg-max and order are always kept.
    assert [claim["value"]["value"] for claim in record["claims"][:2]] == [1.0, 1.0]
    assert {claim["weights"]["verdict"] for claim in record["claims"][4:]} == {"no verdict"}

    hub = tmp_path / "hub"
    assert main(["export", str(weights), "--hub", str(hub)]) == 0
    assert main(["analyze", str(hub), "--images-per-class", "4"]) == 0
    assert json.loads((hub / "analysis" / "claims.json").read_text())["claims"] == record["claims"]


def test_a_network_without_units_and_scores_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(root))
    weights = save_untrained(tmp_path / "w.safetensors", "dn100", "tiny", load("tiny", root=root).test.classes, 16)
    assert main(["analyze", str(weights), "--images-per-class", "2", "--out", str(tmp_path / "out")]) != 0
    assert "no BN-ReLU follows a 3x3 convolution" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
