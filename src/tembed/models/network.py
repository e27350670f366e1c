"""What all networks have in common: stem, three stages, the block, the last stage, the head (Fig. 2)."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tembed.block import DeepSupervision, FeatureEmbedding, ShortcutOnly, initialize
from tembed.common.arrays import brief, briefly
from tembed.common.errors import TembedError
from tembed.maximizers.bn_relu import BNReLU
from tembed.models.description import Description

Block = FeatureEmbedding | DeepSupervision | ShortcutOnly
BlockFactory = Callable[..., Block]
"""Called with the numbers of channels and classes, and the options of the block."""


class Output(NamedTuple):
    """What every network returns, in training and in evaluation.

    ``logits``: ``(N, C)``. ``scores``: ``(N, C, H, W)``, one score per class and patch; None without a block.
    """

    logits: Tensor
    scores: Tensor | None

    def __repr__(self) -> str:
        return briefly("Output", **self._asdict())


class Trace(NamedTuple):
    """The named maps that the analysis reads (§4.3). Those of the block are None in a network without one.

    ``block_input``: the output of stage 3. ``scores``, ``softmax``: class scores of each patch and their soft-max.
    ``mixing``: weights of the class vectors. ``embedding``: ``f'``. ``block_output``: the input of stage 4; without a
    block, the same map as ``block_input``. ``logits``: the output of the head.
    """

    block_input: Tensor
    scores: Tensor | None
    softmax: Tensor | None
    mixing: Tensor | None
    embedding: Tensor | None
    block_output: Tensor
    logits: Tensor

    def __repr__(self) -> str:
        return briefly("Trace", **self._asdict())


def check_finite(*outputs: Tensor | None) -> None:
    """Refuse a network's outputs with NaN or infinity, of which an argmax would make a class."""
    if not all(output is None or bool(torch.isfinite(output).all()) for output in outputs):
        raise TembedError("the network's outputs are not finite, so they say nothing: train it again at a lower `lr`")


def check_input(x: Tensor) -> None:
    """Refuse what no network takes, and name the way out."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() != 4 or x.shape[1] != 3:
        raise TembedError(wrong_input(x))


def wrong_input(x: Any) -> str:
    """What is wrong with an input that no network takes, and the way out."""
    if not isinstance(x, Tensor):
        return (
            f"the input is a {type(x).__name__}; the network takes a tensor (N, 3, H, W), and tembed.predict takes "
            "arrays, Pillow images and files"
        )
    if x.dim() == 3:
        return f"the input is one image, {brief(x)}; the network takes a batch: model(image[None])"
    if x.dim() != 4:
        return f"the input is {brief(x)}; the network takes images (N, 3, H, W)"
    if x.shape[1] != 3 and x.shape[3] == 3:
        return f"the input is {brief(x)}, with the channels last; the network takes (N, 3, H, W): x.permute(0, 3, 1, 2)"
    if x.shape[1] == 1:
        return f"the input is {brief(x)}, which is grey; the network takes (N, 3, H, W): x.expand(-1, 3, -1, -1)"
    if x.shape[1] != 3:
        return f"the input is {brief(x)}; the network takes three channels, (N, 3, H, W)"
    return (
        f"the input is {brief(x)}; the network takes normalised floats: (x / 255 - mean) / std, with the mean and std "
        "of tembed.trained.load_trained or of the dataset's splits"
    )


class Network(nn.Module):
    """Images ``(N, 3, H, W)`` to `Output`. The networks differ in the modules that they pass here."""

    description = Description()

    def __init__(
        self,
        stem: nn.Module,
        stages: Sequence[nn.Module],
        block: Block | None,
        stage4: nn.Module,
        width: int,
        num_classes: int,
    ):
        super().__init__()
        self.num_classes = num_classes
        self.stem = stem
        self.stage1, self.stage2, self.stage3 = stages
        self.block = block
        self.stage4 = stage4
        self.norm = BNReLU(width)
        self.head = nn.Linear(width, num_classes)
        initialize(self)

    def features(self, x: Tensor) -> Tensor:
        """``h_1`` of Eq. 3.1: the network up to the block."""
        check_input(x)
        return self.stage3(self.stage2(self.stage1(self.stem(x))))

    def classify(self, f: Tensor) -> Tensor:
        """Everything after the block: ``(N, width, H, W)`` to logits ``(N, C)``."""
        return self.head(self.norm(self.stage4(f)).mean((2, 3)))

    def forward(self, x: Tensor) -> Output:
        f, scores = self.features(x), None
        if self.block is not None:
            f, scores = self.block(f)
        return Output(self.classify(f), scores)

    def trace(self, x: Tensor) -> Trace:
        """The same computation as `forward`, with the intermediate maps."""
        f = self.features(x)
        if self.block is None:
            return Trace(f, None, None, None, None, f, self.classify(f))
        steps = self.block.steps(f)
        return Trace(
            block_input=f,
            scores=steps.scores,
            softmax=None if steps.scores is None else steps.scores.softmax(1),
            mixing=steps.mixing,
            embedding=steps.embedding,
            block_output=steps.features,
            logits=self.classify(steps.features),
        )
