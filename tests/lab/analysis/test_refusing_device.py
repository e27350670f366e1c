"""The analysis runs on a GPU, where torch refuses some operations if only deterministic ones are allowed."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.datasets import store_world
from support.features import save_untrained
from support.refusing_device import refusing_device

from tembed.lab.analysis.features import extract_features
from tembed.lab.analysis.knock_outs import trained_knock_outs
from tembed.lab.analysis.units import measure_units
from tembed.lab.analysis.untrained import untrained
from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.loading import load
from tembed.trained.determinism import reproducible
from tembed.trained.weights_file import AnyNetwork
from tembed.trained.weights_file import load as load_network


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    root = tmp_path_factory.mktemp("data")
    store_world(root, "dots", 100, 8)
    return load("dots", root=root).test


@pytest.fixture
def network(images: ImageSet, tmp_path: Path) -> AnyNetwork:
    return load_network(save_untrained(tmp_path / "w.safetensors", "rn26-embed", "dots", images.classes, 8))


def test_the_device_refuses_what_cuda_refuses() -> None:
    scores, labels = torch.randn(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64)
    with refusing_device() as device:
        there = F.cross_entropy(scores.to(device), labels.to(device))
        assert there.device == device
        torch.testing.assert_close(there.cpu(), F.cross_entropy(scores, labels))
        with reproducible("cpu"), pytest.raises(RuntimeError, match=r"nll_loss2d.* deterministic"):
            F.cross_entropy(scores.to(device), labels.to(device))


def mean_value(network: AnyNetwork, images: ImageSet) -> float:
    return float(untrained(network, images, 0).block.values.weight.detach().cpu().abs().mean())


MEASURES: dict[str, Callable[[AnyNetwork, ImageSet], Any]] = {
    "knock-outs": lambda network, images: trained_knock_outs(network, images).accuracy,
    "units": lambda network, images: [float(unit.points.eta.mean()) for unit in measure_units(network, images)],
    "untrained": mean_value,
    "features": lambda network, images: float(extract_features(network, images).logits.mean()),
}


@pytest.mark.parametrize("name", MEASURES)
def test_the_analysis_measures_the_same_on_a_device_that_refuses(
    name: str, network: AnyNetwork, images: ImageSet
) -> None:
    measure = MEASURES[name]
    expected = measure(copy.deepcopy(network), images)
    with refusing_device() as device:
        found = measure(network.to(device), images)
        assert next(network.parameters()).device == device
    assert found == pytest.approx(expected, rel=1e-5)
