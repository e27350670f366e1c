"""Compiled stages compute what they did, for every side, and keep their names."""

import copy

import pytest
import torch
from torch import nn

from tembed.embedding import FeatureEmbedding
from tembed.losses import EmbeddingLoss
from tembed.maximizers import BNReLU
from tembed.models.network import Network
from tembed.training.compiling import compile_stages


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch.compile warns of what it does itself
def test_a_compiled_network_learns_as_the_plain_one_does() -> None:
    """The frame of all networks with the smallest stages, because compiling takes long."""
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), BNReLU(4)), nn.Identity(), nn.Identity()]
    plain = Network(nn.Conv2d(3, 4, 1), stages, FeatureEmbedding(4, 3), nn.Identity(), 4, 3)
    compiled = copy.deepcopy(plain)
    compile_stages(compiled)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    loss, labels = EmbeddingLoss(0.5), torch.tensor([0, 1, 2])
    for side in (8, 12):
        images = torch.randn(3, 3, side, side).to(memory_format=torch.channels_last)
        for model in (plain, compiled):
            model.zero_grad()
            loss(model(images), labels).backward()
        for (name, p), q in zip(plain.named_parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], tensor)
