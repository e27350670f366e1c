"""``tembed export`` writes files that load again, and says what it wrote."""

import sys
from pathlib import Path

import pytest
import torch
from support.onnx import open_session

from tembed.cli.main import main
from tembed.models.registry import create_model
from tembed.trained.hub import save_pretrained
from tembed.trained.weights_file import load


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return save_pretrained(create_model("rn20", 3, 16), tmp_path_factory.mktemp("source") / "rn20")


@pytest.mark.slow
def test_export_writes_both_forms(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "x.onnx", tmp_path / "folder"
    assert main(["export", str(source), "--onnx", str(file), "--hub", str(folder), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert f"{folder}: config.json, model.safetensors and README.md" in captured.out
    assert f"{file}: logits; any batch, height, width;" in captured.out
    assert captured.err == ""
    model, images = load(folder), torch.rand(1, 3, 16, 16)
    found = open_session(file).run(["logits"], {"images": images.numpy()})[0]
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), model(images).logits, atol=1e-4, rtol=0)


def test_export_asks_what_to_write(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(source)]) == 2
    assert capsys.readouterr().err == "tembed: error: say what to write: --onnx FILE, --hub FOLDER, or both\n"


def test_a_missing_package_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["export", str(source), "--onnx", str(tmp_path / "x.onnx")]) == 2
    assert "this needs onnxscript: pip install 'tembed[onnx]'" in capsys.readouterr().err
