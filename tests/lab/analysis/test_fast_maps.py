"""Fast maps, and what a comparison with a baseline says about it."""

from pathlib import Path

import numpy as np
import pytest
from support.features import save_untrained
from support.progress import Said

from tembed.lab.analysis import knock_outs as signs
from tembed.lab.analysis import maps, sampling
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.data.loading import load
from tembed.lab.report.analysis_report import FIRST_LOOK, introduction
from tembed.lab.report.document import Text


@pytest.fixture(autouse=True)
def _quick(quick_analysis: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "EARLY", 20)
    monkeypatch.setattr(maps, "LATE", 20)


def test_a_fast_map_keeps_every_point_beside_its_neighbours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three far clusters: t-SNE sees a part of the points, and each other point lands in its own cluster."""
    rng = np.random.default_rng(0)
    label = np.arange(900) % 3
    points = (100 * np.eye(3)[label] + rng.standard_normal((900, 3))).astype(np.float32)
    monkeypatch.setattr(maps, "FAST_POINTS", 300)
    seen: list[int] = []
    whole = maps._tsne
    monkeypatch.setattr(maps, "_tsne", lambda points, *rest: (seen.append(len(points)), whole(points, *rest))[1])
    found = maps.map_all({"a": points}, tmp_path, fast=True)["a"]
    assert seen == [300]
    assert found.shape == (900, 2)
    centres = np.stack([found[label == k].mean(0) for k in range(3)])
    nearest = np.linalg.norm(found[:, None] - centres[None], axis=-1).argmin(1)
    np.testing.assert_array_equal(nearest, label)
    np.testing.assert_array_equal(maps.map_all({"a": points}, tmp_path, fast=True)["a"], found)
    assert seen == [300], "the map is cached"
    maps.map_all({"a": points}, tmp_path)
    assert seen == [300, 900], "and is not taken for a whole one"


def test_a_fast_map_fits_the_class_vectors_with_the_patches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((900, 3)).astype(np.float32)
    monkeypatch.setattr(maps, "FAST_POINTS", 300)
    seen: list[np.ndarray] = []
    whole = maps._tsne
    monkeypatch.setattr(maps, "_tsne", lambda points, *rest: (seen.append(points), whole(points, *rest))[1])
    found = maps.map_all({"a": points}, tmp_path, fast=True, fitted=11)["a"]
    assert len(seen[0]) == 311
    np.testing.assert_array_equal(seen[0][-11:], points[-11:])
    assert len(np.unique(seen[0], axis=0)) == 311, "no point is drawn twice"
    np.testing.assert_array_equal(maps.map_all({"a": points}, None, fast=True, fitted=11)["a"], found)
    maps.map_all({"a": points}, tmp_path, fast=True)
    assert len(seen) == 3, "the cached map with fitted points is not taken for one without"


def test_a_first_look_takes_as_many_images_and_points_as_the_docs_say() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "analysis.md").read_text("utf-8")
    for number, text in (
        (sampling.FAST_IMAGES, "uses {} test images in total"),
        (signs.IMAGES_FAST, "and {} images for the vital signs"),
        (maps.FAST_POINTS, "t-SNE gets {:,} patches"),
    ):
        assert text.format(number) in " ".join(docs.split())


@pytest.mark.usefixtures("use_worlds")
def test_a_first_look_uses_few_images_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "FAST_IMAGES", 20)
    monkeypatch.setattr(signs, "IMAGES_FAST", 7)
    source = tmp_path / "w.safetensors"
    save_untrained(source, "rn26-embed", "tiny", load("tiny").test.classes, 16)
    whole, look = analyze(source), analyze(source, fast_maps=True)
    assert len(look.sample) == 20 < len(whole.sample)
    assert len(analyze(source, fast_maps=True, images_per_class=3).sample) == 30, "a given number counts"
    assert look.knock_outs.images == 7
    assert whole.knock_outs.images == len(load("tiny").test)
    assert Text(FIRST_LOOK) in introduction(look)
    assert Text(FIRST_LOOK) not in introduction(whole)


@pytest.mark.usefixtures("use_worlds")
def test_a_baseline_with_the_block_is_noted_and_the_panel_names_it(tmp_path: Path) -> None:
    classes = load("tiny").test.classes
    for model in ("rn26", "rn26-embed"):
        save_untrained(tmp_path / f"{model}.safetensors", model, "tiny", classes, 16)
    source, shown = tmp_path / "rn26-embed.safetensors", Said()
    analyze(source, baseline=tmp_path / "rn26.safetensors", images_per_class=2, progress=shown)
    assert not any("has the block too" in line for line in shown.lines)
    found = analyze(source, baseline=source, images_per_class=2, progress=shown, accelerator="cpu")
    assert f"note: the baseline {source} is rn26-embed, which has the block too" in shown.lines
    assert repr(found) == f"Analysis({source}, rn26-embed on tiny: 320 points of 20 images)"
    found.__dict__["geometry_maps"] = {"baseline": np.random.default_rng(0).random((320, 2), np.float32)}
    assert found.geometry().axes[0].get_title() == "baseline (rn26-embed.safetensors), input of stage 4"
