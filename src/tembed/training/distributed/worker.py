"""One process of a run, as ``launching`` starts it: ``python -m tembed.training.member DESCRIPTOR``."""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from tembed.errors import TembedError
from tembed.reporting.progress import Progress
from tembed.training.distributed.process_group import Lost
from tembed.training.environment import keep_freed_memory
from tembed.training.loop import work
from tembed.training.stopping import Stopped


class Relay(Progress):
    """Passes on to the process that shows it."""

    def __init__(self, connection: Connection):
        self.connection = connection

    def _pass_on(self, event: str, *positional: Any, **named: Any) -> None:
        self.connection.send((event, positional, named))

    def say(self, line: str) -> None:
        self._pass_on("say", line)

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        self._pass_on("update", task, done, total, **numbers)

    def drop(self, task: str) -> None:
        self._pass_on("drop", task)

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        self._pass_on("epoch", metrics, epochs)

    def close(self) -> None:
        self._pass_on("close")


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    job = connection.recv()
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    keep_freed_memory()
    try:
        work(job, Relay(connection))
        end: tuple[Any, ...] = ("done",)
    except Stopped as stopped:
        end = ("stopped", stopped.number, stopped.where)
    except Lost as lost:
        end = ("lost", str(lost))
    except TembedError as error:
        end = ("error", str(error))
    connection.send(("over", *end))


def _end_with(connection: Connection) -> None:
    """Ends this process, whatever it is at, with the one that started it."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os._exit(1)


if __name__ == "__main__":
    main()
