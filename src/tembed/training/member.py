"""One process of a run, as ``launching`` starts it: ``python -m tembed.training.member DESCRIPTOR``."""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from tembed.errors import TembedError
from tembed.training.loop import work
from tembed.training.memory import keep_freed_memory
from tembed.training.progress import Watcher
from tembed.training.stopping import Stopped
from tembed.training.team import Lost


class Relay(Watcher):
    """Passes on to the process that shows it."""

    def __init__(self, connection: Connection):
        self.connection = connection

    def say(self, line: str) -> None:
        self.connection.send(("say", line))

    def begin(self, epochs: int, images: int, done: int) -> None:
        self.connection.send(("begin", epochs, images, done))

    def trained(self, epoch: int, images: int, loss: float) -> None:
        self.connection.send(("trained", epoch, images, loss))

    def evaluated(self, what: str, done: int, total: int) -> None:
        self.connection.send(("evaluated", what, done, total))

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.connection.send(("epoch", metrics))

    def end(self) -> None:
        self.connection.send(("end",))


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
