"""What a grid tells the outside while it goes on."""

import sys
import time
from typing import Any, TextIO

from tembed.experiments.places import Place
from tembed.training.progress import clock


class GridWatcher:
    """Says nothing; the base of those that do."""

    def say(self, line: str) -> None:
        """One line for the user: a run ended, a warning."""

    def begin(self, runs: int) -> None:
        """A grid of this many runs begins or goes on."""

    def show(self, done: int, failed: int, running: dict[Place, dict[str, Any]]) -> None:
        """How far all runs are; each running one with what it last told."""

    def end(self) -> None:
        """The grid is over, or stops here."""


class GridLines(GridWatcher):
    """A line when something happens, and now and then one on all runs."""

    def __init__(self, file: TextIO | None = None, every: float = 60.0):
        self.file = file or sys.stderr
        self.every = every

    def say(self, line: str) -> None:
        print(line, file=self.file, flush=True)

    def begin(self, runs: int) -> None:
        self.runs, self.last = runs, time.monotonic()

    def show(self, done: int, failed: int, running: dict[Place, dict[str, Any]]) -> None:
        now = time.monotonic()
        if now - self.last < self.every:
            return
        self.last = now
        self.say(f"{done} of {self.runs} runs finished" + (f", {failed} failed" if failed else ""))
        for place, told in running.items():
            self.say(f"  {place.name}: {progress_note(told)}")


def progress_note(told: dict[str, Any]) -> str:
    """What a run last told, as words."""
    try:
        return (
            f"epoch {told['epoch']}/{told['epochs']}, {100 * told['share']:.0f} %, loss {told['loss']:.3f}, "
            f"{told['images_per_second']:.0f} images/s, about {clock(told['seconds_left'])} left"
        )
    except (LookupError, TypeError, ValueError):
        return "starting, or waiting for a place"
