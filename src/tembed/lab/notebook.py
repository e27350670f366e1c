"""Progress in a notebook: one output that is updated in place. It needs IPython, which every notebook kernel has."""

import time
from collections.abc import Callable
from html import escape
from typing import Any

from tembed.common.errors import TembedError
from tembed.common.progress import Progress, Rate, describe, epoch_line

EVERY = 0.5
"""Seconds between two updates: each one is a message to the browser."""
LAST = 10
"""Lines in the plain text, which a notebook shows only where it cannot show HTML."""


class Notebook(Progress):
    """A bar for each running task, and below it the lines so far.

    ``display(data, raw=True, display_id=True)`` returns a handle with ``update(data, raw=True)``, as
    ``IPython.display.display`` does; ``data`` holds the output as ``text/plain`` and as ``text/html``.
    """

    def __init__(self, display: Callable[..., Any] | None = None, every: float = EVERY):
        self.display = display or _ipython_display()
        self.every = every
        self._forget()

    def say(self, line: str) -> None:
        self.lines.append(line)
        self._show()

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        now = time.monotonic()
        rate = self.rates.setdefault(task, Rate(done, now))
        line = describe(task, done, total, numbers, rate.seconds_left(done, total, now))
        self.tasks[task] = line, done / total if total else None
        if total and done >= total:
            self.drop(task)
        elif now - self.last >= self.every:
            self._show()

    def drop(self, task: str) -> None:
        self.rates.pop(task, None)
        if self.tasks.pop(task, None) is not None:
            self._show()

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        self.say(epoch_line(metrics, epochs))

    def close(self) -> None:
        """Leave the lines without the bars; the next event starts a new output."""
        self.tasks.clear()
        if self.handle is not None:
            self._show()
        self._forget()

    def _forget(self) -> None:
        self.handle: Any = None
        self.last = float("-inf")
        self.lines: list[str] = []
        self.tasks: dict[str, tuple[str, float | None]] = {}  # a line, and the share that is done
        self.rates: dict[str, Rate] = {}

    def _show(self) -> None:
        tasks = self.tasks.values()
        data = {
            "text/plain": "\n".join([*self.lines[-LAST:], *(line for line, _ in tasks)]),
            "text/html": "".join(_bar(line, share) for line, share in tasks) + _box(self.lines),
        }
        if self.handle is None:
            self.handle = self.display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)
        self.last = time.monotonic()


def _bar(line: str, share: float | None) -> str:
    value = "" if share is None else f' value="{share:.4f}"'  # no value: indeterminate
    return f"<div><progress{value}></progress> {escape(line)}</div>"


def _box(lines: list[str]) -> str:
    """The lines in a box of limited height, scrolled to its end."""
    if not lines:
        return ""
    style = "max-height: 20em; overflow: auto; display: flex; flex-direction: column-reverse"
    return f'<div style="{style}"><pre>{escape(chr(10).join(lines))}</pre></div>'


def _ipython_display() -> Callable[..., Any]:
    try:
        from IPython.display import display
    except ModuleNotFoundError:
        raise TembedError("the notebook's progress needs IPython, which every notebook kernel has") from None
    return display
