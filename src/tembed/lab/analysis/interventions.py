"""Knock-outs: a part of the block is replaced, and the same images are classified again.

The replacements are hooks in context managers, so that none outlives its ``with``.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor, nn

from tembed.block import FeatureEmbedding

DRAWS = 3
"""Draws of each random knock-out."""
LEVEL = 0.05

NO_EMBEDDING, OTHERS, PERMUTED, NO_SHORTCUT = (
    "f' = 0",
    "f' of another image",
    "class vectors permuted",
    "shortcut = 0",
)

Change = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class KnockOut:
    """Accuracy with a part of the block replaced, on the same images as the intact network.

    ``cost``: intact minus knocked-out accuracy. ``noise``: its standard error over the choice of images. ``p``: the
    two-sided p-value of "no cost", by the exact McNemar test. A random knock-out has several draws: ``accuracy`` and
    ``cost`` are means over them, and ``p`` is that of the paired normal test on each image's mean over them.
    """

    accuracy: float
    cost: float
    noise: float
    p: float
    draws: int = 1

    @property
    def costs(self) -> bool:
        """Whether the cost is more than sampling noise."""
        return self.cost > 0 and self.p < LEVEL


def compare(intact: Tensor, draws: list[Tensor]) -> KnockOut:
    """From whether each image was classified correctly, intact and in each draw."""
    wrong = [intact.double() - right.double() for right in draws]
    cost = torch.stack(wrong).mean(0)
    noise = cost.std().item() / math.sqrt(len(cost))
    mean = cost.mean().item()
    if len(draws) == 1:
        p = mcnemar(int((cost > 0).sum()), int((cost < 0).sum()))
    else:
        p = math.erfc(abs(mean) / noise / math.sqrt(2)) if noise > 0 else float(mean == 0)
    return KnockOut(torch.stack(draws).double().mean().item(), mean, noise, p, len(draws))


def mcnemar(lost: int, gained: int) -> float:
    """The exact two-sided p-value for ``lost`` and ``gained`` images: Binomial(lost + gained, 1/2)."""
    total = lost + gained
    tail = sum(math.comb(total, k) for k in range(min(lost, gained) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**total)))


def p_text(p: float) -> str:
    """``p = 0.03`` or ``p < 0.0001``."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def knock_outs(block: FeatureEmbedding, generator: torch.Generator) -> dict[str, list[Change]]:
    """The knock-outs by name: a list of context managers for each, one for every draw."""
    found: dict[str, list[Change]] = {
        NO_EMBEDDING: [partial(_changed_mixing, block, torch.zeros_like)],
        OTHERS: [partial(_changed_mixing, block, partial(_of_another_image, draw=draw)) for draw in range(DRAWS)],
        NO_SHORTCUT: [partial(_without_shortcut, block)],
    }
    classes = block.values.in_channels
    if classes > 1:
        orders = [derangement(classes, generator) for _ in range(DRAWS)]
        found[PERMUTED] = [partial(_changed_mixing, block, partial(_permuted, order=order)) for order in orders]
    return {name: found[name] for name in (NO_EMBEDDING, OTHERS, PERMUTED, NO_SHORTCUT) if name in found}


def derangement(count: int, generator: torch.Generator) -> Tensor:
    """A random permutation that moves every one of ``count`` elements."""
    while True:
        order = torch.randperm(count, generator=generator)
        if not (order == torch.arange(count)).any():
            return order


def _of_another_image(mixing: Tensor, draw: int) -> Tensor:
    """Every image gets the mixing weights of another one of its batch, which is in random order."""
    return mixing.roll(1 + draw % (len(mixing) - 1), 0)


def _permuted(mixing: Tensor, order: Tensor) -> Tensor:
    """The mixing weights of class ``order[k]`` for class ``k``, which is the same as permuted class vectors."""
    return mixing[:, order]


@contextmanager
def _changed_mixing(block: FeatureEmbedding, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within the ``with``, the class vectors are mixed with changed weights. A bias of the values stays (DN)."""
    hook = block.values.register_forward_pre_hook(lambda module, inputs: (change(inputs[0]),))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _without_shortcut(block: FeatureEmbedding) -> Iterator[None]:
    """Within the ``with``, the block writes f' alone, or next to zeros if it concatenates."""
    latest: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        latest[:] = [output]

    def replace(module: nn.Module, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        features, scores = output
        alone = torch.zeros_like(features)
        alone[:, features.shape[1] - latest[0].shape[1] :] = latest[0]
        return alone, scores

    with ExitStack() as stack:
        stack.callback(block.values.register_forward_hook(keep).remove)
        stack.callback(block.register_forward_hook(replace).remove)
        yield
