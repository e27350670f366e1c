"""ResNet v2 with bottleneck units: RN20, RN26, RN38 (§3.4, §4.1, appendix A)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from tembed import maximizers
from tembed.block import DeepSupervision, FeatureEmbedding, ShortcutOnly
from tembed.maximizers.bn_relu import BNReLU
from tembed.models.network import BlockFactory, Network
from tembed.models.registry import BLOCK_OPTIONS, register_model, shrinks_early

Maximizer = Callable[[int], nn.Module]


class Bottleneck(nn.Module):
    """Pre-activation bottleneck unit, 1x1 - 3x3 - 1x1 (He et al. 2016).

    The 3x3 convolution matches its kernels, ``maximizer`` picks among them, and the last 1x1 convolution writes the
    vectors of the picked kernels (§3.1). A projection shortcut reads the pre-activated input, an identity shortcut the
    raw input. ``kernel``: the side of the kernels that are matched.
    """

    projects_raw_input = False
    """whether the projection reads the raw input instead (`tembed.models.conventions`)"""

    def __init__(
        self,
        channels: int,
        inner: int,
        out: int,
        *,
        stride: int = 1,
        project: bool = False,
        preactivate: bool = True,
        maximizer: Maximizer = BNReLU,
        kernel: int = 3,
    ):
        super().__init__()
        self.preact = BNReLU(channels) if preactivate else nn.Identity()
        self.reduce = nn.Conv2d(channels, inner, 1, stride=stride, bias=False)
        self.norm = BNReLU(inner)
        self.match = nn.Conv2d(inner, inner, kernel, padding=kernel // 2, bias=False)
        self.maximizer = maximizer(inner)
        self.embed = nn.Conv2d(inner, out, 1, bias=False)
        self.shortcut = nn.Conv2d(channels, out, 1, stride=stride, bias=False) if project else None

    def forward(self, x: Tensor) -> Tensor:
        f = self.preact(x)
        shortcut = x if self.shortcut is None else self.shortcut(x if self.projects_raw_input else f)
        return self.embed(self.maximizer(self.match(self.norm(self.reduce(f))))).add_(shortcut)


def stage(
    channels: int,
    inner: int,
    out: int,
    units: int,
    stride: int,
    maximizer: Maximizer,
    *,
    after_stem: bool = False,
    kernel: int = 3,
) -> nn.Sequential:
    """Units of one width. The first one strides and has a projection shortcut.

    ``after_stem``: the stem ends in BN-ReLU, which is the pre-activation of the unit behind it.
    """
    unit = partial(Bottleneck, maximizer=maximizer, kernel=kernel)
    first = unit(channels, inner, out, stride=stride, project=True, preactivate=not after_stem)
    rest = (unit(out, inner, out) for _ in range(units - 1))
    return nn.Sequential(first, *rest)


def resnet(
    num_classes: int,
    input_size: int,
    *,
    units: int,
    four_stages: bool = True,
    block: BlockFactory | None = None,
    maximizer: str = "bn-relu",
    stage3_kernel: int = 3,
    stage3_inner: int = 128,
    **options: Any,
) -> Network:
    """Stages of ``units`` bottlenecks each, with the block before the last stage.

    ``maximizer`` follows the 3x3 convolution of each unit; the stem keeps BN-ReLU. ``stage3_kernel``,
    ``stage3_inner``: side and number of the kernels that a unit of stage 3 matches. ``options``: the maximizer's
    constants and the block's options.
    """
    constants = {name: options.pop(name) for name in maximizers.constants(maximizer) if name in options}
    pick = partial(maximizers.create, maximizer, **constants)
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), BNReLU(16))
    width = 128 if four_stages else 256
    stages = [
        stage(16, 32, 64, units, 2 if shrinks_early(input_size) else 1, pick, after_stem=True),
        stage(64, 64, 128, units, 2, pick),
        stage(128, stage3_inner, width, units, 2, pick, kernel=stage3_kernel),
    ]
    last = stage(128, 128, 256, units, 1, pick) if four_stages else nn.Identity()
    embedding = block(width, num_classes, **options) if block else None
    return Network(stem, stages, embedding, last, 256, num_classes)


register_model(
    "rn20",
    partial(resnet, units=2, four_stages=False),
    block=None,
    options=("maximizer",),
    about="(ablation) the 3-stage network for comparing maximizers",
)
register_model("rn26", partial(resnet, units=2), block=None, options=("maximizer",))
register_model(
    "rn26-1x1",
    partial(resnet, units=2, block=ShortcutOnly),
    block=None,
    options=("maximizer", "smooth_shortcut"),
    about="(control) rn26 with only the 1x1 convolution of the block's shortcut",
)
register_model(
    "rn26-aux",
    partial(resnet, units=2, block=DeepSupervision),
    block="aux",
    options=("maximizer", "window"),
)
register_model(
    "rn26-embed",
    partial(resnet, units=2, block=FeatureEmbedding),
    block="embed",
    options=("maximizer", *BLOCK_OPTIONS),
)
register_model(
    "rn26-embed-cosine",
    partial(resnet, units=2, block=partial(FeatureEmbedding, form="cosine")),
    block="embed",
    options=("maximizer", "softmax_on_bn", "window"),
    about="(the authors' later form) rn26-embed with cosine scores and values and an identity shortcut",
)
local = partial(resnet, units=2, block=FeatureEmbedding, stage3_kernel=1, window=2)
"""`rn26-embed` whose patches see 19 x 19 pixels instead of 43 x 43: stage 3 has no 3x3 kernels, and a patch is 2x2."""
register_model(  # 316 kernels in place of 128: as many parameters as rn26-embed
    "rn26-embed-local",
    partial(local, stage3_inner=316),
    block="embed",
    options=("maximizer", *BLOCK_OPTIONS),
    about="(ours) rn26-embed whose patches see 19 x 19 pixels instead of 43 x 43",
)
register_model("rn38", partial(resnet, units=3), block=None, options=("maximizer",))
register_model(
    "rn38-embed",
    partial(resnet, units=3, block=FeatureEmbedding),
    block="embed",
    options=("maximizer", *BLOCK_OPTIONS),
)
