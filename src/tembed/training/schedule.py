"""What changes during a run, as pure functions of (seed, epoch, step): learning rate, image side and noise seeds."""

import hashlib
import math

from tembed.training.recipe import Recipe

GROWN_BY = 0.6
"""Share of the epochs after which the training images have their full side."""
SIDES = 4
"""Sides are multiples of this many pixels, the total stride in front of the block."""


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """The rate of step ``step`` (from 0) in a run of ``steps`` steps."""
    if recipe.schedule == "constant":
        return recipe.lr
    rising = round((recipe.warmup or 0.0) * steps)
    if step < rising:
        return recipe.lr * (step + 1) / rising
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


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
