"""What changes during a run: learning rate, image side, noise seeds, and when the run ends.

All are pure functions of (seed, epoch, step) and of the validation accuracies so far, so none of them needs a state
that a resumed run would have to restore.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tembed.lab.training.recipe import Recipe

GROWN_BY = 0.6
"""Share of the epochs after which the training images have their full side."""
SIDES = 4
"""Sides are multiples of this many pixels, the total stride in front of the block."""
PLATEAU: dict[str, Any] = {
    "factor": 0.5,
    "patience": 4,
    "threshold": 1e-3,
    "threshold_mode": "abs",
    "cooldown": 2,
    "min_lr": 1e-6,
}
"""Arguments of torch's `ReduceLROnPlateau`. It acts on the epoch after ``patience``: here the fifth without a gain."""


def learning_rate(recipe: Recipe, step: int, steps: int, accuracies: Sequence[float] = ()) -> float:
    """The rate of step ``step`` (from 0) in a run of ``steps`` steps, after epochs with these validation accuracies."""
    if recipe.schedule == "constant":
        return recipe.lr
    if recipe.schedule == "plateau":
        return plateau_rate(recipe.lr, tuple(accuracies))
    rising = round((recipe.warmup or 0.0) * steps)
    if step < rising:
        return recipe.lr * (step + 1) / rising
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


@lru_cache(maxsize=2)
def plateau_rate(highest: float, accuracies: tuple[float, ...]) -> float:
    """The rate after epochs with these validation accuracies: halved whenever five of them bring no gain."""
    import torch  # listing recipes does not need it
    from torch import optim

    optimizer = optim.SGD([torch.zeros(1)], highest)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", **PLATEAU)
    for accuracy in accuracies:
        schedule.step(accuracy)
    return float(optimizer.param_groups[0]["lr"])


def ends_early(recipe: Recipe, accuracies: Sequence[float]) -> bool:
    """Whether the last ``patience`` epochs have brought no better validation accuracy."""
    if recipe.patience is None or not accuracies:
        return False
    best = max(range(len(accuracies)), key=accuracies.__getitem__)  # the first of equals, as the best weights are
    return len(accuracies) - 1 - best >= recipe.patience


def image_side(recipe: Recipe, epoch: int, full: int) -> int:
    """The side of the training images in an epoch (from 0); ``full`` is their side on disk."""
    growing = min(recipe.epochs - 1, round(GROWN_BY * recipe.epochs))  # the last epoch uses the full side
    grown = min(1.0, epoch / growing) if growing else 1.0
    side = full * (recipe.start_scale + (1 - recipe.start_scale) * grown)
    return full if side >= full else max(8, int(side / SIDES) * SIDES)


def derived_seed(*key: int | str) -> int:
    """A seed for torch's generator from a seed and the name of what is drawn."""
    digest = hashlib.blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
