"""Wide ResNet of depth 16 and widening factor 2: WRN16 (§3.4, appendix A)."""

from functools import partial
from typing import Any

from torch import Tensor, nn

from tembed.block import FeatureEmbedding
from tembed.maximizers.bn_relu import BNReLU
from tembed.models.network import BlockFactory, Network
from tembed.models.registry import BLOCK_OPTIONS, register_model, shrinks_early


class BasicUnit(nn.Module):
    """Pre-activation unit of two 3x3 convolutions (Zagoruyko & Komodakis 2016), without dropout.

    Where the width or the side changes, the shortcut is a 1x1 convolution of the pre-activated input; elsewhere it is
    the raw input.
    """

    projects_raw_input = False
    """whether the 1x1 convolution reads the raw input too (`tembed.models.conventions`)"""

    def __init__(self, channels: int, out: int, stride: int = 1):
        super().__init__()
        self.preact = BNReLU(channels)
        self.conv1 = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.norm = BNReLU(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Conv2d(channels, out, 1, stride=stride, bias=False) if channels != out or stride > 1 else None
        )

    def forward(self, x: Tensor) -> Tensor:
        f = self.preact(x)
        shortcut = x if self.shortcut is None else self.shortcut(x if self.projects_raw_input else f)
        return self.conv2(self.norm(self.conv1(f))).add_(shortcut)


def stage(channels: int, out: int, stride: int) -> nn.Sequential:
    """Two units; the first one strides."""
    return nn.Sequential(BasicUnit(channels, out, stride), BasicUnit(out, out))


def wide_resnet(
    num_classes: int, input_size: int, *, block: BlockFactory | None = None, **block_options: Any
) -> Network:
    """Four stages of two units each, with the block before the last stage."""
    stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    stages = [stage(16, 32, 2 if shrinks_early(input_size) else 1), stage(32, 64, 2), stage(64, 128, 2)]
    embedding = block(128, num_classes, **block_options) if block else None
    return Network(stem, stages, embedding, stage(128, 128, 1), 128, num_classes)


register_model("wrn16", wide_resnet, block=None)
register_model(
    "wrn16-embed",
    partial(wide_resnet, block=partial(FeatureEmbedding, norm_before_pool=True)),
    block="embed",
    options=BLOCK_OPTIONS,
)
