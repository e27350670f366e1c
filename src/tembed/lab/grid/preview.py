"""The runs of a grid as a table, with an estimate of the time that each still needs.

The estimate measures a few real training steps of each network, loss and batch size on this machine, on noise of the
images' size, and extrapolates. The fastest step counts: it is the time on a machine without other load. A step that
takes seconds, as with 600 samples, is measured on a few images.
"""

import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

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
DAY = 86400.0


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


def preview(grid: Grid, runs: list[GridRun], root: str, threads: int, jobs: int | None, startup: float = 0.0) -> str:
    """The table, the total, and warnings.

    ``jobs``: the number of runs at a time, if known. ``startup``: the seconds that a worker needs before it trains.
    """
    torch.set_num_threads(threads)
    rows, warnings, left = [("run", "state", "epochs", "time left")], {}, []
    speeds: dict[object, Speed] = {}
    for run in runs:
        recipe, state, done = run.recipe, run.state(), run.epochs_done()
        if state == "finished":
            rows.append((run.name, state, f"{done}/{recipe.epochs}", "-"))
            continue
        key, size = _speed_key(recipe), data_size(recipe, root)
        if key not in speeds:
            speeds[key] = measure_speed(recipe, size)
        left.append(startup + run_seconds(recipe, size, speeds[key], done))
        rows.append((run.name, state, f"{done}/{recipe.epochs}", duration(left[-1])))
        if left[-1] > DAY:
            warnings[key] = f"warning: {_describe(recipe)} needs about {duration(left[-1])} per run"
    finished = f"{counted(len(runs), 'run')}, {len(runs) - len(left)} of them finished"
    total = f"{finished}; about {duration(sum(left))} of work left"
    if jobs is not None and jobs > 1 and left:
        total += f", {duration(max(sum(left) / jobs, max(left)))} with {jobs} runs at a time"
    lines = [f"{grid.name}: {grid.about}" if grid.about else grid.name, "", *_aligned(rows), "", total]
    if left:
        lines.append(
            f"This is a rough estimate from a few steps on this machine with {counted(threads, 'thread')} per run."
        )
    failed = [f"failed before: {run.name}: {reason}" for run in runs if (reason := run.failure())]
    return "\n".join([*lines, *warnings.values(), *failed])


def startup_seconds() -> float:
    """The time that a worker needs to start Python and load torch, measured by starting one."""
    with _Stopwatch(resource.RUSAGE_CHILDREN) as watch:
        subprocess.run([sys.executable, "-c", "import tembed.lab.training.loop"], check=True)
    return watch.seconds


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


def measure_speed(recipe: Recipe, size: DataSize) -> Speed:
    """Measure some steps of a complete recipe with torch's current number of threads."""
    model = build(recipe, size.classes, size.side).train()
    optimizer, loss = make_optimizer(recipe, model), EmbeddingLoss(recipe.weight or 0.0)

    def step(count: int) -> float:
        images = torch.randn(count, 3, size.side, size.side).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(size.classes, (count,))
        with _Stopwatch() as watch:
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()
        return watch.seconds

    few = min(4, recipe.batch_size)
    per_image = [step(2) / 2, step(few) / few]  # the first step also initialises lazily
    slow = min(per_image) * recipe.batch_size > 5 * MEASURED_SECONDS  # then a few images are enough
    if not slow:
        seconds, per_image = 0.0, []
        while seconds < MEASURED_SECONDS or len(per_image) < 3:
            per_image.append(step(recipe.batch_size) / recipe.batch_size)
            seconds += per_image[-1] * recipe.batch_size
    return Speed(min(per_image), _evaluation_seconds(model, size, slow))


@torch.no_grad()
def _evaluation_seconds(model: torch.nn.Module, size: DataSize, slow: bool) -> float:
    model.eval()
    count = 4 if slow else EVAL_BATCH // 4
    images = torch.randn(count, 3, size.side, size.side).contiguous(memory_format=torch.channels_last)
    with _Stopwatch() as watch:
        model(images)
    return watch.seconds / count


class _Stopwatch:
    """Wall time, or CPU time if that is smaller: then other processes used the machine meanwhile."""

    def __init__(self, whose: int = resource.RUSAGE_SELF):
        self.whose = whose

    def _times(self) -> tuple[float, float]:
        used = resource.getrusage(self.whose)
        return time.perf_counter(), used.ru_utime + used.ru_stime

    def __enter__(self) -> "_Stopwatch":
        self.start = self._times()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = min(end - start for start, end in zip(self.start, self._times(), strict=True))


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


def _describe(recipe: Recipe) -> str:
    """A short description by which the user recognises a recipe."""
    maximizer = "" if recipe.maximizer in (None, "bn-relu") else f" with {recipe.maximizer}"
    samples = " (600 samples per pixel)" if recipe.maximizer == "perturbed-sampled" else ""
    return f"{recipe.model}{maximizer}{samples} on {recipe.data}, batch {recipe.batch_size}, {recipe.epochs} epochs,"


def duration(seconds: float) -> str:
    """Two units at most: ``3 d 4 h``, ``2 h 5 min``, ``40 s``."""
    units = [("d", DAY), ("h", 3600.0), ("min", 60.0), ("s", 1.0)]
    for (name, size), (smaller, small_size) in itertools.pairwise(units):
        if seconds >= size:
            whole, rest = divmod(round(seconds / small_size), round(size / small_size))
            return f"{whole} {name} {rest} {smaller}" if rest and whole < 100 else f"{whole} {name}"
    return f"{max(1, round(seconds))} s"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
