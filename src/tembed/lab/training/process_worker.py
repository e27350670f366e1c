"""One process of a run. The launcher starts it as ``python -m tembed.lab.training.process_worker DESCRIPTOR``."""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from tembed.common.errors import TembedError
from tembed.common.plugins import load_plugins, named_plugins
from tembed.common.progress import Progress
from tembed.lab.training.environment import keep_freed_memory
from tembed.lab.training.hardware import leave_meeting_place
from tembed.lab.training.loop import train_in_this_process
from tembed.lab.training.process_group import ConnectionLost
from tembed.lab.training.stopping import Stopped


class Relay(Progress):
    """Sends each event to the launcher, which shows it."""

    def __init__(self, connection: Connection):
        self.connection = connection

    def _send(self, event: str, *positional: Any, **named: Any) -> None:
        self.connection.send((event, positional, named))

    def say(self, line: str) -> None:
        self._send("say", line)

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        self._send("update", task, done, total, **numbers)

    def drop(self, task: str) -> None:
        self._send("drop", task)

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        self._send("epoch", metrics, epochs)

    def close(self) -> None:
        self._send("close")


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    job = connection.recv()
    threading.Thread(target=_end_with_launcher, args=(connection,), daemon=True).start()
    keep_freed_memory()
    try:
        load_plugins(named_plugins())
        train_in_this_process(job, Relay(connection))
        end: tuple[Any, ...] = ("done",)
    except Stopped as stopped:
        end = ("stopped", stopped.number, stopped.where)
    except ConnectionLost as lost:
        end = ("lost", str(lost))
    except TembedError as error:
        end = ("error", str(error))
    connection.send(("over", *end))


def _end_with_launcher(connection: Connection) -> None:
    """End this process, whatever it is doing, when the launcher ends."""
    try:
        connection.recv()
    except (EOFError, OSError):
        leave_meeting_place(os.environ)  # the launcher was killed before it could
        os._exit(1)


if __name__ == "__main__":
    main()
