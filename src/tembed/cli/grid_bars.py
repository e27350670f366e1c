"""Progress of a grid: a bar for all runs and one for each that is running on a terminal, plain lines elsewhere."""

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tembed.experiments.places import Place
from tembed.experiments.progress import GridLines, GridWatcher, progress_note


def grid_watcher(quiet: bool = False) -> GridWatcher:
    """What suits where stderr goes."""
    if quiet:
        return GridWatcher()
    return GridBars() if sys.stderr.isatty() else GridLines()


class GridBars(GridWatcher):
    """Writes to stderr. The upper bar counts runs, those that are running by their share."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self.all: TaskID | None = None
        self.bars: dict[Place, TaskID] = {}

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    def begin(self, runs: int) -> None:
        self.runs = runs
        self.progress.start()
        self.all = self.progress.add_task("all runs", total=runs, note="")

    def show(self, done: int, failed: int, running: dict[Place, dict[str, Any]]) -> None:
        assert self.all is not None
        started = {place: told for place, told in running.items() if told}
        share = sum(told.get("share", 0.0) for told in started.values())
        note = f"{done}/{self.runs} finished, {len(started)} running" + (f", {failed} failed" if failed else "")
        self.progress.update(self.all, completed=done + share, note=note)
        for place in [place for place in self.bars if place not in started]:
            self.progress.remove_task(self.bars.pop(place))
        for place, told in started.items():
            if place not in self.bars:
                self.bars[place] = self.progress.add_task(place.name, total=1.0, note="")
            self.progress.update(self.bars[place], completed=told.get("share", 0.0), note=progress_note(told))

    def end(self) -> None:
        self.progress.stop()
