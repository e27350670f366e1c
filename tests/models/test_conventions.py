"""The authors' habits as one switch: batch norm, initial weights, projection shortcuts."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tembed
from tembed.common.errors import TembedError
from tembed.maximizers.bn_relu import BNReLU
from tembed.models.resnet import Bottleneck
from tembed.models.wide_resnet import BasicUnit


@pytest.mark.parametrize("name", ["rn26", "rn26-aux", "rn26-1x1", "rn26-embed", "wrn16-embed", "dn100-embed-cat"])
def test_keras_sets_every_normalisation_and_every_initial_weight(name: str) -> None:
    torch.manual_seed(0)
    model = tembed.create_model(name, 7, conventions="keras")
    assert model.description.options == {"conventions": "keras"}
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.01, 1e-3)}
    for module in model.modules():
        if not isinstance(module, nn.Conv2d | nn.Linear):
            continue
        outputs, inputs, *window = module.weight.shape
        bound = math.sqrt(6 / ((inputs + outputs) * math.prod(window)))
        largest = module.weight.abs().max().item()
        assert largest <= bound * (1 + 1e-6)  # single precision
        if module.weight.numel() > 500:
            assert largest > 0.95 * bound, "uniform up to Glorot's bound"
            assert module.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)
        if module.bias is not None:
            assert not module.bias.any()


def test_torch_is_the_default_and_changes_nothing() -> None:
    torch.manual_seed(0)
    usual = tembed.create_model("rn26-embed")
    torch.manual_seed(0)
    named = tembed.create_model("rn26-embed", conventions="torch")
    assert all(torch.equal(a, b) for a, b in zip(usual.parameters(), named.parameters(), strict=True))
    norms = [module for module in usual.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.1, 1e-5)}
    with pytest.raises(TembedError, match="`conventions` is 'jax'; it must be one of torch, keras"):
        tembed.create_model("rn26", conventions="jax")


@pytest.mark.parametrize("name", ["rn26", "wrn16"])
def test_a_projection_of_keras_reads_the_raw_input(name: str) -> None:
    """Each unit written out: with raw projections, and for an identity shortcut as before."""
    torch.manual_seed(0)
    model = tembed.create_model(name, conventions="keras").eval()
    raw, identity = 0, 0
    for unit in model.modules():
        if not isinstance(unit, Bottleneck | BasicUnit):
            continue
        channels = next(unit.parameters()).shape[0] if unit.shortcut is None else unit.shortcut.in_channels
        x = torch.randn(2, channels, 6, 6)
        f = F.relu(unit.preact.bn(x)) if isinstance(unit.preact, BNReLU) else x
        if isinstance(unit, Bottleneck):
            inner = unit.match(F.relu(unit.norm.bn(unit.reduce(f))))
            residual = unit.embed(F.relu(unit.maximizer.bn(inner)))
        else:
            residual = unit.conv2(F.relu(unit.norm.bn(unit.conv1(f))))
        expected = residual + (x if unit.shortcut is None else unit.shortcut(x))
        torch.testing.assert_close(unit(x), expected)
        raw, identity = raw + (unit.shortcut is not None), identity + (unit.shortcut is None)
    assert (raw, identity) == ((4, 4) if name == "rn26" else (3, 5))
