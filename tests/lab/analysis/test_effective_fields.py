"""How much of a patch's score comes from inside a window, on networks where the answer is known."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tembed.block import DeepSupervision
from tembed.common.errors import TembedError
from tembed.lab.analysis import effective_fields as module
from tembed.lab.analysis.analysis_folder import stored
from tembed.lab.analysis.effective_fields import (
    EffectiveField,
    PatchView,
    WindowShare,
    effective_field,
    read_effective_field,
)
from tembed.lab.data.image_set import ImageSet
from tembed.models.description import Description
from tembed.models.network import Network
from tembed.models.registry import create_model


def noise(count: int, side: int) -> ImageSet:
    """Images whose pixels are independent."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
    return ImageSet(pixels, torch.arange(count) % 3, ("a", "b", "c"), torch.arange(count))


def described(network: Network) -> Network:
    network.description = Description("rn26-aux", mean=(0.5, 0.5, 0.5), std=(0.3, 0.3, 0.3), classes=("a", "b", "c"))
    return network


def linear(kernel: int) -> Network:
    """Scores that are sums over ``kernel`` x ``kernel`` pixels, one patch per pixel."""
    stem = nn.Conv2d(3, 4, kernel, padding=kernel // 2)
    stages = [nn.Identity() for _ in range(3)]
    network = Network(stem, stages, DeepSupervision(4, 3, window=1), nn.Identity(), 4, 3)
    with torch.no_grad():
        stem.weight[:] = torch.randn(4, 3, 1, 1, generator=torch.Generator().manual_seed(0))
    return described(network)


def test_all_of_the_score_of_a_1x1_network_comes_from_its_pixel() -> None:
    found = effective_field(linear(1), noise(20, 8))
    assert found.patch == found.field == (1, 1)
    (only,) = found.windows
    assert (only.size, only.inside, only.low, only.high) == ((1, 1), 1, 1, 1)
    assert found.view().caption == "1 px shown; 100% of the score comes from here"


def test_the_share_of_a_sum_of_independent_pixels_is_the_share_of_its_pixels() -> None:
    """5x5 equal weights: 1 of 25 pixels inside a window of 1, 9 of 25 in one of 3, all in one of 5."""
    found = effective_field(linear(5), noise(60, 12), positions=40)
    assert found.field == (5, 5)
    assert [one.size for one in found.windows] == [(1, 1), (3, 3), (5, 5)]
    for one, share in zip(found.windows, (1 / 25, 9 / 25, 1), strict=True):
        assert one.inside == pytest.approx(share, abs=0.08)
        assert one.low <= share <= one.high + 0.02
    assert found.windows[-1].inside == found.windows[-1].high == 1
    assert found.windows[-1].seam < 1e-12, "the edge is outside the field"
    assert found.windows[1].seam > 0
    assert (found.half.size, found.nominal.size) == ((5, 5), (1, 1))
    assert found.view().caption.endswith("from here; 5 px hold 100%")
    assert found.view("effective") == PatchView(2, None, "5 px shown; 100% of the score comes from here")


def test_a_window_as_large_as_the_field_holds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALL", 2)
    torch.manual_seed(0)
    network = described(create_model("rn26-embed-local", 3))
    found = effective_field(network, noise(6, 32), positions=2, insides=3)
    assert found.field == (19, 19)
    assert found.patch == (8, 8)
    covering = [one for one in found.windows if one.margin >= 7]
    assert covering
    assert all(one.inside == pytest.approx(1) and one.seam < 1e-9 for one in covering)
    assert found.nominal.inside < 0.9


def test_it_is_stored_with_its_weights(tmp_path: Path) -> None:
    network = linear(3)
    found = effective_field(network, noise(8, 8), positions=3)
    assert read_effective_field(json.loads(json.dumps(found.to_json()))) == found
    (tmp_path / "one.json").write_text(json.dumps(found.to_json()))
    assert stored(tmp_path / "one.json", network) == found
    assert stored(tmp_path / "one.json", linear(5)) is None, "other weights"
    assert stored(tmp_path / "none.json", network) is None
    (tmp_path / "one.json").write_text('{"windows": 3}')
    assert stored(tmp_path / "one.json", network) is None


def made(*shares: float) -> EffectiveField:
    """Windows of 8, 12, 16 and 20 pixels around patches of 16."""
    sizes = ((8, -4), (12, -2), (16, 0), (20, 2))
    windows = [
        WindowShare((side, side), margin, share, share, share, 0.0)
        for (side, margin), share in zip(sizes, shares, strict=True)
    ]
    return EffectiveField((16, 16), (43, 43), tuple(windows), 2, 3, 3, "")


def test_half_of_the_evidence_is_outlined_or_named() -> None:
    assert made(0.1, 0.6, 0.8, 1).view() == PatchView(
        0, -2, "16 px shown; 80% of the score comes from here, 60% from the outlined 12 px"
    )
    assert made(0.1, 0.2, 0.4, 0.7).view().caption == "16 px shown; 40% of the score comes from here; 20 px hold 70%"
    assert made(0.1, 0.2, 0.4, 0.7).view("effective").margin == 2
    assert made(0.1, 0.2, 0.5, 0.7).view() == PatchView(0, None, "16 px shown; 50% of the score comes from here")
    picture = made(0.1, 0.6, 0.8, 1).view().outlined(np.full((16, 16, 3), 99, np.uint8), 96)
    rows = np.flatnonzero((np.asarray(picture)[:, 48] == 255).all(-1))
    assert rows.tolist() == [12, 83], "2 of 16 pixels from each side"


def test_errors_are_named() -> None:
    with pytest.raises(TembedError, match="rn26 has no patch scores"):
        effective_field(create_model("rn26", 3), noise(8, 16))
    with pytest.raises(TembedError, match="needs 4 or more images, and there are 3"):
        effective_field(linear(1), noise(3, 8))
