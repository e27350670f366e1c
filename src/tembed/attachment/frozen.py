"""A frozen network that is cut at a layer, and the block and a new linear head behind it."""

from collections.abc import Collection
from typing import Self

import torch
from torch import Tensor, nn

from tembed.attachment.attached import Attached, Block, check_single
from tembed.models.description import Description
from tembed.models.network import Output, Trace


class BlockAndHead(nn.Module):
    """What is trained: the block, the mean over the map, and a linear head. Maps ``(N, d, H, W)`` to `Output`."""

    def __init__(self, block: Block | None, channels: int, num_classes: int):
        super().__init__()
        self.num_classes = num_classes
        self.block = block
        self.head = nn.Linear(channels if block is None else block.out_channels, num_classes)

    def forward(self, f: Tensor) -> Output:
        scores = None
        if self.block is not None:
            check_single(self.block, f, "give another `batch_size` or `train_images`")
            f, scores = self.block(f)
        return Output(self.head(f.mean((2, 3))), scores)

    def trace(self, f: Tensor) -> Trace:
        """The same computation as `forward`, with the intermediate maps."""
        if self.block is None:
            return Trace(f, None, None, None, None, f, self.head(f.mean((2, 3))))
        steps = self.block.steps(f)
        softmax = None if steps.scores is None else steps.scores.softmax(1)
        logits = self.head(steps.features.mean((2, 3)))
        return Trace(f, steps.scores, softmax, steps.mixing, steps.embedding, steps.features, logits)


class Frozen(nn.Module):
    """A network that stays as it is up to a layer, and a `BlockAndHead` behind it. Images to `Output`.

    ``trunk`` is the whole network, cut with `Attached.features`. It has no gradients and stays in evaluation mode.
    ``unused``: names of tensors of the original network that lie behind the layer, such as its head.
    """

    trained_part: BlockAndHead
    description = Description()

    def __init__(self, trunk: Attached, trained_part: BlockAndHead, unused: Collection[str] = ()):
        super().__init__()
        self.unused = frozenset(unused)
        self.num_classes = trained_part.num_classes
        self.trunk = trunk.eval().requires_grad_(False)
        self.block, self.head = trained_part.block, trained_part.head
        self.__dict__["trained_part"] = (
            trained_part  # shares block and head: registered again, it would repeat their names
        )

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.trunk.eval()
        self.trained_part.train(mode)
        return self

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """The map that the block reads: ``(N, channels, H, W)``."""
        return self.trunk.features(x)

    def forward(self, x: Tensor) -> Output:
        return self.trained_part(self.features(x))

    def trace(self, x: Tensor) -> Trace:
        """The same computation as `forward`, with the intermediate maps."""
        return self.trained_part.trace(self.features(x))

    def used_tensors(self) -> dict[str, Tensor]:
        """The tensors of the original network that its features depend on."""
        tensors = self.trunk.model.state_dict()
        return {name: tensor for name, tensor in tensors.items() if name not in self.unused}

    def frozen_tensors(self) -> dict[str, Tensor]:
        """The tensors of the trunk under their names in this network's state dict."""
        return {name: tensor for name, tensor in self.state_dict().items() if name.startswith("trunk.")}
