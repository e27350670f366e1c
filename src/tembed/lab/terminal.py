"""Progress bars on a terminal."""

import sys
from typing import IO, Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from tembed.common.errors import one_line
from tembed.common.output import RobustStream
from tembed.common.progress import SILENT, Lines, Progress, Several, epoch_line, number_text

__all__ = ["SILENT", "Bars", "Lines", "Progress", "Several", "stderr_progress"]


def stderr_progress(quiet: bool = False) -> Progress:
    """Bars on a terminal, plain lines elsewhere, or nothing."""
    if quiet:
        return Progress()
    return Bars() if sys.stderr.isatty() else Lines()


class Bars(Progress):
    """A bar for each running task. Writes to stderr, so that stdout holds results only."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.console.file = cast(IO[str], RobustStream(cast(TextIO, self.console.file), OSError))
        self.bars = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[note]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self.tasks: dict[str, TaskID] = {}

    def say(self, line: str) -> None:
        self.console.print(one_line(line), markup=False)

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        if task not in self.tasks:
            self.bars.start()
            self.tasks[task] = self.bars.add_task(task, total=total or None, note="")
        title = f"epoch {numbers['epoch']}/{numbers['epochs']}" if "epoch" in numbers else one_line(task)
        note = "  ".join(number_text(k, v) for k, v in numbers.items() if k not in ("epoch", "epochs"))
        self.bars.update(self.tasks[task], completed=done, total=total or None, description=title, note=note)
        if total and done >= total:
            self.drop(task)

    def drop(self, task: str) -> None:
        if task in self.tasks:
            self.bars.remove_task(self.tasks.pop(task))

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        self.say(epoch_line(metrics, epochs))

    def close(self) -> None:
        for task in list(self.tasks):
            self.drop(task)
        self.bars.stop()
