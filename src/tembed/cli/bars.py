"""Progress of a run: a bar with throughput and time left on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tembed.training.progress import Lines, Watcher, epoch_line


def watcher(quiet: bool = False) -> Watcher:
    """What suits where stderr goes."""
    if quiet:
        return Watcher()
    return Bars() if sys.stderr.isatty() else Lines()


class Bars(Watcher):
    """A bar for the run, and one for a part that is measured meanwhile. Writes to stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self.run: TaskID | None = None
        self.parts: dict[str, TaskID] = {}

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    def begin(self, epochs: int, images: int, done: int) -> None:
        self.epochs, self.images = epochs, images
        self.recent = (time.monotonic(), done, 0.0)  # when, images done, images a second
        self.progress.start()
        self.run = self.progress.add_task("training", total=epochs * images, completed=done, note="")

    def trained(self, epoch: int, images: int, loss: float) -> None:
        assert self.run is not None
        done, (then, before, rate), now = epoch * self.images + images, self.recent, time.monotonic()
        if now - then > 1:
            rate = (done - before) / (now - then)
            self.recent = (now, done, rate)
        self.progress.update(
            self.run,
            completed=done,
            description=f"epoch {epoch + 1}/{self.epochs}",
            note=f"loss {loss:.3f}" + (f"  {rate:.0f} images/s" if rate else ""),
        )

    def evaluated(self, what: str, done: int, total: int) -> None:
        self.progress.start()
        if what not in self.parts:
            self.parts[what] = self.progress.add_task(what, total=total, note="")
        self.progress.update(self.parts[what], completed=done, note=f"{done:,} images")
        if done == total:
            self.progress.remove_task(self.parts.pop(what))
            self.recent = (time.monotonic(), *self.recent[1:]) if self.run is not None else (0.0, 0, 0.0)

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.say(epoch_line(metrics, self.epochs))

    def end(self) -> None:
        self.progress.stop()
