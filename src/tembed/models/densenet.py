"""DenseNet-BC of depth 100 and growth rate 12: DN100 (§3.4, appendix A). Every convolution has a bias."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tembed.embedding import FeatureEmbedding
from tembed.maximizers import BNReLU
from tembed.models.network import BlockFactory, Network
from tembed.models.registry import BLOCK_OPTIONS, register_model, shrinks_early

GROWTH = 12
LAYERS = 16  # in each stage


class DenseLayer(nn.Module):
    """1x1 to four times the growth, 3x3 to the growth, appended to the input (Huang et al. 2017)."""

    def __init__(self, channels: int):
        super().__init__()
        self.preact = BNReLU(channels)
        self.reduce = nn.Conv2d(channels, 4 * GROWTH, 1)
        self.norm = BNReLU(4 * GROWTH)
        self.grow = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(self.norm(self.reduce(self.preact(x))))], dim=1)


def dense_stage(channels: int) -> tuple[nn.Sequential, int]:
    """The layers of a stage, and its width."""
    layers = [DenseLayer(channels + i * GROWTH) for i in range(LAYERS)]
    return nn.Sequential(*layers), channels + LAYERS * GROWTH


def transition(channels: int) -> tuple[nn.Sequential, int]:
    """Halve the channels and the side, and say the width."""
    out = channels // 2
    return nn.Sequential(BNReLU(channels), nn.Conv2d(channels, out, 1), nn.AvgPool2d(2)), out


def densenet(num_classes: int, input_size: int, *, block: BlockFactory | None = None, **block_options: Any) -> Network:
    """Three dense stages with transitions, the block, and a fourth stage."""
    width = 2 * GROWTH
    stem = nn.Conv2d(3, width, 3, padding=1)
    stages = []
    for shrinks in (True, True, shrinks_early(input_size)):
        layers, width = dense_stage(width)
        if shrinks:
            reduction, width = transition(width)
            layers = nn.Sequential(*layers, *reduction)
        stages.append(layers)
    placed = None
    if block:
        placed = block(width, num_classes, **block_options)
        width = placed.out_channels
    last, width = dense_stage(width)
    return Network(stem, stages, placed, last, width, num_classes)


_dense_block = partial(FeatureEmbedding, norm_before_pool=True, bias=True)

register_model("dn100", densenet)
register_model("dn100-embed", partial(densenet, block=_dense_block), BLOCK_OPTIONS)
register_model(
    "dn100-embed-cat",
    partial(densenet, block=partial(_dense_block, concat=True)),
    ("softmax_on_bn", "window"),
)
