"""DenseNet-BC of depth 100 and growth rate 12: DN100 (§3.4, appendix A). Every convolution has a bias."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import nn

from tembed.embedding import FeatureEmbedding
from tembed.maximizers import BNReLU
from tembed.models.network import BlockFactory, Network
from tembed.models.registry import BLOCK_OPTIONS, register_model, shrinks_early
from tembed.ops.dense_stage import DenseLayer, DenseStage

GROWTH = 12
LAYERS = 16  # in each stage


def dense_layers(channels: int) -> tuple[list[DenseLayer], int]:
    """The layers of a stage, and its width."""
    return [DenseLayer(channels + i * GROWTH, GROWTH) for i in range(LAYERS)], channels + LAYERS * GROWTH


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
        layers, width = dense_layers(width)
        reduction: Iterable[nn.Module] = ()
        if shrinks:
            reduction, width = transition(width)
        stages.append(DenseStage(*layers, *reduction))
    placed = None
    if block:
        placed = block(width, num_classes, **block_options)
        width = placed.out_channels
    layers, width = dense_layers(width)
    return Network(stem, stages, placed, DenseStage(*layers), width, num_classes)


_dense_block = partial(FeatureEmbedding, norm_before_pool=True, bias=True)

register_model("dn100", densenet)
register_model("dn100-embed", partial(densenet, block=_dense_block), BLOCK_OPTIONS)
register_model(
    "dn100-embed-cat",
    partial(densenet, block=partial(_dense_block, concat=True)),
    ("softmax_on_bn", "window"),
)
