"""The fused BN-ReLU against torch's own in double precision."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tembed.maximizers import BNReLU
from tembed.ops import bn_relu as kernel


def channels_last(*shape: int, mean: float = 0.0, seed: int = 0) -> Tensor:
    dice = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=dice) + mean).contiguous(memory_format=torch.channels_last)


def module(channels: int) -> BNReLU:
    dice = torch.Generator().manual_seed(channels)
    bn = BNReLU(channels)
    with torch.no_grad():
        bn.weight.copy_(torch.randn(channels, generator=dice))  # negative scales too
        bn.bias.copy_(torch.randn(channels, generator=dice))
    return bn


def outcome(bn: nn.BatchNorm2d, x: Tensor, g: Tensor) -> dict[str, Tensor]:
    """Everything that a training step takes from the module."""
    x = x.clone().requires_grad_()
    y = bn(x) if type(bn) is BNReLU else F.relu(bn(x))
    y.backward(g)
    buffers = {name: value.clone() for name, value in bn.named_buffers()}
    return {"y": y.detach(), "x": x.grad, "weight": bn.weight.grad, "bias": bn.bias.grad, **buffers}


def in_double(bn: BNReLU) -> nn.BatchNorm2d:
    twin = nn.BatchNorm2d(bn.num_features, eps=bn.eps, momentum=bn.momentum, dtype=torch.double)
    twin.load_state_dict(bn.state_dict())
    return twin


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "shape",
    [
        (16, 64, 9, 7),
        (3, 7, 5, 5),
        (3, 2, 5, 5),
        (5, 10, 4, 4),
        (2, 37, 1, 6),
        (9, 45, 1, 1),
        (4, 300, 3, 3),
        (70, 12, 8, 8),
    ],
)
def test_equals_torch_in_double(shape: tuple[int, ...], threads: int) -> None:
    x, g = channels_last(*shape, mean=20.0), channels_last(*shape, seed=1)
    bn = module(shape[1])
    twin, before = in_double(bn), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert bn.has_kernel(x), "the kernel did not take this map"
        ours = outcome(bn, x, g)
    finally:
        torch.set_num_threads(before)
    theirs = outcome(twin, x.double(), g.double())
    for name, value in ours.items():
        scale = theirs[name].double().abs().max()
        error = (value.double() - theirs[name]).abs().max()
        assert error <= 3e-6 * scale, (name, error / scale)


def test_a_large_mean_costs_less_accuracy_than_in_torch() -> None:
    x, g = channels_last(32, 16, 8, 8, mean=3000.0), channels_last(32, 16, 8, 8, seed=1)
    bn = module(16)
    exact = outcome(in_double(bn), x.double(), g.double())["y"]
    ours = (outcome(copy.deepcopy(bn), x, g)["y"] - exact).abs().max()
    torchs = (F.relu(bn.normalize(x)) - exact).abs().max()
    assert ours <= torchs


def test_twice_is_the_same_to_the_bit() -> None:
    x, g = channels_last(16, 32, 8, 8), channels_last(16, 32, 8, 8, seed=1)
    first, second = (outcome(module(32), x, g) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_nan_and_infinity_are_not_hidden() -> None:
    x = channels_last(4, 8, 3, 3)
    x[1, 2, 0, 0], x[0, 5, 1, 1] = float("nan"), float("inf")
    y = module(8)(x)
    assert y[:, 2].isnan().all()
    assert y[:, 5].isnan().any()
    assert y[:, [0, 1, 3, 4, 6, 7]].isfinite().all()


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 8, 3, 3),  # NCHW
        channels_last(4, 8, 3, 3).double(),
    ],
    ids=["layout", "dtype"],
)
def test_other_maps_take_torchs_operations(x: Tensor) -> None:
    bn = BNReLU(x.shape[1], dtype=x.dtype)
    assert not bn.has_kernel(x)
    twin = copy.deepcopy(bn)
    torch.testing.assert_close(bn(x), F.relu(nn.BatchNorm2d.forward(twin, x)))


def test_parameters_of_another_type_are_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="type"):
        BNReLU(8, dtype=torch.double)(channels_last(4, 8, 3, 3))


def test_one_value_a_channel_is_torchs_error() -> None:
    with pytest.raises(ValueError, match="more than 1 value"):
        BNReLU(8)(torch.ones(1, 8, 1, 1))


def test_without_a_compiler_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, g = channels_last(8, 16, 4, 4), channels_last(8, 16, 4, 4, seed=1)
    fused = outcome(module(16), x, g)
    monkeypatch.setattr(kernel, "load", lambda: None)
    plain = outcome(module(16), x, g)
    for name in fused:
        torch.testing.assert_close(fused[name], plain[name], atol=2e-5, rtol=1e-4)


def test_a_slice_of_the_channels_of_a_wider_map() -> None:
    library = kernel.load()
    assert library is not None
    wide = channels_last(6, 40, 5, 5, mean=2.0)
    x = wide[:, 3:27]
    mean, variance = kernel.statistics(library, x)
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, x.var((0, 2, 3), correction=0))
    scale, shift = torch.randn(24), torch.randn(24)
    alone = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(kernel.forward(library, x, scale, shift), kernel.forward(library, alone, scale, shift))


def test_a_shortcut_around_it_gets_its_gradient() -> None:
    x, g, other = (channels_last(8, 16, 4, 4, seed=seed) for seed in range(3))
    gradients = []
    for plain in (False, True):
        bn, leaf = module(16), x.clone().requires_grad_()
        around = leaf * 1.0
        y, same = (bn(around), around) if plain else bn.with_input(around)
        assert torch.equal(same, x)
        torch.autograd.backward([y, same], [g, other])
        gradients.append([leaf.grad, bn.weight.grad, bn.bias.grad])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_who_listens_is_heard_beside_a_shortcut() -> None:
    bn, heard = module(8), []
    bn.register_forward_hook(lambda *_: heard.append(1))
    bn.with_input(channels_last(4, 8, 3, 3))
    assert heard == [1]


def test_the_gradient_beside_is_added() -> None:
    library = kernel.load()
    assert library is not None
    x, g, other = (channels_last(6, 24, 5, 5, seed=seed) for seed in range(3))
    mean, scale, shift, invstd = (torch.randn(24) for _ in range(4))
    alone, *parameters = kernel.backward(library, g, x, mean, scale, shift, invstd)
    both, *same = kernel.backward(library, g, x, mean, scale, shift, invstd, other)
    torch.testing.assert_close(both, alone + other)
    assert all(map(torch.equal, parameters, same))


def test_gradients_gathered_from_several_readers() -> None:
    """Of 24 and of 9 of the channels: what each gives alone, added up."""
    library = kernel.load()
    assert library is not None
    wide = channels_last(6, 24, 5, 5, mean=2.0)
    mean, _ = kernel.statistics(library, wide)
    start = channels_last(6, 24, 5, 5, seed=5)
    gathered = kernel.Gathered(library, wide, mean, start.clone(memory_format=torch.channels_last))
    expected = start.clone()
    for channels in (24, 9):
        g = channels_last(6, channels, 5, 5, seed=channels)
        scale, shift, invstd = (torch.randn(channels) for _ in range(3))
        x = wide[:, :channels].contiguous(memory_format=torch.channels_last)
        dx, *parameters = kernel.backward(library, g, x, mean[:channels], scale, shift, invstd)
        expected[:, :channels] += dx
        for ours, theirs in zip(gathered.add(g, scale, shift, invstd), parameters, strict=True):
            torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gathered.settle(9, 24), expected[:, 9:])
    torch.testing.assert_close(gathered.settle(0, 9), expected[:, :9])
    torch.testing.assert_close(gathered.dx, expected)
