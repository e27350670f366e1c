"""The fused dense stage against the concatenating one, in double precision."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tembed.ops import bn_relu, dense_stage
from tembed.ops.dense_stage import DenseLayer, DenseStage


@pytest.fixture
def stage() -> DenseStage:
    torch.manual_seed(0)
    layers = [DenseLayer(10 + 12 * i, 12) for i in range(3)]
    made = DenseStage(*layers, nn.Conv2d(46, 5, 1), nn.AvgPool2d(2))
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return made


def channels_last(*shape: int, seed: int) -> Tensor:
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=dice).contiguous(memory_format=torch.channels_last)


def outcome(stage: DenseStage, x: Tensor, g: Tensor) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    y = stage(x)
    y.backward(g)
    gradients = {f"{name}.grad": value.grad for name, value in stage.named_parameters()}
    return {"y": y.detach(), "x": x.grad} | gradients | dict(stage.named_buffers())


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The widths of the maps that the fused form was called with."""
    calls: list[int] = []
    original = dense_stage._fused

    def counting(layers: list[DenseLayer], x: Tensor) -> Tensor:
        calls.append(x.shape[1])
        return original(layers, x)

    monkeypatch.setattr(dense_stage, "_fused", counting)
    return calls


@pytest.mark.parametrize("side", [(6, 6), (5, 2), (2, 7)])
def test_equals_the_concatenation_in_double(stage: DenseStage, fused: list[int], side: tuple[int, int]) -> None:
    x = channels_last(4, 10, *side, seed=1)
    g = channels_last(4, 5, side[0] // 2, side[1] // 2, seed=2)
    twin = copy.deepcopy(stage).double()
    ours = outcome(stage, x, g)
    assert fused == [10]
    theirs = outcome(twin, x.double(), g.double())
    assert fused == [10], "double precision is not fused"
    assert ours.keys() == theirs.keys()
    for name in ours:
        # A bias in front of a normalisation has no gradient but rounding.
        scale = theirs[name].double().abs().max().clamp_min(0.1)
        error = (ours[name].double() - theirs[name]).abs().max()
        assert error <= 2e-5 * scale, (name, error, scale)


def test_the_plain_form_has_the_same_names_and_result(
    stage: DenseStage, fused: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, g = channels_last(4, 10, 4, 4, seed=1), channels_last(4, 5, 2, 2, seed=2)
    twin = copy.deepcopy(stage)
    ours = outcome(stage, x, g)
    monkeypatch.setattr(bn_relu, "load", lambda: None)
    plain = outcome(twin, x, g)
    assert fused == [10]
    for name in ours:
        torch.testing.assert_close(ours[name], plain[name], atol=1e-4, rtol=1e-3)


def test_in_evaluation_nothing_is_fused(stage: DenseStage, fused: list[int]) -> None:
    stage.eval()(channels_last(2, 10, 4, 4, seed=1))
    assert not fused


@pytest.mark.parametrize("part", ["1.grow", "2", "0.norm"])
def test_who_listens_to_a_part_is_heard(stage: DenseStage, fused: list[int], part: str) -> None:
    heard = []
    stage.get_submodule(part).register_forward_hook(lambda *_: heard.append(1))
    stage(channels_last(2, 10, 4, 4, seed=1))
    assert heard == [1]
    assert not fused


def test_a_frozen_normalisation_stays_frozen(stage: DenseStage, fused: list[int]) -> None:
    stage.get_submodule("1.norm").eval()
    before = {name: value.clone() for name, value in stage.get_submodule("1.norm").named_buffers()}
    stage(channels_last(2, 10, 4, 4, seed=1))
    assert not fused
    after = dict(stage.get_submodule("1.norm").named_buffers())
    assert all(torch.equal(before[name], after[name]) for name in before)
