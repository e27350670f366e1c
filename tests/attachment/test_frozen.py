"""A frozen network with the block and a new head: what it computes, and that it can be compiled and exported."""

import copy

import pytest
import torch
from support.foreign import Plain, Tokens
from torch import nn

from tembed.attachment.attaching import attach
from tembed.attachment.frozen import BlockAndHead, Frozen
from tembed.block import DeepSupervision, FeatureEmbedding


def made(build: type[nn.Module], at: str, channels: int, kind: str = "embed") -> Frozen:
    torch.manual_seed(0)
    block = {"embed": FeatureEmbedding, "aux": DeepSupervision, "none": None}[kind]
    trunk = attach(build(), at, 3, example=16, block="none")
    return Frozen(trunk, BlockAndHead(None if block is None else block(channels, 5), channels, 5))


@pytest.mark.parametrize("kind", ["embed", "aux", "none"])
def test_it_is_the_cut_network_the_block_the_mean_and_the_head(kind: str) -> None:
    network = made(Plain, "layer1", 8, kind).eval()
    x = torch.randn(2, 3, 16, 16)
    model = network.trunk.model
    f = model.layer1(torch.relu(model.conv1(x)))
    features, scores = (f, None) if network.block is None else network.block(f)
    output, trace = network(x), network.trace(x)
    torch.testing.assert_close(output.logits, network.head(features.mean((2, 3))))
    assert torch.equal(trace.logits, output.logits)
    assert torch.equal(trace.block_input, f)
    assert torch.equal(trace.block_output, features)
    if scores is None:
        assert output.scores is trace.scores is None
    else:
        assert torch.equal(output.scores, scores)
        assert torch.equal(trace.scores, scores)


def test_only_the_block_and_the_head_learn() -> None:
    network = made(Plain, "layer1", 8).train()
    statistics = network.trunk.model.layer1[1].running_mean.clone()
    network(torch.randn(2, 3, 16, 16)).logits.sum().backward()
    learning = {name.split(".")[0] for name, p in network.named_parameters() if p.requires_grad}
    assert learning == {"block", "head"}
    assert all(p.grad is None for p in network.trunk.parameters())
    assert torch.equal(network.trunk.model.layer1[1].running_mean, statistics)
    names = [name for name in network.state_dict() if not name.startswith("trunk.")]
    assert sorted(names) == sorted(network.trained_part.state_dict())


def test_a_copy_is_independent() -> None:
    network = made(Plain, "layer1", 8).eval()
    other = copy.deepcopy(network)
    x = torch.randn(2, 3, 16, 16)
    before = network(x).logits
    with torch.no_grad():
        other.head.weight.add_(1)
    assert torch.equal(network(x).logits, before)
    assert not torch.equal(other(x).logits, before)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "at", "channels"), [(Plain, "layer1", 8), (Tokens, "mix", 6)])
def test_it_can_be_exported(build: type[nn.Module], at: str, channels: int) -> None:
    """The cut ends an ordinary forward pass with an exception, which a tracer cannot follow."""
    network = made(build, at, channels).eval()
    x = torch.randn(2, 3, 16, 16)
    exported = torch.export.export(network, (x,), strict=False).module()
    torch.testing.assert_close(exported(x).logits, network(x).logits)
    torch.testing.assert_close(exported(x).scores, network(x).scores)
