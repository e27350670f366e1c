"""How long a run will take, from a few steps of it on this machine.

The steps are real ones of the run's network, loss and batch, on noise of its images' size, and the fastest counts: it
is the time on a machine that does nothing else. A step that takes seconds, as with 600 draws, is timed on few images.
"""

import difflib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tembed.data.catalogue import list_datasets
from tembed.data.sources import open_dataset
from tembed.data.storage import is_stored, stored_names
from tembed.errors import TembedError
from tembed.experiments.grid.folders import Place
from tembed.experiments.grid.specification import Grid
from tembed.losses import EmbeddingLoss
from tembed.training.inputs import EVAL_BATCH
from tembed.training.optimizers import make_optimizer
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
        from tembed.data.loading import split_indices

        stored = open_dataset(recipe.data, root)
        places = split_indices(stored, recipe.split, recipe.split_seed)
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


DAY = 86400.0


def check_data(grid: Grid, root: str, *, stored: bool) -> None:
    """`TembedError` for a dataset that nobody knows, and if asked for, for one that is not there yet."""
    here = Path(root)
    for name in dict.fromkeys(recipe.data for recipe in grid.recipes):
        if name == "parts" or is_stored(here, name):
            continue
        if name in list_datasets():
            if stored:
                raise TembedError(f"{name} is not in {root}: run `tembed data get {name}`")
            continue
        names = sorted({*list_datasets(), *stored_names(here)})
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        raise TembedError(f"{grid.name}: unknown dataset {name!r}; {hint}")


def preview(grid: Grid, places: list[Place], root: str, threads: int, jobs: int | None) -> str:
    """A table of the runs with an estimate of time. ``jobs`` is how many go on at once, if that is known."""
    import torch

    from tembed.experiments.grid.preview import measure_speed, run_seconds, same_speed, shape_of

    torch.set_num_threads(threads)
    speeds, rows, slow = {}, [("run", "state", "epochs", "left, about")], {}
    left = []
    for place in places:
        recipe, state, done = place.recipe, place.state(), place.epochs_done()
        if state == "finished":
            rows.append((place.name, state, f"{done}/{recipe.epochs}", "-"))
            continue
        key, shape = same_speed(recipe), shape_of(recipe, root)
        if key not in speeds:
            speeds[key] = measure_speed(recipe, shape)
        seconds = run_seconds(recipe, shape, speeds[key], done)
        left.append(seconds)
        rows.append((place.name, state, f"{done}/{recipe.epochs}", duration(seconds)))
        if seconds > DAY:
            slow[key] = (recipe, seconds)
    lines = [f"{grid.name}: {grid.about}" if grid.about else grid.name, "", *aligned(rows), ""]
    lines.append(
        f"{len(places)} runs, {len(places) - len(left)} of them finished; left: about {duration(sum(left))} of work"
    )
    if jobs is not None and jobs > 1 and left:
        lines[-1] += f", {duration(max(sum(left) / jobs, max(left)))} with {jobs} runs at a time"
    if left:
        lines.append(
            f"estimated from a few steps each on this machine, just now, with {threads} threads a run: a rough guess"
        )
    lines += [f"warning: {described(recipe)} needs about {duration(time)} a run" for recipe, time in slow.values()]
    failed = [(place.name, why) for place in places if (why := place.failure())]
    return "\n".join([*lines, *(f"failed before: {name}: {why}" for name, why in failed)])


def described(recipe: Recipe) -> str:
    """Enough of a recipe to know which it is."""
    swapped = "" if recipe.maximizer in (None, "bn-relu") else f" with {recipe.maximizer}"
    draws = " (600 draws at each pixel)" if recipe.maximizer == "perturbed-sampled" else ""
    return f"{recipe.model}{swapped}{draws} on {recipe.data}, batch {recipe.batch_size}, {recipe.epochs} epochs,"


def duration(seconds: float) -> str:
    """Two units at most: ``3 d 4 h``, ``2 h 5 min``, ``40 s``."""
    units = [("d", DAY), ("h", 3600.0), ("min", 60.0), ("s", 1.0)]
    for (name, size), (smaller, part) in itertools.pairwise(units):
        if seconds >= size:
            whole, rest = divmod(round(seconds / part), round(size / part))
            return f"{whole} {name} {rest} {smaller}" if rest and whole < 100 else f"{whole} {name}"
    return f"{max(1, round(seconds))} s"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines with columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
