"""How much of what the block writes is ``f'``: its share of the variance, measured while a network is evaluated.

The block writes ``shortcut(f) + f'`` or ``cat[f, f']``. BN bounds ``f'``, while ``f`` can grow without limit, so ``f'``
may become a negligible part of the sum although its scores are good.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tembed.block import FeatureEmbedding, shortcut_of
from tembed.lab.training.process_group import SINGLE_PROCESS, ProcessGroup


class Moments:
    """Variance of each channel over images and pixels, from sums in double precision that processes can add up.

    What each map adds stays on the device until the variance is asked for.
    """

    def __init__(self, channels: int):
        self.channels = channels
        self.counts: list[int] = []
        self.moments: list[Tensor] = []

    def add(self, x: Tensor) -> None:
        """Add a map ``(N, d, H, W)``."""
        pixels = x.detach().movedim(1, -1).flatten(0, -2).float()
        self.counts.append(len(pixels))
        self.moments.append(torch.stack(torch.var_mean(pixels, 0, correction=0)))

    def variance(self, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        """Over everything that the processes of ``group`` have added: ``(d,)``."""
        total = squares = torch.zeros(self.channels, dtype=torch.float64)
        moments = torch.stack(self.moments).cpu().double() if self.moments else ()
        for count, (variance, mean) in zip(self.counts, moments, strict=True):
            total = total + count * mean
            squares = squares + count * (variance + mean.square())
        sums = torch.tensor(group.sum([sum(self.counts), *total.tolist(), *squares.tolist()]), dtype=torch.float64)
        total, squares = (sums[1:] / sums[0]).chunk(2)
        return (squares - total.square()).clamp(min=0)


class VarianceShare:
    """Listens to one block. ``mixing`` and ``embedding`` are those of its latest call.

    Calls count while ``counting`` is true.
    """

    def __init__(self, block: FeatureEmbedding):
        size = block.values.out_channels
        self.embedding_moments, self.shortcut_moments = Moments(size), Moments(block.out_channels - size or size)
        self.hooks = [
            block.values.register_forward_hook(self._after_values),
            block.register_forward_hook(self._after_block),
        ]
        self.mixing = self.embedding = torch.empty(0)
        self.counting = True

    def _after_values(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.mixing, self.embedding = inputs[0], output

    def _after_block(self, module: nn.Module, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        if not self.counting:
            return
        self.embedding_moments.add(self.embedding)
        self.shortcut_moments.add(shortcut_of(output[0], self.embedding))

    def value(self, group: ProcessGroup = SINGLE_PROCESS) -> float | None:
        """Sum over channels of Var f' / (Var f' + Var of the shortcut); None if a variance is not finite."""
        own, other = (m.variance(group).sum().item() for m in (self.embedding_moments, self.shortcut_moments))
        if not math.isfinite(own + other):
            return None
        return own / (own + other) if own + other > 0 else 0.0


@contextmanager
def measured_share(model: nn.Module) -> Iterator[VarianceShare | None]:
    """Within the ``with``, every forward pass of ``model`` counts. None if it does not have exactly one such block."""
    blocks = [module for module in model.modules() if isinstance(module, FeatureEmbedding)]
    share = VarianceShare(blocks[0]) if len(blocks) == 1 else None
    try:
        yield share
    finally:
        for hook in share.hooks if share else ():
            hook.remove()
