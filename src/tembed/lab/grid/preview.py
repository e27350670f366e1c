"""The runs of a grid as a table, with an estimate of the time that each still needs.

The estimate measures a few real training steps of each network, loss and batch size on the device that the runs use, on
noise of the images' size, and extrapolates. The fastest step counts, because other load makes steps slower. A step that
takes seconds, as with 600 samples, is measured on a few images.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tembed.common.errors import TembedError, counted
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.getting import open_dataset
from tembed.lab.data.splits import split_indices
from tembed.lab.grid.grid_file import Grid
from tembed.lab.grid.jobs import GridRun
from tembed.lab.training.inputs import EVAL_BATCH
from tembed.lab.training.optimizers import make_optimizer
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.schedule import image_side
from tembed.lab.training.starting import build
from tembed.loss import EmbeddingLoss

MEASURED_SECONDS = 1.0
"""How long to repeat a training step, in seconds."""
SHARES = (0.65, 0.15, 0.20)
"""Train, validation and test of the paper's split."""
UNITS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0))


@dataclass(frozen=True)
class DataSize:
    """A dataset's image side, its number of classes, and the number of images in each subset."""

    side: int
    classes: int
    train: int
    val: int
    test: int


@dataclass(frozen=True)
class Speed:
    """Seconds per image of a training step at full size, and of an evaluation."""

    train: float
    evaluate: float


def preview(grid: Grid, runs: list[GridRun], root: str, device: str, threads: int, jobs: int = 1) -> str:
    """The table and the total, for ``jobs`` runs at a time."""
    torch.set_num_threads(threads)
    rows, left = [("run", "state", "epochs", "time left")], []
    speeds: dict[object, Speed] = {}
    for run in runs:
        recipe, state, done, time_left = run.recipe, run.state(), run.epochs_done(), "-"
        if state != "finished":
            key, size = _speed_key(recipe), data_size(recipe, root)
            if key not in speeds:
                speeds[key] = measure_speed(recipe, size, device)
            left.append(run_seconds(recipe, size, speeds[key], done))
            time_left = duration(left[-1])
        rows.append((run.name, state, f"{done}/{recipe.epochs}", time_left))
    total = f"{counted(len(runs), 'run')}, {len(runs) - len(left)} of them finished"
    if left:
        total += f"; about {duration(sum(left))} of work left"
        if jobs > 1:
            total += f", {duration(max(sum(left) / jobs, max(left)))} with {jobs} runs at a time"
        total += f" ({device}, {counted(threads, 'thread')} per run; a rough estimate from a few steps)"
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([f"{grid.name}: {grid.about}" if grid.about else grid.name, "", *table, "", total])


def data_size(recipe: Recipe, root: str) -> DataSize:
    """From the stored dataset, else from its record."""
    try:
        stored = open_dataset(recipe.data, root)
        split = split_indices(stored, recipe.split, recipe.split_seed)
        counts = [len(split.train), len(split.val), len(split.test)]
        side, classes = min(stored.images.shape[1:3]), len(stored.classes)
    except TembedError:
        record = dataset(recipe.data)
        if record.side is None or record.num_classes is None or record.images is None:
            raise
        side, classes = record.side, record.num_classes
        counts = [round(record.images * share) for share in SHARES]
    return DataSize(side, classes, recipe.train_images or counts[0], counts[1], counts[2])


def measure_speed(recipe: Recipe, size: DataSize, device: str = "cpu") -> Speed:
    """Measure some steps of a complete recipe with torch's current number of threads."""
    model = build(recipe, size.classes, size.side).to(device)
    optimizer, loss = make_optimizer(recipe, model), EmbeddingLoss(recipe.weight or 0.0)

    def train(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        loss(model.train()(images), labels).backward()
        optimizer.step()

    @torch.no_grad()
    def evaluate(images: Tensor, labels: Tensor) -> None:
        model.eval()(images)

    def seconds(work: Callable[[Tensor, Tensor], None], count: int) -> float:
        """Per image, for a batch of this size."""
        images = torch.randn(count, 3, size.side, size.side).to(device, memory_format=torch.channels_last)
        labels = torch.randint(size.classes, (count,)).to(device)
        start = time.perf_counter()
        work(images, labels)
        if device != "cpu":
            getattr(torch, device).synchronize()
        return (time.perf_counter() - start) / count

    def fastest(work: Callable[[Tensor, Tensor], None], batch: int) -> float:
        few = min(4, batch)
        times = [seconds(work, 2), seconds(work, few)]  # the first step also initialises lazily
        if times[1] * batch > 5 * MEASURED_SECONDS:
            return min(times)
        end, times = time.monotonic() + MEASURED_SECONDS, []
        while time.monotonic() < end or len(times) < 3:
            times.append(seconds(work, batch))
        return min(times)

    return Speed(fastest(train, recipe.batch_size), fastest(evaluate, EVAL_BATCH // 4))


def run_seconds(recipe: Recipe, size: DataSize, speed: Speed, epochs_done: int = 0) -> float:
    """The time for the remaining epochs, each with its validation, and for the test."""
    total = size.test * speed.evaluate
    for epoch in range(epochs_done, recipe.epochs):
        area = (image_side(recipe, epoch, size.side) / size.side) ** 2
        total += size.train * speed.train * area + size.val * speed.evaluate
    return total


def _speed_key(recipe: Recipe) -> tuple[object, ...]:
    """Runs with the same key are measured once."""
    return (recipe.data, recipe.batch_size, recipe.optimizer, *sorted(recipe.model_options().items()), recipe.model)


def duration(seconds: float) -> str:
    """Such as ``3.2 days``, ``5.1 h`` or ``40 s``."""
    for unit, size in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1, round(seconds))} s"
