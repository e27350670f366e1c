"""One run of a grid in a process of its own, the same for every engine.

``python -m tembed.experiments.worker`` reads a `Task` as one line of JSON from its standard input, and trains. When its
input ends, because whoever started it closed it or is dead, it saves and stops: no worker outlives its grid.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tembed.errors import TembedError, first_line
from tembed.experiments.grid.folders import Place
from tembed.reporting.progress import Lines
from tembed.training.recipe import Recipe

BUSY, FAILED, STOPPED = 75, 1, 143
"""How a worker ends when another process has its run, after an error, and when it was told to stop."""


@dataclass(frozen=True)
class Task:
    """What a worker is told. ``threads`` decides the last bits of a result, so every engine gives it.

    ``gpus`` is what an engine has reserved for the run; None leaves the choice to the machine.
    """

    recipe: dict[str, Any]
    runs: str
    name: str
    root: str
    threads: int
    checkpoint_seconds: float = 60.0
    gpus: float | None = None

    @property
    def place(self) -> Place:
        return Place(Recipe.from_plain(self.recipe), Path(self.runs), self.name)


def start_worker(task: Task) -> subprocess.Popen[str]:
    """A worker on this machine. Close its ``stdin`` to stop it."""
    threads = str(task.threads)
    environment = os.environ | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONUNBUFFERED": "1",
    }
    with task.place.log.open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tembed.experiments.grid.worker"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            text=True,
            start_new_session=True,  # Ctrl-C is for the grid, which stops its workers itself
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(task)) + "\n")
    process.stdin.flush()
    return process


def ask_to_stop(process: subprocess.Popen[str]) -> None:
    """Let a worker save and end."""
    assert process.stdin is not None
    if not process.stdin.closed:
        process.stdin.close()


def why_it_ended(code: int, place: Place) -> str:
    """The error of a worker that ended with this code, noted down if it had no time to do so itself."""
    if code < 0 and not place.error.exists():
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        place.fail(f"the process was ended by {name}{hint}; its last words are in {place.log}")
    elif not place.error.exists():
        place.fail(f"the process ended with {code}; its last words are in {place.log}")
    return place.failure() or f"ended with {code}"


def work(task: Task) -> int:
    """Train, and return how it ended."""
    import torch

    from tembed.files import InUse
    from tembed.training import Hardware, Stopped, train
    from tembed.training.environment import keep_freed_memory

    torch.set_num_threads(task.threads)
    keep_freed_memory()
    place = task.place
    try:
        train(
            place.recipe,
            place.run.folder,
            root=task.root,
            hardware=Hardware(*_devices(task.gpus)),
            progress=Notes(place),
            checkpoint_seconds=task.checkpoint_seconds,
        )
    except InUse:
        return BUSY
    except Stopped as stopped:
        print(stopped, flush=True)
        return STOPPED
    except TembedError as error:
        print(f"error: {error}", flush=True)
        place.fail(str(error))
        return FAILED
    except Exception as error:  # whatever it is, the other runs go on
        traceback.print_exc()
        place.fail(f"{type(error).__name__}: {first_line(error)}; see {place.log}")
        return FAILED
    finally:
        if not place.in_use():
            place.progress.unlink(missing_ok=True)
    return 0


class Notes(Lines):
    """Lines into the log, and a note beside the runs, once a second, of how far this one is."""

    def __init__(self, place: Place):
        super().__init__(sys.stdout, every=300)
        self.place, self.noted = place, 0.0

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        super().update(task, done, total, **numbers)
        now = time.monotonic()
        if now - self.noted < 1 or task != "training":
            return
        self.noted, rate = now, self.rates[task]
        note = {"share": done / total, "seconds_left": rate.seconds_left(done, total, now), **numbers}
        note["images_per_second"] = rate.per_second(done, now)
        aside = self.place.progress.with_suffix(".next")
        aside.write_text(json.dumps(note), "utf-8")
        os.replace(aside, self.place.progress)


def _devices(gpus: float | None) -> tuple[Literal["auto", "cpu", "cuda"], int]:
    """Accelerator and number of devices for the GPUs of a task; a part of one is one."""
    if gpus is None:
        return "auto", 1
    return ("cuda", max(1, int(gpus))) if gpus else ("cpu", 1)


def _stop_with_the_grid() -> None:
    while sys.stdin.read(1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    line = sys.stdin.readline()
    if not line:  # the grid died before it said what to do
        return STOPPED
    task = Task(**json.loads(line))
    threading.Thread(target=_stop_with_the_grid, daemon=True).start()
    return work(task)


if __name__ == "__main__":
    sys.exit(main())
