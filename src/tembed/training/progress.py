"""What a run tells the outside while it goes on."""

import sys
import time
from typing import Any, TextIO


class Watcher:
    """Says nothing; the base of those that do."""

    def say(self, line: str) -> None:
        """One line for the user, such as a warning."""

    def begin(self, epochs: int, images: int, done: int) -> None:
        """A run of ``epochs`` epochs of ``images`` images begins or goes on, with ``done`` images behind it."""

    def trained(self, epoch: int, images: int, loss: float) -> None:
        """A step in an epoch (from 0): ``images`` of it done, and the mean loss over them."""

    def evaluated(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` images of a part measured."""

    def epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is done."""

    def end(self) -> None:
        """The run is over, or stops here."""


class Lines(Watcher):
    """A plain line for each epoch, and now and then one within."""

    def __init__(self, file: TextIO | None = None, every: float = 30.0):
        self.file = file or sys.stderr
        self.every = every

    def say(self, line: str) -> None:
        print(line, file=self.file, flush=True)

    def begin(self, epochs: int, images: int, done: int) -> None:
        self.epochs, self.images, self.first = epochs, images, done
        self.start = self.last = time.monotonic()

    def trained(self, epoch: int, images: int, loss: float) -> None:
        now = time.monotonic()
        if now - self.last < self.every:
            return
        self.last = now
        rate = (epoch * self.images + images - self.first) / (now - self.start)
        left = (self.epochs * self.images - epoch * self.images - images) / rate
        self.say(
            f"epoch {epoch + 1}/{self.epochs}: {images:,} of {self.images:,} images, loss {loss:.3f}, "
            f"{rate:.0f} images/s, about {clock(left)} left"
        )

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.say(epoch_line(metrics, self.epochs))


def epoch_line(metrics: dict[str, Any], epochs: int) -> str:
    """An epoch's record as one line to read."""
    patches = "" if metrics["patches"] is None else f" patches {metrics['patches']:.3f}"
    return (
        f"epoch {metrics['epoch']}/{epochs}: loss head {metrics['head']:.3f}{patches}, "
        f"accuracy train {100 * metrics['accuracy']:.2f} val {100 * metrics['val_accuracy']:.2f} %, "
        f"rate {metrics['lr']:.2g}, {metrics['images_per_second']:.0f} images/s"
    )


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
