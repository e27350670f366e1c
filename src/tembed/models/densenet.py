"""DenseNet-BC of depth 100 and growth rate 12: DN100 (§3.4, appendix A). Every convolution has a bias."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tembed.block import FeatureEmbedding
from tembed.maximizers.bn_relu import BNReLU
from tembed.models.network import BlockFactory, Network
from tembed.models.registry import BLOCK_OPTIONS, register_model, shrinks_early

GROWTH = 12
LAYERS = 16
"""Layers per stage."""


class DenseLayer(nn.Module):
    """A 1x1 convolution to four times the growth and a 3x3 one, appended to the input (Huang et al. 2017)."""

    def __init__(self, channels: int, growth: int):
        super().__init__()
        self.preact = BNReLU(channels)
        self.reduce = nn.Conv2d(channels, 4 * growth, 1)
        self.norm = BNReLU(4 * growth)
        self.grow = nn.Conv2d(4 * growth, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(self.norm(self.reduce(self.preact(x))))], dim=1)


def dense_layers(channels: int) -> tuple[list[DenseLayer], int]:
    """The layers of a stage, and its output width."""
    return [DenseLayer(channels + i * GROWTH, GROWTH) for i in range(LAYERS)], channels + LAYERS * GROWTH


def transition(channels: int) -> tuple[nn.Sequential, int]:
    """A transition that halves the channels and the side, and its output width."""
    out = channels // 2
    return nn.Sequential(BNReLU(channels), nn.Conv2d(channels, out, 1), nn.AvgPool2d(2)), out


def densenet(num_classes: int, input_size: int, *, block: BlockFactory | None = None, **block_options: Any) -> Network:
    """Three dense stages with transitions, the block, and a fourth stage."""
    width = 2 * GROWTH
    stem = nn.Conv2d(3, width, 3, padding=1)
    stages = []
    for shrinks in (True, True, shrinks_early(input_size)):
        layers, width = dense_layers(width)
        reduction: Iterable[nn.Module] = ()
        if shrinks:
            reduction, width = transition(width)
        stages.append(nn.Sequential(*layers, *reduction))
    embedding = None
    if block:
        embedding = block(width, num_classes, **block_options)
        width = embedding.out_channels
    layers, width = dense_layers(width)
    return Network(stem, stages, embedding, nn.Sequential(*layers), width, num_classes)


_dense_block = partial(FeatureEmbedding, norm_before_pool=True, bias=True)

register_model("dn100", densenet, block=None)
register_model(
    "dn100-embed",
    partial(densenet, block=_dense_block),
    block="embed",
    options=BLOCK_OPTIONS,
    defaults={"smooth_shortcut": False},
)
register_model(
    "dn100-embed-cat",
    partial(densenet, block=partial(_dense_block, concat=True)),
    block="embed",
    options=("softmax_on_bn", "window"),
)
