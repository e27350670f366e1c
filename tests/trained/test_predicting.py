"""Predictions for files, folders, patterns, Pillow images and arrays, and their tables."""

import csv
import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.features import save_untrained

import tembed
from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.images.image_files import decode
from tembed.images.pictures import find_files
from tembed.trained import predicting as prediction
from tembed.trained.checksummed import checksummed_bytes, read_checksummed
from tembed.trained.predicting import BATCH, Prediction, each_prediction, predict
from tembed.trained.weights_file import load as load_network

CLASSES = ("plane", "car, truck", "犬", "dog")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    for model in ("rn26-embed", "rn26"):
        save_untrained(folder / f"{model}.safetensors", model, "tiny", CLASSES, 16)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "deep").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, size in enumerate([(20, 30), (16, 16), (40, 17)]):
        pixels = rng.integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(folder / ("deep" if number == 2 else ".") / f"{number}.png")
    (folder / "bad.jpg").write_bytes(b"no image")
    (folder / "notes.txt").write_text("no image either")
    (folder / "._0.png").write_bytes(b"a file of macOS")
    return folder


def test_a_prediction_is_that_of_the_network(weights: Path, photos: Path) -> None:
    source = weights / "rn26-embed.safetensors"
    files = [photos / "0.png", photos / "1.png", photos / "deep" / "2.png"]
    found = predict(source, files)
    assert [one.name for one in found] == [str(file) for file in files]
    model = load_network(source)
    for one, file in zip(found, files, strict=True):
        pixels = torch.tensor(decode(file.read_bytes(), 16)).permute(2, 0, 1)[None]
        with torch.no_grad():
            output = model(((pixels / 255 - 0.5) / 0.25).contiguous(memory_format=torch.channels_last))
        p, patches = output.logits.softmax(1)[0], output.scores.softmax(1)[0]
        np.testing.assert_allclose(one.probabilities, p, atol=1e-4)
        assert one.patches is not None
        np.testing.assert_allclose(one.patches, patches.mean((1, 2)), atol=1e-4)
        entropy = -(patches * patches.log()).sum(0).mean()
        assert one.patch_entropy == pytest.approx(float(entropy), abs=1e-3)
        assert one.entropy == pytest.approx(float(-(p * p.log()).sum()), abs=1e-3)
        assert one.prediction == CLASSES[int(p.argmax())]
        assert one.agree == (int(p.argmax()) == int(patches.mean((1, 2)).argmax()))


def overflowing(weights: Path, path: Path, how: str) -> Path:
    """Weights whose values are finite, and whose outputs are not."""
    tensors, record = read_checksummed(weights / "rn26-embed.safetensors", "weights")
    if how == "large weights":
        tensors["head.weight"].fill_(1e38)
    else:
        tensors["norm.bn.running_var"].fill_(-1.0)
    path.write_bytes(checksummed_bytes(tensors, record))
    return path


@pytest.mark.parametrize("how", ["large weights", "a negative variance"])
@pytest.mark.parametrize("command", ["predict", "explain"])
def test_outputs_that_are_not_finite_are_no_prediction(
    weights: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, how: str
) -> None:
    source, out = overflowing(weights, tmp_path / "w.safetensors", how), tmp_path / "out.csv"
    assert main([command, str(source), str(photos / "0.png"), "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert "outputs are not finite" in said.err
    assert len(said.err.splitlines()) == 1
    assert "nan" not in said.out
    assert not out.is_file()


def test_a_model_and_pictures_in_memory_can_be_given(weights: Path, photos: Path) -> None:
    model = tembed.load(weights / "rn26.safetensors")
    with Image.open(photos / "0.png") as picture:
        array = np.asarray(picture)
        found = tembed.predict(model, [picture, array, photos / "0.png"])
    assert [one.name for one in found] == ["0.png", "image-2", str(photos / "0.png")]
    for one in found:
        np.testing.assert_allclose(one.probabilities, found[0].probabilities, atol=1e-6)
        assert one.patches is one.agree is one.patch_entropy is None
    assert tembed.predict(model, array)[0].prediction == found[1].prediction


def test_more_files_than_a_batch_keep_their_order(weights: Path, tmp_path: Path) -> None:
    count = 2 * BATCH + 3
    for number in range(count):
        Image.new("RGB", (16, 16), (number, 2 * number, 200 - number)).save(tmp_path / f"{number:03}.png")
    (tmp_path / "060.png").write_bytes(b"broken")
    broken: list[str] = []
    found = list(each_prediction(weights / "rn26.safetensors", [tmp_path], broken=broken))
    assert [Path(one.name).stem for one in found] == [f"{k:03}" for k in range(count) if k != 60]
    assert broken == [f"{tmp_path / '060.png'}: not an image in a known format"]
    alone = predict(weights / "rn26.safetensors", tmp_path / "077.png")[0]
    np.testing.assert_allclose(found[76].probabilities, alone.probabilities, atol=1e-4)
    with pytest.raises(TembedError, match=r"060\.png: not an image"):
        predict(weights / "rn26.safetensors", tmp_path)


def test_a_pipe_among_the_pictures_is_skipped(weights: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png")
    broken: list[str] = []
    files = [tmp_path / "pipe.png", tmp_path / "a.png"]
    assert len(list(each_prediction(weights / "rn26.safetensors", files, broken=broken))) == 1
    assert "it is not a regular file" in broken[0]


def test_folders_and_patterns_stand_for_their_images(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    assert list(map(str, find_files(["."]))) == ["0.png", "1.png", "bad.jpg", "deep/2.png"]
    assert list(map(str, find_files(["*.png", "bad.jpg"]))) == ["0.png", "1.png", "bad.jpg"]
    assert list(map(str, find_files(["**/2.png"]))) == ["deep/2.png"]
    Path("[odd].png").touch()
    assert list(map(str, find_files(["[odd].png"]))) == ["[odd].png"], "an existing file is no pattern"
    Path("empty").mkdir()
    with pytest.raises(TembedError, match="empty has no images"):
        find_files(["empty"])


@pytest.mark.parametrize("model", ["rn26-embed", "rn26"])
def test_the_command_writes_a_table(
    model: str, weights: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos.parent)
    source = str(weights / f"{model}.safetensors")
    assert main(["predict", source, "photos", "--out", "p.csv", "--top", "2"]) == 1
    said = capsys.readouterr()
    assert said.out == "3 images: p.csv\n"
    assert said.err.endswith("skipped photos/bad.jpg: not an image in a known format\n")
    rows = list(csv.DictReader(io.StringIO(Path("p.csv").read_text("utf-8"))))
    expected = predict(source, find_files(["photos/[0-9].png", "photos/deep"]))
    for row, one in zip(rows, expected, strict=True):
        (first, p), (second, _) = one.top(2)
        assert (row["file"], row["class_1"], row["class_2"]) == (one.name, first, second)
        assert float(row["probability_1"]) == pytest.approx(p, abs=1e-4)
        assert row.get("patches_class") == one.patch_prediction
        assert row.get("agree") == {True: "yes", False: "no", None: None}[one.agree]
    assert main(["predict", source, "photos/0.png", "--out", "p.json"]) == 0
    (record,) = json.loads(Path("p.json").read_text("utf-8"))
    assert record["classes"][0]["class"] == expected[0].prediction
    assert len(record["classes"]) == 3
    assert ("patches" in record) == (model == "rn26-embed")
    capsys.readouterr()
    assert main(["predict", source, "photos/0.png", "--quiet"]) == 0
    name, p = expected[0].top()[0]
    assert capsys.readouterr().out.startswith(f"photos/0.png: {name} {p:.2f}, ")


def test_ctrl_c_keeps_the_predictions_that_are_done(
    weights: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any, **options: Any) -> Iterator[Prediction]:
        each = each_prediction(*given, **options)
        yield next(each)
        yield next(each)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.chdir(photos.parent)
    monkeypatch.setattr(prediction, "each_prediction", interrupted)
    assert main(["predict", str(weights / "rn26.safetensors"), "photos", "--out", "p.csv"]) == 130
    assert capsys.readouterr().out == "2 images: p.csv\n"
    rows = list(csv.DictReader(io.StringIO(Path("p.csv").read_text("utf-8"))))
    assert [row["file"] for row in rows] == ["photos/0.png", "photos/1.png"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "at least one image file or folder"),
        ("photos --out p.txt", "--out is p.txt; it must end in .csv or .json"),
        ("photos --out no/p.csv", "there is no folder no"),
        ("photos --top 0", "--top is 0"),
        ("photos/bad.jpg", "photos/bad.jpg: not an image in a known format"),
        ("none.jpg", "none.jpg: it cannot be read (No such file"),
        ("photos --accelerator cuda", "no GPU here"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    line: str,
    message: str,
    weights: Path,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(photos.parent)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["predict", str(weights / "rn26.safetensors"), *line.split()]) == 2
    assert message in capsys.readouterr().err


def test_a_prediction_prints_in_one_line() -> None:
    p = np.array([0.25, 0.75], np.float32)
    assert repr(Prediction("a.jpg", ("cat", "dog"), p, None, None)) == "Prediction(a.jpg: dog 0.75)"
    both = Prediction("a.jpg", ("cat", "dog"), p, p[::-1], 0.5)
    assert repr(both) == "Prediction(a.jpg: dog 0.75; patches: cat 0.75)"
    assert both.agree is False
