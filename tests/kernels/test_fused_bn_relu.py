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
        bn.bn.weight.copy_(torch.randn(channels, generator=dice))  # negative scales too
        bn.bn.bias.copy_(torch.randn(channels, generator=dice))
    return bn


def outcome(module: nn.Module, x: Tensor, g: Tensor) -> dict[str, Tensor]:
    """Everything that a training step reads from the module, BN-ReLU or the normalisation alone."""
    x = x.clone().requires_grad_()
    y = module(x).relu()
    y.backward(g)
    bn = module.bn if isinstance(module, BNReLU) else module
    buffers = {name: value.clone() for name, value in bn.named_buffers()}
    return {"y": y.detach(), "x": x.grad, "weight": bn.weight.grad, "bias": bn.bias.grad, **buffers}


def in_double(bn: BNReLU) -> nn.BatchNorm2d:
    return copy.deepcopy(bn.bn).double()


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
    torchs = (F.relu(bn.bn(x)) - exact).abs().max()
    assert ours <= torchs


def test_results_are_reproducible_to_the_bit() -> None:
    x, g = channels_last(16, 32, 8, 8), channels_last(16, 32, 8, 8, seed=1)
    first, second = (outcome(module(32), x, g) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_and_infinity_propagate(dtype: torch.dtype) -> None:
    x = channels_last(4, 8, 3, 3).to(dtype)
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
    torch.testing.assert_close(bn(x), F.relu(copied.bn(x)))


def test_parameters_of_another_type_raise_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="type"):
        BNReLU(8, dtype=torch.double)(channels_last(4, 8, 3, 3))


def test_one_value_per_channel_raises_torchs_error() -> None:
    with pytest.raises(ValueError, match="more than 1 value"):
        BNReLU(8)(torch.ones(1, 8, 1, 1))


def test_results_are_the_same_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    x, g = channels_last(8, 16, 4, 4), channels_last(8, 16, 4, 4, seed=1)
    fused = outcome(module(16), x, g)
    monkeypatch.setattr(kernel, "load", lambda dtype: None)
    plain = outcome(module(16), x, g)
    for name in fused:
        torch.testing.assert_close(fused[name], plain[name], atol=2e-5, rtol=1e-4)


HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")


@pytest.mark.parametrize("part", ["", "bn", "relu"])
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_fire(kind: str, part: str) -> None:
    bn, fired = module(8), []
    getattr(bn.get_submodule(part), f"register_{kind}")(lambda *_: fired.append(1))
    bn(channels_last(4, 8, 3, 3).requires_grad_()).sum().backward()
    assert fired == [1]


def test_global_hooks_fire() -> None:
    fired: list[nn.Module] = []
    bn = module(8)
    hook = nn.modules.module.register_module_forward_hook(lambda module, *_: fired.append(module))
    try:
        bn(channels_last(4, 8, 3, 3))
    finally:
        hook.remove()
    assert fired == [bn.bn, bn.relu, bn]


def test_a_normalisation_that_another_one_replaces_is_called() -> None:
    bn = module(8)
    bn.bn = nn.Identity()
    x = channels_last(4, 8, 3, 3)
    assert torch.equal(bn(x), x.relu())


def test_returns_the_normalised_map_in_the_same_call() -> None:
    """One normalisation gives both results, so the running statistics are updated once."""
    x, bn, separate = channels_last(4, 8, 3, 3), module(8), module(8)
    p, normalized = bn(x, with_normalized=True)
    torch.testing.assert_close(normalized, separate.bn(x))
    assert torch.equal(p, normalized.relu())
    assert bn.bn.num_batches_tracked == 1


@pytest.mark.parametrize("training", [True, False])
def test_double_backward_equals_torch_in_double(training: bool) -> None:
    """The gradient of a gradient penalty, which needs the second derivative for the map and the parameters."""

    def penalty(module: nn.Module, bn: nn.BatchNorm2d, x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        y = module(x).relu()
        value = (y * torch.arange(len(y))[:, None, None, None]).square().sum() + (x**3 * y.detach()).sum()
        (g,) = torch.autograd.grad(value, x, create_graph=True)
        g.square().sum().backward()
        assert x.grad is not None
        return [x.grad, bn.weight.grad, bn.bias.grad]

    x, bn = channels_last(3, 6, 4, 4), module(6).train(training)
    assert bn.has_kernel(x) == training
    double = in_double(bn).train(training)
    exact = penalty(double, double, x.double())
    for ours, theirs in zip(penalty(bn, bn.bn, x), exact, strict=True):
        assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(16, 64, 9, 7), (3, 7, 5, 5), (2, 37, 1, 6), (70, 12, 8, 8)])
def test_bfloat16_under_autocast_is_rounded_once(shape: tuple[int, ...], threads: int) -> None:
    """Against torch in double on the same numbers: each result is off by no more than its own rounding."""
    x, g = channels_last(*shape, mean=2.0).bfloat16(), channels_last(*shape, seed=1).bfloat16()
    bn, before = module(shape[1]), torch.get_num_threads()
    exact = in_double(bn)
    torch.set_num_threads(threads)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert bn.has_kernel(x), "the kernel does not accept this map"
            ours = outcome(bn, x, g)
    finally:
        torch.set_num_threads(before)
    theirs = outcome(exact, x.double(), g.double())
    assert {name: value.dtype for name, value in ours.items() if name in "xy"} == dict.fromkeys("xy", torch.bfloat16)
    for name, value in ours.items():
        rounding = 2**-8 * theirs[name].abs() if name in "xy" else 0.0
        error = (value.double() - theirs[name]).abs() - rounding
        assert error.max() <= 3e-6 * theirs[name].double().abs().max(), (name, error.max())


def test_bfloat16_rounds_as_torch_does() -> None:
    """With no mean, no bias and a variance of one, each positive value passes unchanged: NaN, inf and ties included."""
    values = torch.randint(0, 2**31, (1, 1, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    values[..., :32] = values[..., :32] & ~0xFFFF | 0x8000  # halfway between two numbers
    y = values.view(torch.float32)
    scale, shift = torch.ones(1), torch.zeros(1)
    x = y.bfloat16().contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(kernel.forward(x, scale, shift), x, rtol=0, atol=0, equal_nan=True)
    one = torch.ones_like(x)
    for value in y.flatten()[:256]:
        expected = value.bfloat16().expand_as(one)
        found = kernel.forward(one, torch.zeros(1), value[None])
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


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
