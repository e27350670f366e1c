"""What is measured in a unit, against plain loops, closed forms, and units that were made to be exact."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.datasets import store_world
from support.features import save_untrained
from torch import nn

from tembed.lab.analysis.units import BINS, BLOCK, HIGHEST, LIMIT, SIDE, TOLERANCE, measure_points, measure_units
from tembed.lab.data.loading import load
from tembed.trained.weights_file import load as load_network


def norm(kernels: int, seed: int = 0) -> nn.BatchNorm2d:
    """A normalisation with statistics, scales of both signs, and shifts."""
    torch.manual_seed(seed)
    bn = nn.BatchNorm2d(kernels).eval()
    nn.init.normal_(bn.weight)
    nn.init.normal_(bn.bias)
    bn.running_mean = torch.randn(kernels)
    bn.running_var = torch.rand(kernels) + 0.5
    return bn


def test_the_numbers_of_a_pixel_are_those_of_a_plain_loop() -> None:
    bn, a = norm(7), torch.randn(3, 7, 9, 5) * 2
    found = measure_points(bn, a)
    rows, columns = [1, 3, 5, 7], [0, 1, 3, 4]
    with torch.no_grad():
        x = bn(a)
    assert bn.running_mean is not None
    assert bn.running_var is not None
    known = (bn.running_mean, bn.bias.detach(), bn.running_var, bn.weight.detach())
    margins = [
        mean - shift * math.sqrt(var + bn.eps) / scale
        for mean, shift, var, scale in zip(*(one.tolist() for one in known), strict=True)
    ]
    for n in range(3):
        for s, (i, j) in enumerate((i, j) for i in rows for j in columns):
            pixel, normal = a[n, :, i, j].tolist(), x[n, :, i, j].tolist()
            active = [k for k in range(7) if normal[k] > 0]
            pairs = [(k, m) for k in active for m in active if pixel[k] > pixel[m]]
            above = [value - margin for value, margin in zip(pixel, margins, strict=True)]
            eta = sum(normal[k] for k in active)
            shares = [normal[k] / eta for k in active]
            expected = {
                "matched": bool(active),
                "same": bool(active) and int(np.argmax(pixel)) == int(np.argmax(normal)),
                "chance": 1 / len(active) if active else 0,
                "pairs": len(pairs),
                "ordered": sum(normal[k] > normal[m] for k, m in pairs),
                "margin_same": bool(active) and int(np.argmax(above)) == int(np.argmax(normal)),
                "margin_ordered": sum((above[k] > above[m]) == (normal[k] > normal[m]) for k, m in pairs),
                "active": len(active),
                "accurate": sum(math.exp(normal[k]) * (1 - TOLERANCE) <= 1 + normal[k] for k in active),
                "eta": eta,
                "effective": math.exp(-sum(p * math.log(p) for p in shares)) if active else 0,
                "raw_active": sum(value > 0 for value in pixel),
                "raw_accurate": sum(math.exp(v) * (1 - TOLERANCE) <= 1 + v for v in pixel if v > 0),
                "raw_eta": sum(max(value, 0) for value in pixel),
            }
            ours = {name: found[name][n, s] for name in expected}
            assert ours == pytest.approx({name: float(value) for name, value in expected.items()}, rel=1e-5), (n, s)
    grid = x[:, :, rows][:, :, :, columns]
    counts, _ = np.histogram(grid[grid > 0].clamp(max=HIGHEST).numpy(), BINS, (0, HIGHEST))
    assert abs(np.cumsum(found["histogram"]) - np.cumsum(counts)).max() <= 1  # rounding at the border of a bin


def test_the_limit_is_where_the_approximation_is_off_by_the_tolerance() -> None:
    assert (1 + LIMIT) * math.exp(-LIMIT) == pytest.approx(1 - TOLERANCE, abs=1e-7)


def test_equal_statistics_and_scales_preserve_arg_max_and_order() -> None:
    """BN is then one increasing function for all kernels. A negative scale reverses the order instead."""
    bn = nn.BatchNorm2d(6).eval()
    found = measure_points(bn, torch.randn(50, 6, 4, 4))
    assert found["same"].sum() == found["matched"].sum() > 700
    assert found["ordered"].sum() == found["pairs"].sum() > 0
    nn.init.constant_(bn.weight, -1.0)
    reversed_ = measure_points(bn, torch.randn(50, 6, 4, 4))
    assert reversed_["ordered"].sum() == 0
    assert reversed_["same"].sum() == 0


def test_independent_normal_activations_have_the_closed_forms() -> None:
    """As in an untrained unit: half of the kernels are active, and P(x < LIMIT | x > 0) are accurate."""
    torch.manual_seed(0)
    found = measure_points(nn.BatchNorm2d(40).eval(), torch.randn(300, 40, 4, 4))
    assert found["active"].mean() / 40 == pytest.approx(0.5, abs=0.005)
    accurate = found["accurate"].sum() / found["active"].sum()
    assert accurate == pytest.approx(2 * (stats.norm.cdf(LIMIT) - 0.5), abs=0.005)
    assert found["eta"].mean() == pytest.approx(40 / math.sqrt(2 * math.pi), rel=0.01)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    store_world(root, "tiny", 200, 16)
    return root


@pytest.mark.parametrize(
    ("model", "units", "kernels"),
    [
        ("rn26", 8, [32, 32, 64, 64, 128, 128, 128, 128]),
        ("rn26-embed", 9, [32, 32, 64, 64, 128, 128, 10, 128, 128]),
        ("wrn16", 8, [32, 32, 64, 64, 128, 128, 128, 128]),
        ("dn100", 0, []),
    ],
)
def test_units_are_where_bn_relu_follows_a_3x3_convolution(
    root: Path, tmp_path: Path, model: str, units: int, kernels: list[int]
) -> None:
    images = load("tiny", root=root).test
    network = load_network(save_untrained(tmp_path / "w.safetensors", model, "tiny", images.classes, 16))
    found = measure_units(network, images.subset(torch.arange(7)))
    assert [unit.kernels for unit in found] == kernels
    assert len(found) == units
    for unit in found:
        assert unit.points.eta.shape == (7, SIDE * SIDE)
    if model == "rn26-embed":
        assert [unit.name for unit in found][5:8] == ["stage3.1", BLOCK, "stage4.0"]
    assert not [m for m in network.modules() if m._forward_hooks]


def test_normalisations_of_one_module_are_units_of_their_own(root: Path, tmp_path: Path) -> None:
    """As in VGG: one `nn.Sequential`, several widths, and a map too small for the grid of pixels."""
    images = load("tiny", root=root).test.subset(torch.arange(7))
    path = save_untrained(tmp_path / "w.safetensors", "rn26", "tiny", images.classes, 16)
    widths, layers = (8, 16, 12), [nn.Conv2d(3, 4, 1)]
    for read, written in zip((4, *widths), widths, strict=False):
        layers += [nn.Conv2d(read, written, 3, 2, 1), nn.BatchNorm2d(written), nn.ReLU()]
    network: Any = nn.Sequential(*layers)
    network.description = load_network(path).description
    found = measure_units(network, images)
    assert [(unit.name, unit.kernels) for unit in found] == [("2", 8), ("5", 16), ("8", 12)]
    assert [unit.points.eta.shape for unit in found] == [(7, 16), (7, 16), (7, 4)]


def test_the_activations_of_a_unit_are_those_of_its_convolution(root: Path, tmp_path: Path) -> None:
    images = load("tiny", root=root).train.subset(torch.arange(60))  # two batches
    network = load_network(save_untrained(tmp_path / "w.safetensors", "rn26", "tiny", images.classes, 16))
    seen = []
    unit: nn.Module = network.stage2[1]
    hook = unit.match.register_forward_hook(lambda module, inputs, output: seen.append(output.clone()))
    found = {unit.name: unit for unit in measure_units(network, images)}["stage2.1"]
    hook.remove()
    expected = measure_points(unit.maximizer.bn, torch.cat(seen))
    np.testing.assert_allclose(found.points.eta, expected["eta"], rtol=1e-5)
    np.testing.assert_array_equal(found.points.same, expected["same"])
