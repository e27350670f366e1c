"""The gradient of a convolution's weights against torch's in double precision."""

import copy

import pytest
import torch
from torch import Tensor

from tembed.ops import conv_weight as kernel
from tembed.ops.conv3x3 import Conv3x3, weight_gradient


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
        (64, 32, 2, 3, 150),  # a row is more than a block
        (16, 22, 9, 12, 16),  # blocks end within an image
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
    twin = copy.deepcopy(conv).double()
    assert not twin.has_kernel(x.double())
    for value, exact in zip(ours, gradients(twin, x.double()), strict=True):
        assert (value - exact).abs().max() <= 2e-6 * exact.abs().max()


def test_equals_finite_differences() -> None:
    """A loss moved along one weight after the other."""
    conv, x = convolution(16, 4), channels_last(2, 16, 3, 3)
    weight = conv.weight.detach().double()
    _, _, ours = gradients(conv, x)
    g = channels_last(2, 4, 3, 3, seed=1).double()
    for place in ((0, 0, 0, 0), (1, 7, 1, 1), (3, 15, 2, 2), (2, 3, 0, 2)):
        moved = weight.clone()
        moved[place] += 1.0
        change = torch.nn.functional.conv2d(x.double(), moved - weight, padding=1)  # it is linear
        assert ours[place].item() == pytest.approx((change * g).sum().item(), rel=1e-5)


def test_a_slice_of_the_channels() -> None:
    x, wide = channels_last(3, 16, 6, 6), channels_last(3, 20, 6, 6, seed=1)
    part = wide[:, 5:11]
    assert torch.equal(weight_gradient(part, x), weight_gradient(part.contiguous(memory_format=torch.channels_last), x))


def test_twice_is_the_same_to_the_bit() -> None:
    conv, x = convolution(32, 32), channels_last(8, 32, 16, 16)
    first, second = (gradients(copy.deepcopy(conv), x) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_the_layout_of_the_gradient_is_that_of_the_weight() -> None:
    conv = convolution(32, 8)
    gradients(conv, channels_last(2, 32, 4, 4))
    assert conv.weight.grad is not None
    assert conv.weight.grad.stride() == conv.weight.stride()


def test_where_torch_has_to_do_it() -> None:
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


def test_without_a_compiler_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = convolution(32, 8, bias=True), channels_last(4, 32, 8, 8)
    fused = gradients(copy.deepcopy(conv), x)
    monkeypatch.setattr(kernel, "load", lambda: None)
    for ours, theirs in zip(fused, gradients(conv, x), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
