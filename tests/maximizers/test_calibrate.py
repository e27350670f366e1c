"""The constants of §4.1, read off a network with batch normalisation."""

import pytest
import torch
from torch import Tensor, nn

from tembed import create_model
from tembed.errors import TembedError
from tembed.maximizers import BNReLU, calibrate, implied_margin


def trained(model: nn.Module, images: Tensor) -> nn.Module:
    """Statistics as training leaves them: batches seen, scales and shifts away from one and zero."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias)
    for _ in range(5):
        model(images)
    return model


def test_rn20_is_read_in_six_places() -> None:
    images = torch.randn(4, 3, 32, 32)
    model = trained(create_model("rn20"), images).eval()
    margins, sums = [], []
    x = model.stem(images)
    for stage in (model.stage1, model.stage2, model.stage3):
        for unit in stage:
            f = unit.preact(x)
            match = unit.match(unit.norm(unit.reduce(f)))
            bn = unit.maximizer
            sigma = torch.sqrt(bn.running_var + bn.eps)
            margins += [
                (m - b * s / g).item() for m, b, s, g in zip(bn.running_mean, bn.bias, sigma, bn.weight, strict=True)
            ]
            p = ((match - bn.running_mean[:, None, None]) / sigma[:, None, None]) * bn.weight[:, None, None]
            sums.append((p + bn.bias[:, None, None]).clamp(min=0).sum(1).flatten())
            x = unit(x)
    assert len(sums) == 6
    mu, eta = calibrate(model, images)
    assert mu == pytest.approx(sum(margins) / len(margins), rel=1e-4)
    assert eta == pytest.approx(torch.cat(sums).mean().item(), rel=1e-4)


def test_below_its_margin_a_kernel_is_off() -> None:
    """What makes ``mu_k`` a threshold: BN-ReLU is positive exactly above it."""
    bn = BNReLU(6)
    nn.init.uniform_(bn.weight, 0.5, 2.0)
    nn.init.normal_(bn.bias)
    bn(torch.randn(8, 6, 5, 5) * 3 + 1)
    bn.eval()
    mu = implied_margin(bn).detach()[None, :, None, None]
    assert (bn(mu + 1e-3) > 0).all()
    assert (bn(mu - 1e-3) == 0).all()


def test_channels_that_weight_decay_switched_off_do_not_count() -> None:
    images = torch.randn(4, 3, 16, 16)
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), images)
    with torch.no_grad():
        model[2].weight[0] = 1e-5
    mu, _ = calibrate(model, images)
    assert mu == pytest.approx(implied_margin(model[2])[1:].mean().item(), rel=1e-5)


def test_leaves_the_network_as_it_was() -> None:
    images = torch.randn(2, 3, 32, 32)
    model = create_model("rn20").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    calibrate(model, images)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(part._forward_hooks for part in model.modules())


def test_a_network_without_such_layers_is_refused() -> None:
    with pytest.raises(TembedError, match="nothing to calibrate"):
        calibrate(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), torch.randn(1, 3, 8, 8))
