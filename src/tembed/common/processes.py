"""Starts Python processes. Every one that this package starts is started with a function of this module.

Python looks for modules in the current folder first if ``-m`` or ``-c`` starts it, as multiprocessing does: a
``socket.py`` in a folder of pictures would run. The processes that are started here do not look there. They find the
user's plugins, because `load_plugins` looks for them itself.
"""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess

from tembed.common.plugins import SAFE_PATH


def tembed_command(*arguments: str) -> list[str]:
    """The command line of a process that runs ``tembed ARGUMENTS``."""
    return [sys.executable, "-P", "-m", "tembed", *arguments]


def process_pool(workers: int, initializer: Callable[[], None]) -> ProcessPoolExecutor:
    """A pool of spawned processes: a fork of a process with torch's threads can hang."""
    with _safe_path():  # the pool starts a process of its own, multiprocessing's resource tracker
        return ProcessPoolExecutor(workers, _Context(), initializer)


class _Process(SpawnProcess):
    def start(self) -> None:
        with _safe_path():
            super().start()


class _Context(SpawnContext):
    Process = _Process


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep the current folder off the path of the processes that multiprocessing starts meanwhile.

    They read the environment first, and then they get the path of this process, where '' is the current folder.
    """
    chosen, path = os.environ.get(SAFE_PATH), sys.path
    os.environ[SAFE_PATH], sys.path = "1", [entry for entry in path if entry]
    try:
        yield
    finally:
        sys.path = path
        if chosen is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = chosen
