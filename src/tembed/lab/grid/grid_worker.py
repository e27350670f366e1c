"""The process that trains one run of a grid; every engine starts the same one.

``python -m tembed.lab.grid.grid_worker`` reads a `GridJob` as one line of JSON from its standard input, and trains.
When its input closes, because the engine closed it or died, it saves and stops. So no worker outlives its grid.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from tembed.common.errors import TembedError, first_line
from tembed.common.files import write_json
from tembed.common.plugins import load_plugins
from tembed.common.progress import Lines
from tembed.lab.grid.jobs import GridRun, note_path
from tembed.lab.training.recipe import Recipe

BUSY, FAILED, STOPPED = 75, 1, 143
"""Exit codes: another process trains the run; an error; stopped on request."""


@dataclass(frozen=True)
class GridJob:
    """Everything that a worker needs to know, as plain values.

    ``threads`` affects the last bits of a result, so every engine sets it. ``gpus``: the part of a GPU that
    the engine reserved; None leaves the choice to the machine. ``plugins``: the user's modules to import before the
    recipe is read.
    """

    recipe: dict[str, Any]
    runs: str
    name: str
    root: str
    threads: int
    checkpoint_seconds: float = 60.0
    gpus: float | None = None
    plugins: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """The log of the run. Unlike `grid_run`, it needs no plugin."""
        return note_path(Path(self.runs), self.name, "log")

    def grid_run(self) -> GridRun:
        """The run. The recipe may name things that only the plugins register."""
        return GridRun(Recipe.from_json(self.recipe), Path(self.runs), self.name)


def start_worker(job: GridJob) -> subprocess.Popen[str]:
    """Start a worker on this machine. Closing its ``stdin`` stops it. Without a place for its log, it has none."""
    with open_log(job.log) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tembed.lab.grid.grid_worker"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=worker_environment(job),
            text=True,
            start_new_session=True,  # Ctrl-C goes to the grid only, which stops its workers itself
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it is dead already; its exit code says so
        process.stdin.write(json.dumps(asdict(job)) + "\n")
        process.stdin.flush()
    return process


def open_log(path: Path) -> TextIO:
    """The log to append to, or nowhere if it cannot be opened."""
    try:
        return path.open("a", encoding="utf-8")
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")


def worker_environment(job: GridJob) -> dict[str, str]:
    """The environment of a worker. Workers share the machine, so idle threads sleep unless the user chose otherwise."""
    threads = str(job.threads)
    ours = {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",
        "TEMBED_PLUGINS": ",".join(job.plugins),  # for the processes that the worker starts
    }
    return {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ | ours


def request_stop(process: subprocess.Popen[str]) -> None:
    """Ask a worker to save and exit."""
    assert process.stdin is not None
    if not process.stdin.closed:
        process.stdin.close()


def exit_reason(code: int, run: GridRun) -> str:
    """Why a worker exited with this code. Records it as the run's failure if the worker could not."""
    if code < 0 and not run.error.exists():
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        run.record_failure(f"the process was ended by {name}{hint}; its last output is in {run.log}")
    elif not run.error.exists():
        run.record_failure(f"the process exited with code {code}; its last output is in {run.log}")
    return run.failure() or f"exited with code {code}"


def execute(job: GridJob, run: GridRun) -> int:
    """Train, and return the exit code."""
    import torch

    from tembed.common.files import InUse
    from tembed.lab.training.environment import keep_freed_memory
    from tembed.lab.training.hardware import Hardware
    from tembed.lab.training.loop import train
    from tembed.lab.training.stopping import Stopped

    torch.set_num_threads(job.threads)
    keep_freed_memory()
    progress = ProgressFile(run)
    try:
        train(
            run.recipe,
            run.run.folder,
            root=job.root,
            hardware=Hardware(_accelerator(job.gpus), devices=1),
            progress=progress,
            checkpoint_seconds=job.checkpoint_seconds,
        )
    except InUse:
        return BUSY
    except Stopped as stopped:
        progress.say(str(stopped))
        return STOPPED
    except TembedError as error:
        progress.say(f"error: {error}")
        run.record_failure(str(error))
        return FAILED
    except Exception as error:  # any error ends this run only
        traceback.print_exc()
        run.record_failure(f"{type(error).__name__}: {first_line(error)}; see {run.log}")
        return FAILED
    finally:
        if not run.in_use():
            with suppress(OSError):
                run.progress_path.unlink(missing_ok=True)
    return 0


class ProgressFile(Lines):
    """Prints lines to the log, and writes the progress of training to a file once a second for the grid to show."""

    def __init__(self, run: GridRun):
        super().__init__(sys.stdout, every=300)
        self.run, self.written = run, 0.0

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        super().update(task, done, total, **numbers)
        now = time.monotonic()
        if now - self.written < 1 or task != "training":
            return
        self.written, rate = now, self.rates[task]
        note = {"share": done / total, "seconds_left": rate.seconds_left(done, total, now), **numbers}
        note["images_per_second"] = rate.per_second(done, now)
        temporary = self.run.progress_path.with_suffix(".next")
        try:
            temporary.write_text(json.dumps(note), "utf-8")
            os.replace(temporary, self.run.progress_path)
        except OSError:  # such as a full disk: the grid shows older progress
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _accelerator(gpus: float | None) -> Literal["auto", "cpu", "cuda"]:
    if gpus is None:
        return "auto"
    return "cuda" if gpus else "cpu"


def _stop_when_input_closes() -> None:
    while sys.stdin.read(1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    line = sys.stdin.readline()
    if not line:  # the engine died before it sent the job
        return STOPPED
    job = GridJob(**json.loads(line))
    threading.Thread(target=_stop_when_input_closes, daemon=True).start()
    try:
        load_plugins(job.plugins)
        run = job.grid_run()
    except TembedError as error:
        with suppress(TembedError):
            write_json(note_path(Path(job.runs), job.name, "error"), {"error": str(error)})
        print(f"error: {error}", flush=True)
        return FAILED
    return execute(job, run)


if __name__ == "__main__":
    sys.exit(main())
