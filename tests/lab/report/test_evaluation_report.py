"""The report of an evaluation: its numbers are those of `evaluate`, and every image has its file name."""

import csv
import io
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.datasets import planes
from support.features import save_untrained
from support.texts import unreadable

from tembed.cli import cmd_evaluate
from tembed.cli.main import main
from tembed.common.fonts import text_width
from tembed.lab.analysis.figures import figure_png
from tembed.lab.data.importing import import_images
from tembed.lab.data.loading import load
from tembed.lab.data.parts.world import generate
from tembed.lab.data.readers.reading import Chunk, Reading
from tembed.lab.data.store import store
from tembed.lab.report import evaluation_sheet as sheet
from tembed.lab.report.document import Details, Table
from tembed.lab.report.evaluation_figures import confusion_figure
from tembed.lab.report.evaluation_report import class_tables, default_out, write_evaluation
from tembed.lab.report.evaluation_sheet import COLUMNS, TILE, patch_scores, worst_sheet
from tembed.lab.training.evaluation import Detailed, evaluate, evaluate_in_detail
from tembed.lab.training.prediction_measures import ClassMeasure, Predictions
from tembed.trained.weights_file import load as load_network

CLASSES = ("Ibizan hound", "Tibetan mastiff", "Würstchen, 犬 | <b>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset ``photos`` of 30 files in three classes, and untrained networks for it."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number, name in enumerate(CLASSES):
        place = folder / "files" / name.replace("|", "I").replace("/", "-")
        place.mkdir(parents=True)
        for image in range(10):
            pixels = rng.integers(0, 256, (16, 16, 3), np.uint8) // (number + 1)
            Image.fromarray(pixels).save(place / f"{number}{image}.png")
    import_images(folder / "files", "photos", root=folder / "data")
    classes = load("photos", root=folder / "data").train.classes
    for model in ("rn26-embed", "rn26"):
        save_untrained(folder / f"{model}.safetensors", model, "photos", classes, 16)
    return folder


@pytest.fixture
def detailed(folder: Path) -> Detailed:
    return evaluate_in_detail(folder / "rn26-embed.safetensors", "train", root=folder / "data")


def test_a_class_name_cannot_control_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made, classes = generate(60, size=8), (*(f"class {k}" for k in range(9)), "\x1b[31mred\nline")
    chunk = Chunk(made.pixels(), made.labels.numpy(), np.zeros(60, np.uint8))
    store(tmp_path, "odd", Reading("generated", classes, iter([chunk])), {"generator": "tests"})
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path))
    monkeypatch.setattr(cmd_evaluate, "SHOWN", 10)
    source = save_untrained(tmp_path / "w.safetensors", "rn26-embed", "odd", classes, 8)
    with warnings.catch_warnings(action="ignore"):  # of matplotlib, about the glyph
        assert main(["evaluate", str(source), "--out", str(tmp_path / "report")]) == 0
    said = capsys.readouterr().out
    assert r"\x1b[31mred\nline" in said
    assert "\x1b" not in said


def test_the_details_add_up_to_the_evaluation(folder: Path, detailed: Detailed) -> None:
    source = folder / "rn26-embed.safetensors"
    assert detailed.evaluation == evaluate(source, "train", root=folder / "data")
    found = detailed.predictions
    assert (found.predicted == found.labels).mean() == pytest.approx(detailed.evaluation.accuracy)
    assert found.losses.mean() == pytest.approx(detailed.evaluation.head, rel=1e-5)
    assert repr(detailed).startswith("Detailed(rn26-embed on photos, train: ")
    for file, label in zip(found.files, found.labels, strict=True):
        assert file.split("/")[0] == found.classes[label], "each name belongs to its image"
    network = load_network(source)
    batch = (planes(detailed.images)[:4].float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        output = network(batch.contiguous(memory_format=torch.channels_last))
    assert output.scores is not None
    assert found.patches is not None
    np.testing.assert_allclose(found.patches[:4], output.scores.softmax(1).mean((2, 3)), atol=1e-3)
    batch = (planes(detailed.images).float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        scores = network(batch.contiguous(memory_format=torch.channels_last)).scores
    assert scores is not None
    truth = detailed.images.labels[:, None, None].expand(-1, *scores.shape[2:])
    own = scores.log_softmax(1).gather(1, truth[:, None])
    assert detailed.evaluation.patches == pytest.approx(-own.mean().item(), rel=1e-4)
    assert detailed.evaluation.patch_accuracy == pytest.approx((scores.argmax(1) == truth).float().mean().item())


def test_a_source_may_be_a_loaded_model(folder: Path) -> None:
    network = load_network(folder / "rn26.safetensors")
    expected = evaluate(folder / "rn26.safetensors", root=folder / "data")
    assert evaluate(network, root=folder / "data") == expected
    assert evaluate_in_detail(network, root=folder / "data").predictions.patches is None


def test_the_command_writes_the_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMBED_DATA", str(folder / "data"))
    source = str(folder / "rn26-embed.safetensors")
    assert main(["evaluate", source, "--subset", "train", "--out", "seen", "--accelerator", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("the report: seen/report.md and seen/report.html\n")
    record = json.loads(Path("seen/evaluation.json").read_text("utf-8"))
    first, at_work, accuracy, *_ = out.splitlines()
    assert first == f"{source} on {record['images']} train images:"
    assert "without f' the head loses" in at_work
    assert accuracy.startswith(f"  accuracy {100 * record['accuracy']:.2f} %")
    assert np.array(record["confusion"]).sum() == record["images"]
    assert np.trace(record["confusion"]) == round(record["accuracy"] * record["images"])
    rows = list(csv.DictReader(io.StringIO(Path("seen/images.csv").read_text("utf-8"))))
    assert len(rows) == record["images"]
    losses = [float(row["loss"]) for row in rows]
    assert losses == sorted(losses, reverse=True)
    assert all(row["file"].split("/")[0] == row["class"] for row in rows)
    page = Path("seen/report.html").read_text("utf-8")
    assert "<b>" not in page
    assert "Tibetan mastiff" in page
    for name in ("confusion", "calibration", "worst"):
        assert Path(f"seen/figures/{name}.png").stat().st_size > 1000
    assert main(["evaluate", source, "--quiet"]) == 0
    assert not Path("evaluation").exists(), "--quiet writes no report"


def test_a_baseline_has_no_patches_view(folder: Path, tmp_path: Path) -> None:
    found = evaluate_in_detail(folder / "rn26.safetensors", root=folder / "data")
    assert patch_scores(found, found.predictions.worst(2)) is None
    report = write_evaluation(found, tmp_path)
    assert "patches" not in report.read_text("utf-8")


def test_the_sheet_shows_the_images_and_their_patches(detailed: Detailed) -> None:
    which = detailed.predictions.worst(5)
    scores = patch_scores(detailed, which)
    assert scores is not None
    assert scores.shape == (5, 4, 4, 3)
    shown, found = np.asarray(worst_sheet(detailed, which)), []
    for pixels in detailed.images.pixels(which.tolist()):
        tile = np.asarray(Image.fromarray(pixels).resize((TILE, TILE), Image.Resampling.LANCZOS))
        corners = np.argwhere((shown[:-TILE, :-TILE] == tile[0, 0]).all(-1))
        found += [(y, x) for y, x in corners if np.array_equal(shown[y : y + TILE, x : x + TILE], tile)][:1]
    assert len(found) == 5
    assert found == sorted(found), "row by row"
    assert len({y for y, _ in found}) == -(-5 // COLUMNS)


def test_a_caption_keeps_the_file_and_the_numbers_beside_long_names(
    detailed: Detailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = detailed.predictions
    files = tuple(f"{'black-footed ferret ' * 3}/IMG_{k:04}.jpg" for k in range(len(one)))
    renamed = replace(one, classes=("black-footed ferret " * 3, "Tibetan mastiff " * 3, "é" * 90), files=files)
    drawn: list[str] = []
    monkeypatch.setattr(sheet, "draw_text", lambda draw, at, text, *rest, **more: drawn.append(text))
    worst_sheet(replace(detailed, predictions=renamed), one.worst(1))
    file, truth, head = drawn[-3:]
    (worst,) = one.worst(1)
    assert file.startswith("…")
    assert file.endswith(f"/IMG_{worst:04}.jpg")
    assert truth.endswith("…")
    assert head.endswith(f"… {one.probabilities[worst].max():.2f}; loss {one.losses[worst]:.1f}")
    assert max(text_width(file, 12), text_width(truth, 13), text_width(head, 13)) <= 2 * TILE + 60


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 25, 60])
def test_no_text_of_a_confusion_matrix_covers_another(classes: int) -> None:
    names = ("three_toed sloth_$cost_of_living", "チベタン・マスティフの子犬たち", "a" * 300, "W" * 30)
    names = tuple(f"{names[k % 4]} {k}" for k in range(classes))
    labels = np.arange(4 * classes) % classes
    p = np.eye(classes, dtype=np.float32)[labels]
    made = confusion_figure(Predictions(names, labels, p, p[:, 0], None, tuple(map(str, labels))))
    assert unreadable(made) == []
    assert made.get_size_inches().max() < 18


@pytest.mark.parametrize("classes", [2, 30, 300])
def test_a_confusion_matrix_has_names_while_they_fit(classes: int) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(classes, 0.5), 600).astype(np.float32)
    names = tuple(f"a class with a long name {k}" for k in range(classes))
    labels = rng.integers(0, classes, 600)
    found = Predictions(names, labels, p, p[:, 0], None, tuple(map(str, range(600))))
    made = confusion_figure(found)
    shown = [label.get_text() for label in made.axes[0].get_yticklabels()]
    assert shown == (list(names) if classes <= 120 else [])
    assert bool(made.axes[0].texts) == (classes <= 25)
    side = made.axes[0].get_position().width * made.get_size_inches()[0]
    assert side == pytest.approx({2: 2.5, 30: 9, 300: 9}[classes]), "many classes fit on a page"
    figure_png(made)


def test_the_classes_of_a_thousand_are_folded_away_behind_the_worst() -> None:
    classes = [ClassMeasure(f"class {k}", 4, k / 1000, None, None, 0) for k in range(1000)]
    table, folded = class_tables(classes)
    assert isinstance(table, Table)
    assert isinstance(folded, Details)
    (rest,) = folded.elements
    assert isinstance(rest, Table)
    assert [row[0] for row in (*table.rows, *rest.rows)] == [one.name for one in classes]
    assert folded.summary == f"The other {1000 - len(table.rows)} classes"
    assert len(class_tables(classes[:30])) == 1


def test_the_report_is_next_to_the_run(tmp_path: Path) -> None:
    assert default_out(str(tmp_path), "val") == tmp_path / "evaluation-val"
    assert default_out("rn26-embed/cifar10", "test") == Path("evaluation/rn26-embed-cifar10-test")
