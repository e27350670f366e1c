"""The images that a recipe trains and is measured on (§4)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tembed.data import load
from tembed.data.batches import Batches
from tembed.data.types import ImageSet, Splits
from tembed.errors import TembedError
from tembed.training.distributed.process_group import ALONE, Team
from tembed.training.recipe import Recipe
from tembed.training.schedule import derived_seed

EVAL_BATCH = 200


@dataclass(frozen=True)
class Inputs:
    """Batches of the three parts of a dataset; ``splits.train`` is the whole training part."""

    splits: Splits
    train: Batches
    val: Batches
    test: Batches

    @property
    def classes(self) -> tuple[str, ...]:
        return self.splits.train.classes


def load_inputs(recipe: Recipe, root: str | Path | None = None, team: Team = ALONE) -> Inputs:
    """The batches of a recipe, from the datasets in ``root``: what this process of a team sees of them."""
    splits = load(recipe.data, recipe.split, recipe.split_seed, root)
    train = splits.train
    if recipe.train_images is not None:
        train = train.subset(evenly(train.labels, len(train.classes), recipe.train_images, recipe.split_seed))
    if len(train) % recipe.batch_size == 1:
        raise TembedError(
            f"{len(train)} training images in batches of {recipe.batch_size} leave a last batch of one, which batch "
            "normalisation cannot use: take another --batch-size or --train-images"
        )

    place: dict[str, Any] = {"rank": team.rank, "world_size": team.world}

    def shown(images: ImageSet) -> Batches:
        return Batches(images, EVAL_BATCH, mean=splits.mean, std=splits.std, augment=False, **place)

    return Inputs(
        splits,
        Batches(train, recipe.batch_size, mean=splits.mean, std=splits.std, seed=recipe.seed, **place),
        shown(splits.val),
        shown(splits.test),
    )


def evenly(labels: Tensor, classes: int, count: int, seed: int) -> Tensor:
    """Positions of ``count`` images, as many of each class as of any other, in ascending order.

    A larger count takes all that a smaller one takes, and more.
    """
    if count > len(labels):
        raise TembedError(f"--train-images is {count}, and there are {len(labels)} training images")
    dice = torch.Generator().manual_seed(derived_seed(seed, "train images"))
    order = torch.randperm(len(labels), generator=dice)
    turn = torch.empty_like(order)  # how many of its class come before it
    for label in range(classes):
        mine = labels[order] == label
        turn[mine] = torch.arange(int(mine.sum()))
    return order[turn.argsort(stable=True)[:count]].sort().values


def resized(images: Tensor, side: int) -> Tensor:
    """Images whose shorter side is ``side``, by area, in channels-last memory."""
    height, width = images.shape[2:]
    if min(height, width) == side:
        return images
    size = (round(side * height / min(height, width)), round(side * width / min(height, width)))
    return F.interpolate(images, size, mode="area").contiguous(memory_format=torch.channels_last)
