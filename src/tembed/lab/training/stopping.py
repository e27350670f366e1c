"""Turns SIGTERM, SIGHUP and Ctrl-C into a request that the loop checks: a run stops between steps, not within one."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_WITH_INPUT = "TEMBED_STOP_WITH_INPUT"
"""Environment variable of a process that is to stop when its standard input closes."""


class Stopped(Exception):
    """The run was asked to stop and has saved its state."""

    def __init__(self, number: int, where: str):
        super().__init__(f"stopped {where}; run the same command again to resume from there")
        self.number = number


class StopRequest:
    """The signal that asked to stop, if any."""

    def __init__(self) -> None:
        self.number: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:  # the second signal stops at once
            raise KeyboardInterrupt
        self.number = number


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Catch the signals within the ``with``, except ignored ones (`nohup` ignores SIGHUP).

    Python can do so only in the main thread; elsewhere nothing is caught.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, request.handle) for number in caught}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_with_input() -> None:
    """If `STOP_WITH_INPUT` is set, stop as after SIGTERM when the process at the other end of our input ends."""
    if os.environ.pop(STOP_WITH_INPUT, None):  # not for the processes that this one starts
        threading.Thread(target=_wait_for_end_of_input, daemon=True).start()


def _wait_for_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
