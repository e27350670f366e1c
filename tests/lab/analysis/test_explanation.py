"""Explanations: where a patch lies on the photograph, what head and patches say, and the pictures of both."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.features import save_untrained
from support.texts import unreadable

import tembed
from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.images.image_files import fitted
from tembed.images.pixels import normalised
from tembed.lab.analysis.attributions import ATTRIBUTIONS
from tembed.lab.analysis.effective_fields import EffectiveField, Window, WindowShare
from tembed.lab.analysis.explaining import (
    HOTTEST_ACTIVATION,
    HOTTEST_GRADIENT,
    AnswerMaps,
    Explanation,
    each_explanation,
    explain,
)
from tembed.lab.analysis.explanation_files import write_explanations
from tembed.lab.analysis.figures import figure, figure_png
from tembed.lab.analysis.heat_map import FADED, overlay, patch_centres, smooth_map
from tembed.lab.training.recipe import recipe_of
from tembed.lab.training.run import Run
from tembed.models.registry import create_model
from tembed.trained.checksummed import checksum
from tembed.trained.weights_file import load as load_network

NAMES = ("plane", "car", "bird", "cat", "$x_$", "dog", "Tibetan mastiff", "Würstchen", "犬", "a very long name " * 4)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained(tmp_path_factory.mktemp("w") / "w.safetensors", "rn26-embed", "tiny", NAMES, 16)


def made(scores: np.ndarray, head: int = 0, photo: tuple[int, int] = (24, 40)) -> Explanation:
    """An explanation with these scores ``(h, w, C)``, whose network got the centre of the photograph."""
    side = min(photo)
    left, top = (photo[1] - side) / 2, (photo[0] - side) / 2
    rng = np.random.default_rng(0)
    classes = scores.shape[2]
    return Explanation(
        name="a.jpg",
        classes=tuple(f"class {k}" for k in range(classes)),
        photo=rng.integers(0, 256, (*photo, 3), np.uint8),
        box=(left, top, left + side, top + side),
        image=rng.integers(0, 256, (16, 16, 3), np.uint8),
        patch_probabilities=scores.astype(np.float32),
        entropy=np.zeros(scores.shape[:2], np.float32),
        probabilities=np.eye(classes, dtype=np.float32)[head],
        window=(2, 2),
    )


# --- heat maps


@pytest.mark.parametrize(("cells", "window"), [(8, 4), (8, 3), (5, 2), (11, 5), (3, 9), (1, 1)])
def test_a_patch_centre_is_the_mean_of_the_cells_that_it_covers(cells: int, window: int) -> None:
    for index, centre in enumerate(patch_centres(cells, window)):
        covered = [i for i in range(index - (window - 1) // 2, index + window // 2 + 1) if 0 <= i < cells]
        assert centre == pytest.approx(np.mean(covered) + 0.5)


def test_a_heat_map_has_the_value_of_each_patch_at_its_centre() -> None:
    """Rows and columns differ in number, window, scale and offset, so that no two can be exchanged."""
    values = np.random.default_rng(1).random((4, 6)).astype(np.float32)
    box, shape = (30.0, 10.0, 510.0, 210.0), (230, 520)  # a cell is 50 pixels high and 80 wide
    heat = smooth_map(values, (3, 2), box, shape)
    assert heat.shape == shape
    for row, y in enumerate(patch_centres(4, 3)):
        for column, x in enumerate(patch_centres(6, 2)):
            at = heat[round(10 + y * 50 - 0.5), round(30 + x * 80 - 0.5)]
            assert at == pytest.approx(values[row, column], abs=0.03)
    inside = heat[10:210, 30:510]
    assert np.isnan(heat).sum() == heat.size - inside.size
    assert values.min() - 1e-6 <= inside.min() <= inside.max() <= values.max() + 1e-6


def test_a_window_larger_than_the_map_gives_a_constant_map() -> None:
    heat = smooth_map(np.array([[0.2, 0.4]], np.float32), (5, 5), (0, 0, 8, 4), (4, 8))
    np.testing.assert_allclose(heat, 0.3, rtol=1e-6)


def test_an_overlay_fades_what_the_network_did_not_see() -> None:
    photo = np.random.default_rng(0).integers(0, 256, (10, 20, 3), np.uint8)
    heat = np.full((10, 20), np.nan, np.float32)
    heat[:, 5:15] = np.linspace(0, 1, 10)[:, None]
    shown = overlay(photo, heat, 1.0)
    np.testing.assert_allclose(shown[:, :5], (1 - FADED) * photo[:, :5] + FADED * 255, atol=0.51)
    distance = np.abs(shown[:, 5:15].astype(float) - photo[:, 5:15]).mean((1, 2))
    assert distance[-1] > distance[0], "hot places are more opaque than cold ones"
    black, hottest = np.array([0, 0, 4]), np.array([252, 255, 164])  # the ends of inferno
    np.testing.assert_allclose(shown[0, 5], 0.75 * photo[0, 5] + 0.25 * black, atol=1.5)
    np.testing.assert_allclose(shown[9, 5], 0.25 * photo[9, 5] + 0.75 * hottest, atol=1.5)


def test_an_explanation_overlays_the_photograph_in_its_own_size() -> None:
    scores = np.zeros((2, 2, 3))
    scores[..., 1], scores[1, 1] = 1, (0, 0, 1)
    one = made(scores, head=1)
    assert one.overlay().shape == (24, 40, 3)
    heat = one.heat("class 2")
    assert np.isnan(heat[:, :8]).all()
    assert np.nanargmax(heat) >= 12 * 40, "the patch of class 2 is in the lower half"
    np.testing.assert_array_equal(one.heat(), one.heat("class 1"))
    with pytest.raises(TembedError, match="'zebra' is not a class"):
        one.heat("zebra")


def answered(one: Explanation, *, maps: np.ndarray) -> Explanation:
    """The same explanation with a map of the answer for each class: ``(C, S, S)``."""
    return replace(one, answer_maps=AnswerMaps("softmax x gradient", lambda label: maps[label]))


def test_a_heat_map_is_the_map_of_the_answer_if_there_is_one() -> None:
    rng = np.random.default_rng(0)
    plain, maps = made(rng.dirichlet(np.ones(3), (4, 4)), head=1), rng.normal(5, 10, (3, 16, 16)).astype(np.float32)
    one = answered(plain, maps=maps)
    np.testing.assert_array_equal(one.heat("class 2"), smooth_map(maps[2], (1, 1), one.box, (24, 40)))
    np.testing.assert_array_equal(one.heat(), smooth_map(maps[1], (1, 1), one.box, (24, 40)))
    assert one.map_name == "softmax x gradient (explains the answer)"
    assert "explains their vote" in plain.map_name


def test_explain_draws_the_map_that_was_judged(weights: Path) -> None:
    """On an image of the network's own size, the heat map of each class is that of the attribution to the bit."""
    pixels = np.random.default_rng(2).integers(0, 256, (16, 16, 3), np.uint8)
    network = load_network(weights)
    (one,) = explain(network, [pixels])
    mean, std = network.description.normalisation
    x = normalised(pixels[None], mean, std)
    for label in (0, 3):
        expected = ATTRIBUTIONS["softmax x gradient"](network, x, torch.tensor([label]))[0]
        np.testing.assert_allclose(one.heat(NAMES[label]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("best", "hottest"), [("softmax x cam", HOTTEST_ACTIVATION), ("softmax x gradient", HOTTEST_GRADIENT)]
)
def test_the_colour_scale_is_that_of_the_map(
    best: str, hottest: float, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activations, which networks with a frozen backbone have, are a tenth of gradients: on their scale all is dark."""
    monkeypatch.setattr("tembed.lab.analysis.explaining.best_attribution", lambda network: ATTRIBUTIONS[best])
    (one,) = explain(load_network(weights), [np.zeros((16, 16, 3), np.uint8)])
    assert (one.map_name.split(" (")[0], one.hottest) == (best, hottest)


def test_all_photographs_have_one_colour_scale() -> None:
    """A photograph whose heat is a quarter as high has the colours of half the scale, which goes by the root."""
    plain = made(np.full((4, 4, 2), 0.5))
    strong, weak = (
        answered(plain, maps=np.full((2, 16, 16), HOTTEST_GRADIENT * share, np.float32)) for share in (1.0, 0.25)
    )
    middle, end = weak.overlay()[12, 20], strong.overlay()[12, 20]
    for shown, share in ((middle, 0.5), (end, 1.0)):
        heat = np.full((24, 40), share, np.float32)
        np.testing.assert_array_equal(shown, overlay(plain.photo, heat, 1.0)[12, 20])
    bars = [one.figure().axes[3].get_ylim() for one in (strong, weak)]
    assert bars[0] == bars[1] == (0, HOTTEST_GRADIENT)


# --- head and patches


def test_a_disagreement_of_head_and_patches_is_stated() -> None:
    scores = np.zeros((2, 2, 3))
    scores[0, 0], scores[0, 1], scores[1, 0], scores[1, 1] = (1, 0, 0), (0, 1, 0), (0, 1, 0), (0, 0.8, 0.2)
    one = made(scores, head=2)
    assert not one.agree
    assert one.patch_prediction == "class 1"
    assert one.verdict == "class 2 1.00; the patches disagree: class 1 (0.70)"
    assert one.leading == [2, 1, 0], "the head's class comes first"
    assert "the patches disagree" in repr(one)
    texts = {text.get_text() for text in one.figure().texts}
    assert "Head and patches disagree: the patches see class 1 (0.70 on average)." in texts
    assert one.words().splitlines()[2] == "1,2: 1.0 class 1"
    counts = [text.get_text() for text in one.figure().axes[-1].texts]
    assert counts == ["best in 0 of 4 patches", "best in 3 of 4 patches", "best in 1 of 4 patches"]
    agreeing = made(scores, head=1)
    assert agreeing.agree
    assert agreeing.verdict == "class 1 1.00; the patches agree (0.70)"


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 2, 6, 25, 1000])
@pytest.mark.parametrize("photo", [(24, 40), (1100, 300)])
def test_a_figure_can_be_drawn_for_any_number_of_classes(classes: int, photo: tuple[int, int]) -> None:
    scores = np.random.default_rng(0).dirichlet(np.full(classes, 0.1), (4, 4))
    one = made(scores, head=classes - 1, photo=photo)
    one = replace(one, classes=tuple(f"a long class name that goes on, number {k}" for k in range(classes)))
    drawn = one.figure()
    assert f"a.jpg, {photo[1]}x{photo[0]} pixels" in drawn.texts[1].get_text()
    names = [label.get_text() for axis in drawn.axes for label in axis.get_yticklabels()]
    assert sum(name.startswith("a long class") for name in names) == min(8, classes)


LONG_NAMES = (
    "miniature poodle (café au lait)",
    "チベタン・マスティフの子犬たち",
    "Tibetan mastiff and its puppies",
    "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW",
    "three_toed sloth_$cost_of_living",
    "cat",
)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "photo"), [(0, (40, 40)), (1, (84, 40)), (2, (40, 300)), (3, (40, 70))])
def test_no_text_of_a_figure_covers_another(head: int, photo: tuple[int, int]) -> None:
    scores = np.random.default_rng(0).dirichlet(np.ones(6), (8, 8))
    one = replace(made(scores, head, photo), classes=LONG_NAMES, name="a_photograph_of_the_valley_" * 3 + "07.jpg")
    one = answered(one, maps=np.random.default_rng(1).normal(5, 5, (6, 16, 16)).astype(np.float32))
    drawn = one.figure()
    assert unreadable(drawn) == []
    assert "07.jpg, " in drawn.texts[1].get_text(), "the end of a file name tells it from others"
    if head == 0:
        assert drawn.texts[0].get_text() == "miniature poodle (café au lait)  1.00"


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "reach"), [(3, 1.0), (60, 0.02), (1000, 0.01)])
def test_the_axis_of_the_bars_fits_low_probabilities(classes: int, reach: float) -> None:
    one = made(np.full((4, 4, classes), 1 / classes))
    one = replace(one, probabilities=np.full(classes, 1 / classes, np.float32))
    bars = one.figure().axes[-1]
    assert bars.get_xticks()[-1] == pytest.approx(reach)
    assert all(bar.get_width() == pytest.approx(1 / classes) for bar in bars.patches)
    assert unreadable(bars.figure) == []
    (entropy,) = [axis for axis in bars.figure.axes if axis.get_title().startswith("entropy")]
    assert all(side.get_visible() for side in entropy.spines.values()), "a white map is seen by its frame"


def test_the_dashed_patch_is_in_the_middle_of_the_map() -> None:
    """A map of 4 x 6 cells on 24 x 24 pixels, from column 8 of the photograph: the patch at row 2 and column 3."""
    one = made(np.random.default_rng(0).dirichlet(np.ones(3), (4, 6)))
    axis = one.figure().axes[0]
    pixel = axis.get_xlim()[1] / 40  # the photograph is drawn larger than it is
    (dashed,) = [line for line in axis.lines if line.get_linestyle() == "--"]
    assert sorted(set(dashed.get_xdata() / pixel)) == pytest.approx([8 + 12, 8 + 20], abs=0.5)  # a pixel of the input
    assert sorted(set(dashed.get_ydata() / pixel)) == pytest.approx([12, 24], abs=0.5)


def test_the_photographs_of_a_panorama_are_drawn_large() -> None:
    """Side by side, four pictures of 300 x 40 pixels would be half an inch high."""
    drawn = made(np.random.default_rng(0).dirichlet(np.ones(3), (8, 8)), photo=(40, 300)).figure()
    boxes = [axis.get_window_extent() for axis in drawn.axes[:4]]
    assert all(box.width > 0.4 * drawn.bbox.width for box in boxes)
    assert all(box.width / box.height == pytest.approx(300 / 40, rel=0.02) for box in boxes)


def test_names_in_any_script_are_drawn_without_warnings(weights: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (one,) = explain(weights, np.zeros((16, 16, 3), np.uint8))
        figure_png(one.figure())


# --- what can be explained


def test_images_of_any_size_and_kind_are_explained(weights: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
    wide = Image.fromarray(pixels)
    wide.save(tmp_path / "wide.png")
    Image.new("L", (16, 16), 90).save(tmp_path / "exact.png")
    model = tembed.load(weights)
    found = explain(model, [tmp_path / "wide.png", wide, pixels, str(tmp_path / "exact.png")])
    assert [one.name for one in found] == ["wide.png", "image-2", "image-3", "exact.png"]
    for one in found[:3]:
        assert one.note == "40x24 pixels, resized and cropped to its centre: 16x16"
        assert one.box == (8, 0, 32, 24)
        np.testing.assert_array_equal(one.photo, pixels)
        np.testing.assert_array_equal(one.probabilities, found[0].probabilities)
    assert found[3].note == "16x16 pixels"
    one = found[0]
    assert one.patch_probabilities.shape == (4, 4, 10)
    np.testing.assert_allclose(one.patch_probabilities.sum(-1), 1, atol=1e-5)
    output = model((torch.tensor(one.image).permute(2, 0, 1)[None] / 255 - 0.5) / 0.25)
    np.testing.assert_allclose(one.probabilities, output.logits.softmax(1)[0].detach(), atol=1e-4)
    best = int(one.patch_probabilities[1, 2].argmax())
    assert one.mixture(1, 2).startswith(f"{one.patch_probabilities[1, 2].max():.1f} {one.classes[best]}")
    assert len(explain(load_network(weights), tmp_path)) == 2, "a folder stands for its images"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((8, 8, 3)), "image-1 is an array of float64: give uint8"),
        (np.zeros((3, 8, 8), np.uint8), r"shape \(3, 8, 8\): give \(H, W, 3\)"),
        ([torch.zeros(3, 8, 8)], "image-1 is a Tensor: give a path"),
        ("nowhere.png", "nowhere.png: it cannot be read"),
        ("*.nothing", "no file matches"),
        (Image.new("F", (8, 8)), "image-1: floating-point pixels"),
    ],
)
def test_what_is_no_picture_is_refused(weights: Path, given: Any, message: str) -> None:
    with pytest.raises(TembedError, match=message):
        explain(weights, given)


def test_a_model_that_was_not_loaded_is_refused() -> None:
    with pytest.raises(TembedError, match=r"a model from tembed\.load"):
        explain(create_model("rn26-embed"), [])
    with pytest.raises(TembedError, match="`accelerator` is 'tpu'"):
        explain("rn26-embed/cifar10", [], accelerator="tpu")


def test_an_open_run_is_a_source(weights: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    run.assign(recipe_of(load_network(weights)))
    run.best_path.write_bytes(weights.read_bytes())
    pixels = np.zeros((16, 16, 3), np.uint8)
    assert explain(run, [pixels])[0].verdict == explain(weights, [pixels])[0].verdict


# --- files


def test_no_picture_of_an_explanation_replaces_another(tmp_path: Path) -> None:
    """The second ``a`` must not take the name that ``a-2`` has, and no overlay that of a picture."""
    names = ("a.png", "a-2.png", "a.jpg", "a.gif", "a-overlay.png")
    found: list[Any] = [
        SimpleNamespace(name=name, figure=lambda: figure(1, 1), overlay=lambda: np.zeros((2, 2, 3), np.uint8))
        for name in names
    ]
    paths = [path.name for _, path in write_explanations(found, tmp_path)]
    assert paths == ["a.png", "a-2.png", "a-3.png", "a-4.png", "a-overlay.png"]
    assert {path.name for path in tmp_path.iterdir()} == set(paths)
    paths = [path.name for _, path in write_explanations(found, tmp_path / "both", overlays=True)]
    assert paths == ["a.png", "a-2.png", "a-3.png", "a-4.png", "a-overlay-2.png"]
    assert len(list((tmp_path / "both").iterdir())) == 10


def test_the_command_skips_broken_files_and_says_so(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in/deep").mkdir(parents=True)
    Image.new("RGB", (20, 30), (9, 99, 199)).save("in/deep/good.jpg")
    Path("in/bad.jpg").write_bytes(b"no image")
    assert main(["explain", str(weights), "in", "--overlays", "--words"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("good.jpg (20x30 pixels, resized and cropped to its centre: 16x16): ")
    assert said.err == "skipped in/bad.jpg: not an image in a known format\n"
    Path("in/other").mkdir()
    Path("in/other/good.jpg").write_bytes(Path("in/deep/good.jpg").read_bytes())
    names = [one.name for one in explain(weights, ["in/deep", "in/other"])]
    assert names == ["deep/good.jpg", "other/good.jpg"]
    with Image.open("explained/good-overlay.png") as picture:
        assert picture.size == (20, 30)
    assert len(Path("explained/good.txt").read_text("utf-8").splitlines()) == 17


def test_an_explanation_says_how_much_of_the_score_comes_from_a_patch() -> None:
    """Patches of 8 pixels, whose network got 16; they and the window of half the evidence are outlined at scale."""
    windows = (WindowShare((8, 8), 0, 0.4, 0.3, 0.5, 0.05), WindowShare((12, 12), 2, 0.7, 0.6, 0.8, 0.02))
    field = EffectiveField((8, 8), (19, 19), windows, 2, 3, 3, "")
    cases: tuple[tuple[Window, str, tuple[int, ...]], ...] = (
        ("nominal", "dashed: patch, 40% of its score; dotted: 70%", (0, 2)),
        ("effective", "dashed: patch, 70% of its score", (2,)),
    )
    for shown, title, margins in cases:
        one = replace(made(np.ones((4, 4, 3))), effective_field=field, shown=shown)
        drawn = one.figure()
        assert field.note in {text.get_text() for text in drawn.texts}
        axis = drawn.axes[0]
        assert axis.get_title() == title
        scale = 800 / 40  # the figure's photograph is 800 pixels wide, and the network got the middle 24 of 40
        for margin, line in zip(margins, axis.lines[3::2], strict=True):  # after the box; each has a white line below
            left, right = (scale * (8 + 24 / 16 * at) for at in (8 - margin, 16 + margin))
            assert (min(line.get_xdata()), max(line.get_xdata())) == pytest.approx((left, right))
        assert one.words().startswith(f"# {field.note}\n")
    assert "was not measured" in made(np.ones((4, 4, 3))).evidence


def test_the_window_of_half_the_evidence_is_read_beside_the_weights(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(weights, "w.safetensors")
    Image.new("RGB", (16, 16), (9, 99, 199)).save("a.png")
    arguments = ["explain", "w.safetensors", "a.png", "--window", "effective", "--words"]
    assert main(arguments) == 2
    assert "w.safetensors was not measured: run tembed analyze" in capsys.readouterr().err
    window = WindowShare((8, 8), 0, 0.4, 0.3, 0.5, 0.05)
    field = EffectiveField((8, 8), None, (window,), 2, 3, 3, checksum(load_network(weights).state_dict()))
    Path("w.effective_field.json").write_text(json.dumps(field.to_json()))
    assert main(arguments) == 0
    assert Path("explained/a.txt").read_text().startswith("# A patch is 8 px wide, and 40% of its score [30%, 50%]")


def test_explanations_are_made_one_at_a_time(weights: Path) -> None:
    """So that a folder of large photographs fits into memory."""
    found = each_explanation(weights, [np.zeros((16, 16, 3), np.uint8), "nowhere.png"])
    assert next(found).name == "image-1"
    with pytest.raises(TembedError, match="nowhere"):
        next(found)


@pytest.mark.parametrize(
    ("fit", "box", "note"),
    [
        ("crop", (8, 0, 32, 24), "resized and cropped to its centre"),
        ("pad", (0, -8, 40, 32), "resized and padded"),
        ("stretch", (0, 0, 40, 24), "stretched"),
    ],
)
def test_a_photograph_becomes_a_square_as_the_training_images_did(
    weights: Path, fit: str, box: tuple[int, ...], note: str
) -> None:
    network = load_network(weights)
    network.description = replace(network.description, fit=fit)
    pixels = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
    (one,) = explain(network, pixels)
    assert one.box == box
    assert one.note == f"40x24 pixels, {note}: 16x16"
    expected = fitted(Image.fromarray(pixels), 16, network.description.fit)
    np.testing.assert_array_equal(one.image, np.asarray(expected))
    inside = ~np.isnan(one.heat())
    assert inside.all() == (fit != "crop")
    one.figure()
    np.testing.assert_allclose(tembed.predict(network, pixels)[0].probabilities, one.probabilities, atol=1e-5)
