"""Progress of long work: bars on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tembed.data.reporting import Reporter

STEP = 10  # percent between plain lines


class Terminal(Reporter):
    """Writes to stderr, so that stdout holds results only."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bars = Progress(*columns, console=self.console) if self.console.is_terminal else None
        self.tasks: dict[str, TaskID] = {}
        self.said: dict[str, int] = {}

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    def progress(self, what: str, done: int, total: int) -> None:
        if self.bars is not None:
            if what not in self.tasks:
                self.tasks[what] = self.bars.add_task(what, total=total or None)
            self.bars.update(self.tasks[what], completed=done, total=total or None)
            return
        step = done * 100 // total // STEP if total else 0
        if step > self.said.get(what, 0):
            self.said[what] = step
            self.say(f"{what}: {done:,} of {total:,}")

    def __enter__(self) -> "Terminal":
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None:
            self.bars.stop()
