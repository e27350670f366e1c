"""The demo reports what came of it, with the parts that patches really show."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from support.datasets import store_world

from tembed.analysis.claims.parts import part_pixels
from tembed.demo.demo import Demo, run_demo
from tembed.demo.evidence import patch_kinds
from tembed.training import Run


def test_the_report_has_the_numbers_of_both_runs(tmp_path: Path) -> None:
    store_world(tmp_path / "datasets", "tiny", 200, 16)
    demo = Demo(epochs=2, train_images=60, data="tiny")
    text = run_demo(demo, tmp_path / "out", root=tmp_path / "datasets")
    assert (tmp_path / "out" / "report.md").read_text() == text
    for model in ("rn26", "rn26-embed"):
        result = Run.open(tmp_path / "out" / model).result
        assert result is not None
        assert f"| {model} | {100 * result['test_accuracy']:.1f} % | 40 |" in text
    assert "one seed each" in text
    with Image.open(tmp_path / "out" / "report.png") as picture:
        assert picture.width >= 640
    assert run_demo(demo, tmp_path / "out", root=tmp_path / "datasets") == text


@pytest.mark.parametrize(("pixels", "kind"), [(0, 0), (7, 0), (8, 1)])
def test_a_patch_shows_a_part_if_its_region_covers_enough_of_it(pixels: int, kind: int) -> None:
    """Patch (2, 3) of an 8x8 map covers rows 4 to 19 and columns 8 to 23 of 32x32 pixels."""
    part_map = torch.zeros(1, 32, 32, dtype=torch.uint8)
    part_map[0, 19, 8 : 8 + pixels] = 1
    own = torch.tensor([False, False, True])
    kinds = patch_kinds(part_pixels(part_map, 2, (8, 8), (4, 4)), own)
    assert kinds[0, 2, 3] == kind
    assert kinds[0, 1, 3] == 0  # ends one row above
    assert kinds[0, 2, 0] == 0
    part_map[0, 4, 8:16] = 2
    assert patch_kinds(part_pixels(part_map, 2, (8, 8), (4, 4)), own)[0, 2, 3] == 2
