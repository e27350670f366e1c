"""The weight gradient of a 3x3 convolution against torch in double precision."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tembed.kernels import conv3x3 as kernel
from tembed.kernels.conv3x3 import Conv3x3, weight_gradient


def channels_last(*shape: int, seed: int = 0) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x.contiguous(memory_format=torch.channels_last)


def convolution(channels: int, out: int, stride: int = 1, bias: bool = False) -> Conv3x3:
    torch.manual_seed(0)
    return Conv3x3(channels, out, stride=stride, bias=bias).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def gradients(conv: Conv3x3, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = conv(x)
    y.backward(channels_last(*y.shape, seed=1).to(y.dtype))
    assert x.grad is not None
    return [y.detach(), x.grad, *(p.grad for p in conv.parameters() if p.grad is not None)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("channels", "out", "images", "height", "width"),
    [
        (16, 4, 1, 5, 5),
        (32, 8, 3, 8, 8),
        (48, 12, 5, 32, 32),
        (16, 10, 2, 1, 7),
        (16, 14, 7, 9, 1),
        (64, 32, 2, 3, 150),  # a row is longer than a chunk
        (16, 22, 9, 12, 16),  # chunks end inside an image
    ],
)
def test_equals_torch_in_double(
    channels: int, out: int, images: int, height: int, width: int, stride: int, threads: int
) -> None:
    conv = convolution(channels, out, stride, bias=True)
    x, before = channels_last(images, channels, height, width), torch.get_num_threads()
    assert conv.has_kernel(x)
    torch.set_num_threads(threads)
    try:
        ours = gradients(copy.deepcopy(conv), x)
    finally:
        torch.set_num_threads(before)
    exact = copy.deepcopy(conv).double()
    assert not exact.has_kernel(x.double())
    for value, right in zip(ours, gradients(exact, x.double()), strict=True):
        assert (value - right).abs().max() <= 2e-6 * right.abs().max()


def test_equals_finite_differences() -> None:
    """Change one weight at a time."""
    conv, x = convolution(16, 4), channels_last(2, 16, 3, 3)
    weight = conv.weight.detach().double()
    _, _, ours = gradients(conv, x)
    g = channels_last(2, 4, 3, 3, seed=1).double()
    for index in ((0, 0, 0, 0), (1, 7, 1, 1), (3, 15, 2, 2), (2, 3, 0, 2)):
        moved = weight.clone()
        moved[index] += 1.0
        change = torch.nn.functional.conv2d(x.double(), moved - weight, padding=1)  # the convolution is linear
        assert ours[index].item() == pytest.approx((change * g).sum().item(), rel=1e-5)


def test_reads_a_slice_of_the_channels() -> None:
    x, wide = channels_last(3, 16, 6, 6), channels_last(3, 20, 6, 6, seed=1)
    g = wide[:, 5:11]
    assert torch.equal(weight_gradient(g, x), weight_gradient(g.contiguous(memory_format=torch.channels_last), x))


def test_an_empty_batch_has_a_gradient_of_zero() -> None:
    conv = Conv3x3(16, 16).to(memory_format=torch.channels_last)
    x = torch.zeros(0, 16, 8, 8).contiguous(memory_format=torch.channels_last)
    conv(x).sum().backward()
    assert conv.weight.grad is not None
    assert not conv.weight.grad.any()


def test_results_are_reproducible_to_the_bit() -> None:
    conv, x = convolution(32, 32), channels_last(8, 32, 16, 16)
    first, second = (gradients(copy.deepcopy(conv), x) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_the_gradient_has_the_layout_of_the_weight() -> None:
    conv = convolution(32, 8)
    gradients(conv, channels_last(2, 32, 4, 4))
    assert conv.weight.grad is not None
    assert conv.weight.grad.stride() == conv.weight.stride()


def test_other_layouts_sizes_and_modes_use_torch() -> None:
    x = channels_last(2, 16, 4, 4)
    conv = convolution(16, 4)
    assert conv.has_kernel(x)
    assert not conv.has_kernel(x.contiguous())
    assert not convolution(16, 5).has_kernel(x)
    assert not convolution(12, 4).has_kernel(channels_last(2, 12, 4, 4))
    with torch.no_grad():
        assert not conv.has_kernel(x)
    conv.weight.requires_grad_(False)
    assert not conv.has_kernel(x)


def test_results_are_the_same_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = convolution(32, 8, bias=True), channels_last(4, 32, 8, 8)
    fused = gradients(copy.deepcopy(conv), x)
    monkeypatch.setattr(kernel, "load", lambda: None)
    for ours, theirs in zip(fused, gradients(conv, x), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_double_backward_equals_torch_in_double(bias: bool, training: bool) -> None:
    """The gradient of a gradient penalty, for the map, the weights and the bias."""

    def penalty(conv: Conv3x3, x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(conv(x).pow(3).sum(), x, create_graph=True)
        g.square().sum().backward()
        assert x.grad is not None
        return [x.grad, *(p.grad for p in conv.parameters() if p.grad is not None)]

    conv, x = convolution(16, 4, bias=bias).train(training), channels_last(2, 16, 3, 3)
    exact = copy.deepcopy(conv).double()
    assert conv.has_kernel(x)
    for ours, theirs in zip(penalty(conv, x), penalty(exact, x.double()), strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_double_backward_of_a_weight_that_also_made_the_input() -> None:
    """Gradients must not leak from the input into the weights when both depend on one tensor."""

    def penalty(conv: Conv3x3, x: Tensor) -> Tensor:
        y = conv(conv(x))
        (g,) = torch.autograd.grad(y.pow(2).sum(), conv.weight, create_graph=True)
        g.square().sum().backward()
        assert conv.weight.grad is not None
        return conv.weight.grad

    conv, x = convolution(16, 16), channels_last(1, 16, 3, 3)
    exact = copy.deepcopy(conv).double()
    theirs = penalty(exact, x.double())
    assert (penalty(conv, x) - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_autocast_gives_a_finite_gradient_like_that_of_single_precision() -> None:
    """Under autocast the output's gradient is bfloat16, which the kernel must not read as float32."""
    conv, x = convolution(32, 8), channels_last(4, 32, 8, 8)
    _, _, single = gradients(copy.deepcopy(conv), x)
    leaf = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        assert not conv.has_kernel(leaf)
        y = conv(leaf)
    y.backward(channels_last(*y.shape, seed=1).to(y.dtype))
    assert conv.weight.grad is not None
    assert (conv.weight.grad - single).norm() <= 0.02 * single.norm()


def test_autocast_may_begin_after_forward() -> None:
    conv, x = convolution(32, 8), channels_last(4, 32, 8, 8)
    _, _, single = gradients(copy.deepcopy(conv), x)
    y = conv(x)
    with torch.autocast("cpu", torch.bfloat16):
        y.backward(channels_last(*y.shape, seed=1))
    torch.testing.assert_close(conv.weight.grad, single)


@pytest.mark.parametrize("change", [Tensor.bfloat16, Tensor.double, Tensor.contiguous])
def test_weight_gradient_falls_back_to_torch_for_other_types_and_layouts(change: Callable[[Tensor], Tensor]) -> None:
    x, g = channels_last(2, 16, 4, 4), channels_last(2, 4, 4, 4, seed=1)
    expected = weight_gradient(g, x)
    torch.testing.assert_close(
        weight_gradient(change(g), change(x)).float(),
        expected,
        atol=0.1 if change is Tensor.bfloat16 else 1e-4,
        rtol=0.05,
    )


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_hooks_fire(kind: str) -> None:
    conv, fired = convolution(16, 4), []
    getattr(conv, f"register_{kind}")(lambda *_: fired.append(1))
    conv(channels_last(2, 16, 4, 4).requires_grad_()).sum().backward()
    assert fired == [1]


def test_the_gradient_keeps_only_its_own_memory_alive() -> None:
    conv, before = convolution(32, 8), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        gradients(conv, channels_last(6, 32, 4, 4))
    finally:
        torch.set_num_threads(before)
    assert conv.weight.grad is not None
    assert conv.weight.grad.untyped_storage().nbytes() == conv.weight.nbytes
