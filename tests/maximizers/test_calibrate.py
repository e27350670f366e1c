"""The constants of §4.1 from a network with batch normalisation."""

import pytest
import torch
from torch import Tensor, nn

from tembed.common.errors import TembedError
from tembed.maximizers import calibrate
from tembed.maximizers.bn_relu import BNReLU, implied_margin
from tembed.models.registry import create_model


def trained(model: nn.Module, images: Tensor) -> nn.Module:
    """The model with statistics, scales and shifts as training leaves them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    for _ in range(5):
        model(images)
    return model


class Slow:
    """Computes margins and sums of activations from the formulas, layer by layer."""

    def __init__(self) -> None:
        self.margins: list[float] = []
        self.sums: list[Tensor] = []

    def add(self, bn: nn.BatchNorm2d, match: Tensor) -> None:
        """A normalisation, and the output of the 3x3 convolution in front of it."""
        sigma = torch.sqrt(bn.running_var + bn.eps)
        channels = zip(bn.running_mean, bn.bias, sigma, bn.weight, strict=True)
        self.margins += [(m - b * s / g).item() for m, b, s, g in channels]
        p = ((match - bn.running_mean[:, None, None]) / sigma[:, None, None]) * bn.weight[:, None, None]
        self.sums.append((p + bn.bias[:, None, None]).clamp(min=0).sum(1).flatten())

    def check(self, model: nn.Module, images: Tensor) -> None:
        mu, eta = calibrate(model, images)
        assert mu == pytest.approx(sum(self.margins) / len(self.margins), rel=1e-4)
        assert eta == pytest.approx(torch.cat(self.sums).mean().item(), rel=1e-4)


def test_rn20_is_calibrated_on_six_layers() -> None:
    images = torch.randn(4, 3, 32, 32)
    model = trained(create_model("rn20"), images).eval()
    x, slow = model.stem(images), Slow()
    for unit in (*model.stage1, *model.stage2, *model.stage3):
        slow.add(unit.maximizer.bn, unit.match(unit.norm(unit.reduce(unit.preact(x)))))
        x = unit(x)
    assert len(slow.sums) == 6
    slow.check(model, images)


def test_wrn16_is_calibrated_after_the_first_convolution_of_each_unit() -> None:
    """The second convolution's output has the shortcut added in place before the next normalisation reads it."""
    images = torch.randn(4, 3, 32, 32)
    model = trained(create_model("wrn16"), images).eval()
    x, slow = model.stem(images), Slow()
    for unit in (*model.stage1, *model.stage2, *model.stage3, *model.stage4):
        slow.add(unit.norm.bn, unit.conv1(unit.preact(x)))
        x = unit(x)
    assert len(slow.sums) == 8
    slow.check(model, images)


def test_an_untrained_network_is_refused() -> None:
    with pytest.raises(TembedError, match=r"all margins .* are 0, .*; calibrate a trained network"):
        calibrate(create_model("rn20"), torch.randn(2, 3, 32, 32))


def test_a_network_that_diverged_is_refused() -> None:
    images = torch.randn(2, 3, 32, 32)
    model = trained(create_model("rn20"), images)
    model.stage1[0].maximizer.bn.running_mean.fill_(torch.nan)
    with pytest.raises(TembedError, match="mu = nan"):
        calibrate(model, images)


def test_works_in_inference_mode() -> None:
    images = torch.randn(2, 3, 32, 32)
    model = trained(create_model("wrn16"), images)
    expected = calibrate(model, images)
    with torch.inference_mode():
        assert calibrate(model, images) == pytest.approx(expected)


def test_bn_relu_is_positive_exactly_above_its_margin() -> None:
    bn = BNReLU(6)
    nn.init.uniform_(bn.bn.weight, 0.5, 2.0)
    nn.init.normal_(bn.bn.bias)
    bn(torch.randn(8, 6, 5, 5) * 3 + 1)
    bn.eval()
    mu = implied_margin(bn.bn).detach()[None, :, None, None]
    assert (bn(mu + 1e-3) > 0).all()
    assert (bn(mu - 1e-3) == 0).all()


def test_channels_switched_off_by_weight_decay_are_ignored() -> None:
    images = torch.randn(4, 3, 16, 16)
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), images)
    with torch.no_grad():
        model[2].weight[0] = 1e-5
    mu, _ = calibrate(model, images)
    assert mu == pytest.approx(implied_margin(model[2])[1:].mean().item(), rel=1e-5)


def test_the_network_stays_unchanged() -> None:
    images = torch.randn(2, 3, 32, 32)
    model = trained(create_model("rn20"), images).train()
    model.stage1.eval()  # as a user does who freezes its statistics
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    calibrate(model, images)
    assert model.training
    assert model.stage2.training
    assert not any(module.training for module in model.stage1.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_network_without_such_layers_is_refused() -> None:
    with pytest.raises(TembedError, match="nothing to calibrate"):
        calibrate(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), torch.randn(1, 3, 8, 8))
