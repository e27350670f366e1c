"""How long a run will take, from a few steps of it on this machine.

The steps are real ones of the run's network, loss and batch, on noise of its images' size, and the fastest counts: it
is the time on a machine that does nothing else. A step that takes seconds, as with 600 draws, is timed on few images.
"""

import time
from dataclasses import dataclass

import torch

from tembed.data.sources import opened
from tembed.errors import TembedError
from tembed.losses import EmbeddingLoss
from tembed.training.inputs import EVAL_BATCH
from tembed.training.loop import make_optimizer
from tembed.training.recipe import Recipe
from tembed.training.schedule import image_side
from tembed.training.weights import build

MEASURED = 1.0
"""Seconds of steps that are enough."""
SHAPES = {"cifar10": (32, 10), "cifar100": (32, 100), "mini-imagenet": (84, 100)}
POOL = 60_000
"""Images of each of these."""
SHARES = (0.65, 0.15, 0.20)


@dataclass(frozen=True)
class Speed:
    """Seconds an image takes in a training step at full size, and to measure."""

    train: float
    evaluate: float


@dataclass(frozen=True)
class Shape:
    """A dataset's side in pixels, its classes, and the images in its three parts."""

    side: int
    classes: int
    train: int
    val: int
    test: int


def shape_of(recipe: Recipe, root: str) -> Shape:
    """From the stored dataset, else from what is known of it."""
    try:
        from tembed.data.loading import places_of

        stored = opened(recipe.data, root)
        places = places_of(stored, recipe.split, recipe.split_seed)
        counts = [len(places.train), len(places.val), len(places.test)]
        side, classes = min(stored.images.shape[1:3]), len(stored.classes)
    except TembedError:
        if recipe.data not in SHAPES:
            raise
        side, classes = SHAPES[recipe.data]
        counts = [round(POOL * share) for share in SHARES]
    return Shape(side, classes, recipe.train_images or counts[0], counts[1], counts[2])


def measure_speed(recipe: Recipe, shape: Shape) -> Speed:
    """Some steps of a complete recipe, with torch's present number of threads."""
    model = build(recipe, shape.classes, shape.side).train()
    optimizer, loss = make_optimizer(recipe, model), EmbeddingLoss(recipe.weight or 0.0)

    def step(count: int) -> float:
        images = torch.randn(count, 3, shape.side, shape.side).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(shape.classes, (count,))
        with _Watch() as watch:
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()
        return watch.seconds

    few = min(4, recipe.batch_size)
    each = [step(2) / 2, step(few) / few]  # the first also makes what is made on first use
    slow = min(each) * recipe.batch_size > 5 * MEASURED  # then the few say enough
    if not slow:
        seconds, each = 0.0, []
        while seconds < MEASURED or len(each) < 3:
            each.append(step(recipe.batch_size) / recipe.batch_size)
            seconds += each[-1] * recipe.batch_size
    return Speed(min(each), _measure_evaluation(model, shape, slow))


@torch.no_grad()
def _measure_evaluation(model: torch.nn.Module, shape: Shape, slow: bool) -> float:
    model.eval()
    count = 4 if slow else EVAL_BATCH // 4
    images = torch.randn(count, 3, shape.side, shape.side).contiguous(memory_format=torch.channels_last)
    with _Watch() as watch:
        model(images)
    return watch.seconds / count


class _Watch:
    """Seconds by the clock, or of the processor if that is less: then others had the machine meanwhile."""

    def __enter__(self) -> "_Watch":
        self.start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        clock, processor = self.start
        self.seconds = min(time.perf_counter() - clock, time.process_time() - processor)


def run_seconds(recipe: Recipe, shape: Shape, speed: Speed, epochs_done: int = 0) -> float:
    """What is left of a run: its epochs, each with its validation, and the test."""
    total = shape.test * speed.evaluate
    for epoch in range(epochs_done, recipe.epochs):
        area = (image_side(recipe, epoch, shape.side) / shape.side) ** 2
        total += shape.train * speed.train * area + shape.val * speed.evaluate
    return total


def same_speed(recipe: Recipe) -> tuple[object, ...]:
    """Runs that agree in this are measured once."""
    r = recipe
    return (r.model, r.data, r.batch_size, r.maximizer, r.softmax_on_bn, r.smooth_shortcut)
