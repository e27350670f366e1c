"""SIGTERM and Ctrl-C as a wish that the loop asks for, so that a run stops between two steps and not within one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """The run was asked to stop, and has saved what it did."""

    def __init__(self, number: int, where: str):
        super().__init__(f"stopped {where}; run the same command again to go on from there")
        self.number, self.where = number, where


class Wish:
    """The signal that asked to stop, if any."""

    def __init__(self) -> None:
        self.number: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:  # asked twice: at once
            raise KeyboardInterrupt
        self.number = number


@contextmanager
def listening() -> Iterator[Wish]:
    """Catches the signals while in the block. Elsewhere than in the main thread, where Python cannot, it hears none."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.handle) for number in SIGNALS}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
