"""The fused dense stage against concatenation in double precision."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tembed.kernels import dense_stage
from tembed.kernels import fused_bn_relu as bn_relu
from tembed.kernels.dense_stage import DenseLayerModules
from tembed.models.densenet import DenseLayer, DenseStage


@pytest.fixture
def stage() -> DenseStage:
    torch.manual_seed(0)
    layers = [DenseLayer(10 + 12 * i, 12) for i in range(3)]
    stage = DenseStage(*layers, nn.Conv2d(46, 5, 1), nn.AvgPool2d(2))
    for module in stage.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return stage


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
    """The widths of the maps that the fused form is called with."""
    calls: list[int] = []
    original = dense_stage.dense_stage

    def counting(layers: list[DenseLayerModules], x: Tensor) -> Tensor:
        calls.append(x.shape[1])
        return original(layers, x)

    monkeypatch.setattr(dense_stage, "dense_stage", counting)
    return calls


@pytest.mark.parametrize("side", [(6, 6), (5, 2), (2, 7)])
def test_equals_the_concatenation_in_double(stage: DenseStage, fused: list[int], side: tuple[int, int]) -> None:
    x = channels_last(4, 10, *side, seed=1)
    g = channels_last(4, 5, side[0] // 2, side[1] // 2, seed=2)
    exact = copy.deepcopy(stage).double()
    ours = outcome(stage, x, g)
    assert fused == [10]
    theirs = outcome(exact, x.double(), g.double())
    assert fused == [10], "double precision must not be fused"
    assert ours.keys() == theirs.keys()
    for name in ours:
        # The gradient of a bias in front of a normalisation is zero up to rounding.
        scale = theirs[name].double().abs().max().clamp_min(0.1)
        error = (ours[name].double() - theirs[name]).abs().max()
        assert error <= 2e-5 * scale, (name, error, scale)


def test_layers_called_one_by_one_have_the_same_names_and_result(
    stage: DenseStage, fused: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, g = channels_last(4, 10, 4, 4, seed=1), channels_last(4, 5, 2, 2, seed=2)
    copied = copy.deepcopy(stage)
    ours = outcome(stage, x, g)
    monkeypatch.setattr(bn_relu, "load", lambda: None)
    plain = outcome(copied, x, g)
    assert fused == [10]
    for name in ours:
        torch.testing.assert_close(ours[name], plain[name], atol=1e-4, rtol=1e-3)


def test_nothing_is_fused_in_evaluation(stage: DenseStage, fused: list[int]) -> None:
    stage.eval()(channels_last(2, 10, 4, 4, seed=1))
    assert not fused


@pytest.mark.parametrize("name", ["1.grow", "2", "0.norm", "2.reduce"])
@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_hooks_fire(stage: DenseStage, fused: list[int], name: str, kind: str) -> None:
    fired = []
    getattr(stage.get_submodule(name), f"register_{kind}")(lambda *_: fired.append(1))
    stage(channels_last(2, 10, 4, 4, seed=1).requires_grad_()).sum().backward()
    assert fired == [1]
    assert not fused


class Doubled(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def test_a_subclassed_convolution_is_called(stage: DenseStage, fused: list[int]) -> None:
    x, copied = channels_last(2, 10, 4, 4, seed=1), copy.deepcopy(stage)
    stage[1].reduce.__class__ = Doubled
    y = stage(x)
    assert not fused
    with torch.no_grad():
        copied[1].reduce.weight.mul_(2)
        copied[1].reduce.bias.mul_(2)
    torch.testing.assert_close(y, copied(x), atol=1e-4, rtol=1e-3)


def test_a_subclassed_layer_is_called(stage: DenseStage, fused: list[int]) -> None:
    class Quiet(DenseLayer):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, torch.zeros_like(x[:, :12])], dim=1)

    stage[2].__class__ = Quiet
    features: list[Tensor] = []
    stage[3].register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    stage(channels_last(2, 10, 4, 4, seed=1))
    assert not fused
    assert features[0][:, -12:].eq(0).all()


def test_a_replaced_forward_is_called(stage: DenseStage, fused: list[int]) -> None:
    calls = []
    original = stage[0].grow.forward
    stage[0].grow.forward = lambda x: calls.append(1) or original(x)
    stage(channels_last(2, 10, 4, 4, seed=1))
    assert calls == [1]
    assert not fused


@pytest.mark.parametrize("name", ["reduce", "grow"])
def test_convolutions_of_another_shape_are_not_fused(stage: DenseStage, fused: list[int], name: str) -> None:
    if name == "reduce":
        stage[1].reduce = nn.Conv2d(22, 48, 1, bias=False)
    else:
        stage[1].grow.dilation, stage[1].grow.padding = (2, 2), (2, 2)
    stage(channels_last(2, 10, 4, 4, seed=1)).sum().backward()
    assert not fused


def test_autocast_is_not_fused(stage: DenseStage, fused: list[int]) -> None:
    x, g = channels_last(4, 10, 4, 4, seed=1), channels_last(4, 5, 2, 2, seed=2)
    single = outcome(copy.deepcopy(stage), x, g)
    fused.clear()
    with torch.autocast("cpu", torch.bfloat16):
        half = outcome(stage, x, g.bfloat16())
    assert not fused
    for name in ("y", "x", "0.reduce.weight.grad", "2.grow.weight.grad"):
        assert (half[name].float() - single[name]).norm() <= 0.1 * single[name].norm(), name


def test_double_backward_equals_concatenation_in_double(stage: DenseStage, fused: list[int]) -> None:
    def penalty(stage: DenseStage, x: Tensor) -> dict[str, Tensor]:
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(stage(x).pow(2).sum(), x, create_graph=True)
        g.square().sum().backward()
        assert x.grad is not None
        gradients = {name: value.grad for name, value in stage.named_parameters() if value.grad is not None}
        return {"x": x.grad} | gradients

    x = channels_last(3, 10, 4, 4, seed=1)
    exact = penalty(copy.deepcopy(stage).double(), x.double())
    ours = penalty(stage, x)
    assert fused == [10]
    assert ours.keys() == exact.keys()
    for name in ours:
        assert (ours[name] - exact[name]).abs().max() <= 1e-3 * exact[name].abs().max().clamp_min(1.0), name


def test_frozen_normalisations_stay_frozen(stage: DenseStage, fused: list[int]) -> None:
    stage.get_submodule("1.norm").eval()
    before = {name: value.clone() for name, value in stage.get_submodule("1.norm").named_buffers()}
    stage(channels_last(2, 10, 4, 4, seed=1))
    assert not fused
    after = dict(stage.get_submodule("1.norm").named_buffers())
    assert all(torch.equal(before[name], after[name]) for name in before)
