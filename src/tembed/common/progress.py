"""The observer of long work: data, training, grids and analysis report to one `Progress`."""

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TextIO

from tembed.common.errors import one_line
from tembed.common.output import discard


class Progress:
    """Shows nothing. Subclasses override the events that they show or record.

    An observer can watch several pieces of work one after the other: `close` ends one, and the next event starts
    another. It is also a context manager that closes itself.
    """

    def say(self, line: str) -> None:
        """One line for the user, such as a warning."""

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        """``done`` of ``total`` units of ``task`` are done; a total of 0 is unknown. ``numbers`` go next to the bar.

        Training gives ``epoch``, ``epochs`` and ``loss`` after every step.
        """

    def drop(self, task: str) -> None:
        """``task`` ended before it was complete."""

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        """One of ``epochs`` training epochs is done; ``metrics`` is its line of ``metrics.jsonl``."""

    def close(self) -> None:
        """The work is over, or stops here."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


SILENT = Progress()
"""Shows nothing."""


class Several(Progress):
    """Forwards every event to each of these observers, in their order."""

    def __init__(self, *observers: Progress):
        self.observers = observers

    def say(self, line: str) -> None:
        for observer in self.observers:
            observer.say(line)

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        for observer in self.observers:
            observer.update(task, done, total, **numbers)

    def drop(self, task: str) -> None:
        for observer in self.observers:
            observer.drop(task)

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        for observer in self.observers:
            observer.epoch(metrics, epochs)

    def close(self) -> None:
        """Close all of them, even if one of them fails."""
        with ExitStack() as stack:
            for observer in reversed(self.observers):
                stack.callback(observer.close)


class Lines(Progress):
    """Plain lines: one for each epoch, and one for each running task every ``every`` seconds."""

    def __init__(self, file: TextIO | None = None, every: float = 30.0):
        self.file = file or sys.stderr
        self.every = every
        self.rates: dict[str, Rate] = {}
        self.last: dict[str, float] = {}

    def say(self, line: str) -> None:
        try:
            print(one_line(line), file=self.file, flush=True)
        except OSError:  # its reader has gone, or its terminal was closed
            discard(self.file)

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        now = time.monotonic()
        rate = self.rates.setdefault(task, Rate(done, now))
        if now - self.last.setdefault(task, now) < self.every:
            return
        self.last[task] = now
        self.say(describe(task, done, total, numbers, rate.seconds_left(done, total, now)))

    def drop(self, task: str) -> None:
        self.rates.pop(task, None)
        self.last.pop(task, None)

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        self.say(epoch_line(metrics, epochs))

    def close(self) -> None:
        self.rates.clear()
        self.last.clear()


class Rate:
    """The speed of a task since its first update, which need not be at its start."""

    def __init__(self, done: float, now: float):
        self.first, self.start = done, now

    def per_second(self, done: float, now: float) -> float:
        return (done - self.first) / max(now - self.start, 1e-9)

    def seconds_left(self, done: float, total: float, now: float) -> float | None:
        """None while the speed or the total is unknown."""
        rate = self.per_second(done, now)
        return (total - done) / rate if rate > 0 and total else None


def describe(task: str, done: float, total: float, numbers: dict[str, Any], seconds_left: float | None = None) -> str:
    """A task's state as one line."""
    if "epoch" in numbers:
        words = [f"epoch {numbers['epoch']}/{numbers['epochs']}, {100 * done / total:.0f} %"]
    elif total == 1:
        words = [f"{100 * done:.0f} %"]
    else:
        words = [f"{done:,.0f} of {total:,.0f}" if total else f"{done:,.0f}"]
    words += [number_text(name, value) for name, value in numbers.items() if name not in ("epoch", "epochs")]
    if seconds_left is not None:
        words.append(f"about {clock(seconds_left)} left")
    return f"{task}: {', '.join(words)}"


def number_text(name: str, value: Any) -> str:
    """``loss 1.234``, ``49 images/s``, ``3 running``."""
    if name == "images_per_second":
        return f"{value:.0f} images/s"
    if isinstance(value, int):
        return f"{value} {name}"
    return f"{name.replace('_', ' ')} {value:.3f}" if isinstance(value, float) else f"{name} {value}"


def epoch_line(metrics: dict[str, Any], epochs: int) -> str:
    """An epoch's record as one readable line."""
    patches = "" if metrics["patches"] is None else f" patches {metrics['patches']:.3f}"
    share = metrics["variance_share"]
    block = "" if share is None else f"f' {100 * share:.1f} % of the block's variance, "
    return (
        f"epoch {metrics['epoch']}/{epochs}: loss head {metrics['head']:.3f}{patches}, "
        f"accuracy train {100 * metrics['accuracy']:.2f} val {100 * metrics['val_accuracy']:.2f} %, "
        f"{block}rate {metrics['lr']:.2g}, {metrics['images_per_second']:.0f} images/s"
    )


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
