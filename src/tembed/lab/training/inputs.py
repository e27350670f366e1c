"""The images that a recipe trains on and is evaluated on (§4)."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from tembed.common.arrays import Triple
from tembed.common.errors import TembedError, first_line
from tembed.common.progress import SILENT, Progress
from tembed.lab.data.batches import Batches, evaluation_batches, training_batches
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.image_set import Splits
from tembed.lab.data.leaving_out import incomplete_scenes
from tembed.lab.data.loading import load
from tembed.lab.data.resized_crops import ResizedCrops
from tembed.lab.training.initial_weights import RANDOM, trained_size
from tembed.lab.training.process_group import SINGLE_PROCESS, ProcessGroup
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.schedule import derived_seed, image_side
from tembed.lab.training.starting import build, expected_normalisation
from tembed.models.conventions import CONVENTIONS
from tembed.models.foreign import is_foreign, is_ours
from tembed.models.registry import shrinks_early

EVAL_BATCH = 200
LARGEST_IN_PAPER = 84
"""Side of Mini-ImageNet's images in pixels."""


@dataclass(frozen=True)
class Inputs:
    """Batches of the three subsets of a dataset. ``splits.train`` is the whole training subset.

    ``mean`` and ``std`` normalise the images of all three.
    """

    splits: Splits
    train: Batches
    val: Batches
    test: Batches
    mean: Triple
    std: Triple

    @property
    def classes(self) -> tuple[str, ...]:
        return self.splits.train.classes

    @property
    def side(self) -> int:
        """The shorter side of the images in pixels."""
        return min(self.splits.train.size)

    @property
    def train_side(self) -> int:
        """The shorter side of the training images as they are shown; another one if they are resized crops."""
        source = self.train.source
        return source.side if isinstance(source, ResizedCrops) else self.side


def load_inputs(
    recipe: Recipe,
    root: str | Path | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
    progress: Progress = SILENT,
) -> Inputs:
    """The batches of a recipe, from the datasets in ``root``; each process of a group gets its share of them."""
    splits = stored = load(recipe.data, recipe.split, recipe.split_seed, root, progress)
    attached = is_foreign(recipe.model)
    if recipe.image_size is not None and not attached:  # an attached network resizes its images itself
        splits = stored.resized(recipe.image_size)
    for line in about_size(recipe, min(stored.train.size)):
        progress.say(line)
    train = stored.train if recipe.crops == "resized" else splits.train
    if len(train.classes) < 2:
        raise TembedError(
            f"{recipe.data} has only the class {train.classes[0]!r}, so there is nothing to learn: import a folder "
            "with at least 2 class folders"
        )
    if recipe.train_images is not None:
        train = train.subset(evenly(train.labels, len(train.classes), recipe.train_images, recipe.split_seed))
    if recipe.left_out == "parts":
        train = incomplete_scenes(train, dataset(recipe.data), recipe.seed)
        train = train if attached or recipe.crops == "resized" else train.resized(min(splits.train.size))
    mean, std = stored.mean, stored.std
    if not CONVENTIONS[recipe.conventions].divides_by_std:
        std = (1.0, 1.0, 1.0)
    if attached:
        mean, std = expected_normalisation(recipe, len(train.classes), min(splits.train.size)) or (mean, std)
    common: dict[str, Any] = {
        "mean": mean,
        "std": std,
        "rank": group.rank,
        "world_size": group.world,
    }

    inputs = Inputs(
        splits,
        training_batches(
            train,
            recipe.batch_size,
            seed=recipe.seed,
            flips=recipe.flips,
            lacks_cells=recipe.left_out == "cells",
            **common,
        ),
        evaluation_batches(splits.val, EVAL_BATCH, **common),
        evaluation_batches(splits.test, EVAL_BATCH, **common),
        mean,
        std,
    )
    if recipe.crops == "resized":
        resample = Image.Resampling.BILINEAR if attached else Image.Resampling.LANCZOS
        source = ResizedCrops(train, mean, std, recipe.flips, recipe.image_size or inputs.side, resample)
        inputs = dataclasses.replace(inputs, train=dataclasses.replace(inputs.train, source=source))
    if not attached and (recipe.batch_size == 1 or len(train) % recipe.batch_size == 1):
        _check_single_image(recipe, inputs)
    return inputs


def about_size(recipe: Recipe, side: int) -> Iterator[str]:
    """What the user should know about the size of the images; ``side`` is that of the dataset."""
    size, ours = recipe.image_size or side, is_ours(recipe.model)
    trained = trained_size(recipe.init) if ours and recipe.init not in (None, RANDOM) else None
    if size != side:
        why = f", the size of {recipe.init}; --image-size N changes it" if size == trained else ""
        yield f"images are resized from {side} to {size} pixels{why}"
    if trained is not None and shrinks_early(trained) != shrinks_early(size):
        yield (
            f"warning: {recipe.init} was trained on images of {trained} pixels, and a network for {size} pixels has "
            f"other strides (appendix A), so its features are not those of the weights: leave out --image-size"
        )
    elif ours and trained is None and size > LARGEST_IN_PAPER:
        times = (size / LARGEST_IN_PAPER) ** 2
        yield (
            f"note: images of {size} pixels are larger than the paper's (32 and {LARGEST_IN_PAPER}); --image-size "
            f"{LARGEST_IN_PAPER} makes a step about {times:.0f} times as fast"
        )


def evenly(labels: Tensor, classes: int, count: int, seed: int) -> Tensor:
    """Positions of ``count`` images, the same number of each class where possible, in ascending order.

    A larger count selects all images of a smaller one, and more.
    """
    if count > len(labels):
        raise TembedError(f"`train_images` is {count}, but there are only {len(labels)} training images")
    generator = torch.Generator().manual_seed(derived_seed(seed, "train images"))
    order = torch.randperm(len(labels), generator=generator)
    turn = torch.empty_like(order)  # how many images of its class come before it
    for label in range(classes):
        same = labels[order] == label
        turn[same] = torch.arange(int(same.sum()))
    return order[turn.argsort(stable=True)[:count]].sort().values


def balancing_weights(labels: Tensor, classes: int) -> Tensor:
    """The weight of each class that gives all classes the same total: ``N / (C n_c)``, ``(C,)``. Its mean is 1."""
    counts = torch.bincount(labels, minlength=classes)
    return len(labels) / (int((counts > 0).sum()) * counts.clamp(min=1).double())


def _check_single_image(recipe: Recipe, inputs: Inputs) -> None:
    """Refuse batches of one image if the network normalises a map of one pixel: a single value has no variance.

    A training step on the meta device, which computes only shapes, detects this before the run starts.
    """
    recipe = recipe.complete()
    side = image_side(recipe, 0, inputs.train_side)
    try:
        with torch.device("meta"):
            build(recipe, len(inputs.classes), inputs.side).train()(torch.empty(1, 3, side, side))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise TembedError(
            f"{len(inputs.train.images)} training images in batches of {recipe.batch_size} make a batch of one, and "
            f"{recipe.model} would normalise a single value per channel ({first_line(error)}): give another "
            "`batch_size` or `train_images`"
        ) from None
