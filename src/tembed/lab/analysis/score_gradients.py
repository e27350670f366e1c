"""The two losses of Eq. 3.1 in front of the block: how strong their gradients are, and whether they agree."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tembed.block import DeepSupervision, FeatureEmbedding

BATCH = 200
GRADIENT_IMAGES = 500
"""Maximum number of images behind the gradients, which need two backward passes each."""

Block = FeatureEmbedding | DeepSupervision
Fetch = Callable[[Tensor], Tensor]
"""The normalised images at these positions."""


def gradients(
    model: nn.Module, block: Block, fetch: Fetch, labels: Tensor, seed: int
) -> tuple[tuple[float, float] | None, float | None]:
    """Norms and cosine of the gradients of the two mean losses, for the weights that both reach outside the block.

    The patches' loss reaches only what is in front of the block. None if all of that is frozen.
    """
    own = {id(weight) for weight in block.parameters()}
    weights = [weight for weight in model.parameters() if weight.requires_grad and id(weight) not in own]
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:GRADIENT_IMAGES]
    totals: list[list[Tensor | None]] = [[None] * len(weights), [None] * len(weights)]
    kept: list[Tensor] = []
    hook = block.register_forward_hook(lambda module, inputs, output: kept.append(output[1]))
    try:
        for batch in chosen.split(BATCH) if weights else ():
            kept.clear()
            truth = labels[batch]
            with torch.enable_grad():
                logits = logits_of(model(fetch(batch)))
                scores = kept[-1]
                every = truth[:, None, None].expand(-1, *scores.shape[2:])
                losses = (
                    F.cross_entropy(logits, truth, reduction="sum"),
                    F.cross_entropy(scores, every, reduction="sum") / every[0].numel(),
                )
                for loss, total in zip(losses, totals, strict=True):
                    if not loss.requires_grad:
                        continue
                    found = torch.autograd.grad(loss / len(chosen), weights, retain_graph=True, allow_unused=True)
                    for k, gradient in enumerate(found):
                        if gradient is not None:
                            before, wide = total[k], gradient.cpu().double()  # some GPUs have no float64
                            total[k] = wide if before is None else before + wide
    finally:
        hook.remove()
    both = [(a.flatten(), b.flatten()) for a, b in zip(*totals, strict=True) if a is not None and b is not None]
    if not both:
        return None, None
    head, patches = (torch.cat(parts) for parts in zip(*both, strict=True))
    norms = head.norm().item(), patches.norm().item()
    return norms, (head @ patches).item() / (norms[0] * norms[1]) if min(norms) > 0 else None


def logits_of(output: Any) -> Tensor:
    """The logits of a network that returns a tensor, something with ``logits``, or a tuple that begins with them."""
    if isinstance(output, Tensor):
        return output
    found: Tensor = output.logits if hasattr(output, "logits") else output[0]
    return found
