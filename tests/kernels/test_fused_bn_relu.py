"""The fused BN-ReLU against torch in double precision."""

import copy
import ctypes

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tembed.kernels import fused_bn_relu as kernel
from tembed.maximizers.bn_relu import BNReLU


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
    """Everything that a training step reads from the module."""
    x = x.clone().requires_grad_()
    y = bn(x) if type(bn) is BNReLU else F.relu(bn(x))
    y.backward(g)
    buffers = {name: value.clone() for name, value in bn.named_buffers()}
    return {"y": y.detach(), "x": x.grad, "weight": bn.weight.grad, "bias": bn.bias.grad, **buffers}


def in_double(bn: BNReLU) -> nn.BatchNorm2d:
    copied = nn.BatchNorm2d(bn.num_features, eps=bn.eps, momentum=bn.momentum, dtype=torch.double)
    copied.load_state_dict(bn.state_dict())
    return copied


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
    exact, before = in_double(bn), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert bn.has_kernel(x), "the kernel does not accept this map"
        ours = outcome(bn, x, g)
    finally:
        torch.set_num_threads(before)
    theirs = outcome(exact, x.double(), g.double())
    for name, value in ours.items():
        scale = theirs[name].double().abs().max()
        error = (value.double() - theirs[name]).abs().max()
        assert error <= 3e-6 * scale, (name, error / scale)


def test_large_means_lose_less_accuracy_than_in_torch() -> None:
    x, g = channels_last(32, 16, 8, 8, mean=3000.0), channels_last(32, 16, 8, 8, seed=1)
    bn = module(16)
    exact = outcome(in_double(bn), x.double(), g.double())["y"]
    ours = (outcome(copy.deepcopy(bn), x, g)["y"] - exact).abs().max()
    torchs = (F.relu(bn.normalize(x)) - exact).abs().max()
    assert ours <= torchs


def test_results_are_reproducible_to_the_bit() -> None:
    x, g = channels_last(16, 32, 8, 8), channels_last(16, 32, 8, 8, seed=1)
    first, second = (outcome(module(32), x, g) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_nan_and_infinity_propagate() -> None:
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
def test_other_layouts_and_types_use_torch(x: Tensor) -> None:
    bn = BNReLU(x.shape[1], dtype=x.dtype)
    assert not bn.has_kernel(x)
    copied = copy.deepcopy(bn)
    torch.testing.assert_close(bn(x), F.relu(nn.BatchNorm2d.forward(copied, x)))


def test_parameters_of_another_type_raise_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="type"):
        BNReLU(8, dtype=torch.double)(channels_last(4, 8, 3, 3))


def test_one_value_per_channel_raises_torchs_error() -> None:
    with pytest.raises(ValueError, match="more than 1 value"):
        BNReLU(8)(torch.ones(1, 8, 1, 1))


def test_results_are_the_same_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    x, g = channels_last(8, 16, 4, 4), channels_last(8, 16, 4, 4, seed=1)
    fused = outcome(module(16), x, g)
    monkeypatch.setattr(kernel, "load", lambda: None)
    plain = outcome(module(16), x, g)
    for name in fused:
        torch.testing.assert_close(fused[name], plain[name], atol=2e-5, rtol=1e-4)


def test_reads_a_slice_of_the_channels_of_a_wider_map() -> None:
    wide = channels_last(6, 40, 5, 5, mean=2.0)
    x = wide[:, 3:27]
    mean, variance = kernel.statistics(x)
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, x.var((0, 2, 3), correction=0))
    scale, shift = torch.randn(24), torch.randn(24)
    alone = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(kernel.forward(x, scale, shift), kernel.forward(alone, scale, shift))


def test_with_input_sums_the_gradients_of_both_outputs() -> None:
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


HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")


@pytest.mark.parametrize("call", ["__call__", "with_input"])
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_fire(kind: str, call: str) -> None:
    bn, fired = module(8), []
    getattr(bn, f"register_{kind}")(lambda *_: fired.append(1))
    x = channels_last(4, 8, 3, 3).requires_grad_()
    result = getattr(bn, call)(x)
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    assert fired == [1]


def test_global_hooks_fire_in_with_input() -> None:
    fired: list[nn.Module] = []
    bn = module(8)
    hook = nn.modules.module.register_module_forward_hook(lambda module, *_: fired.append(module))
    try:
        bn.with_input(channels_last(4, 8, 3, 3))
    finally:
        hook.remove()
    assert fired == [bn]


def test_returns_the_normalised_map_in_the_same_call() -> None:
    """One normalisation gives both results, so the running statistics are updated once."""
    x, bn, separate = channels_last(4, 8, 3, 3), module(8), module(8)
    p, normalized = bn(x, with_normalized=True)
    torch.testing.assert_close(normalized, separate.normalize(x))
    assert torch.equal(p, normalized.relu())
    assert bn.num_batches_tracked == 1


@pytest.mark.parametrize("with_input", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_double_backward_equals_torch_in_double(training: bool, with_input: bool) -> None:
    """The gradient of a gradient penalty, which needs the second derivative for the map and the parameters."""

    def penalty(bn: nn.BatchNorm2d, x: Tensor, fused: bool) -> list[Tensor]:
        x = x.clone().requires_grad_()
        if fused:
            y, shortcut = bn.with_input(x) if with_input else (bn(x), x)
        else:
            y, shortcut = F.relu(bn(x)), x
        value = (y * torch.arange(len(y))[:, None, None, None]).square().sum() + (shortcut**3 * y.detach()).sum()
        (g,) = torch.autograd.grad(value, x, create_graph=True)
        g.square().sum().backward()
        assert x.grad is not None
        return [x.grad, bn.weight.grad, bn.bias.grad]

    x, bn = channels_last(3, 6, 4, 4), module(6).train(training)
    assert bn.has_kernel(x) == training
    exact = penalty(in_double(bn).train(training), x.double(), fused=False)
    for ours, theirs in zip(penalty(bn, x, fused=True), exact, strict=True):
        assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()


def test_autocast_passes_bfloat16_through() -> None:
    x, bn = channels_last(4, 8, 3, 3), module(8)
    single = bn(x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        assert not bn.has_kernel(x)
        leaf = x.bfloat16().requires_grad_()
        y = bn(leaf)
        y.sum().backward()
    assert y.dtype == leaf.grad.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), single, atol=0.1, rtol=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        torch.zeros(4, 8, 3, 3),
        channels_last(4, 8, 3, 3).bfloat16(),
        channels_last(4, 8, 3, 3)[:, ::2],
        channels_last(4, 8, 3, 3)[:, :, ::2],
        torch.zeros(8),
    ],
    ids=["layout", "dtype", "every-second-channel", "every-second-row", "vector"],
)
def test_the_kernel_refuses_memory_that_it_cannot_read(wrong: Tensor) -> None:
    library = kernel.load()
    assert library is not None
    layout, vector = kernel._layout(channels_last(4, 8, 3, 3)), torch.zeros(8)
    with pytest.raises(ctypes.ArgumentError, match="the kernel expects"):
        library.tembed_bn_relu(layout, wrong, vector, vector, channels_last(4, 8, 3, 3))


def test_the_gradient_of_the_input_is_added() -> None:
    x, g, other = (channels_last(6, 24, 5, 5, seed=seed) for seed in range(3))
    mean, scale, shift, invstd = (torch.randn(24) for _ in range(4))
    alone, *parameters = kernel.backward(g, x, mean, scale, shift, invstd)
    both, *same = kernel.backward(g, x, mean, scale, shift, invstd, other)
    torch.testing.assert_close(both, alone + other)
    assert all(map(torch.equal, parameters, same))


def test_gradients_of_several_readers_are_summed() -> None:
    """One reads 24 channels and one reads 9: the result is the sum of their separate gradients."""
    wide = channels_last(6, 24, 5, 5, mean=2.0)
    mean, _ = kernel.statistics(wide)
    start = channels_last(6, 24, 5, 5, seed=5)
    shared = kernel.SharedMapGradient(wide, mean, start.clone(memory_format=torch.channels_last))
    expected = start.clone()
    for channels in (24, 9):
        g = channels_last(6, channels, 5, 5, seed=channels)
        scale, shift, invstd = (torch.randn(channels) for _ in range(3))
        x = wide[:, :channels].contiguous(memory_format=torch.channels_last)
        dx, *parameters = kernel.backward(g, x, mean[:channels], scale, shift, invstd)
        expected[:, :channels] += dx
        for ours, theirs in zip(shared.add(g, scale, shift, invstd), parameters, strict=True):
            torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(shared.finish(9, 24), expected[:, 9:])
    torch.testing.assert_close(shared.finish(0, 9), expected[:, :9])
    torch.testing.assert_close(shared.dx, expected)
