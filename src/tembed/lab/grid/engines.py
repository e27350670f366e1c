"""Engines start workers somewhere. `LocalEngine` starts a few at a time on this machine.

A worker is ``tembed train --recipe FILE --out FOLDER`` in its own process. Its standard input is a pipe from the
engine: when that closes, because the engine closed it or died, the worker saves and stops. So no worker outlives its
grid.
"""

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tembed.common.cores import cores, wanted_threads
from tembed.common.errors import TembedError, counted
from tembed.common.files import InUse, explained, open_file
from tembed.common.plugins import VARIABLE as PLUGINS
from tembed.common.plugins import named_plugins
from tembed.common.processes import tembed_command
from tembed.lab.grid.jobs import GridRun, ProgressFile
from tembed.lab.training.stopping import SIGNALS, STOP_WITH_INPUT

ExitStatus = Literal["finished", "busy", "stopped", "failed", "lost"]
STOPPED = {code for number in SIGNALS for code in (128 + number, -number)}
"""Exit codes of workers that were asked to stop, after and before their first step."""
TAIL = 4096
"""How many bytes at the end of a log are searched for an error."""


@dataclass(frozen=True)
class RunExit:
    """How a run's worker ended. ``busy``: another process trains this run. ``lost``: the machine is gone."""

    run: GridRun
    status: ExitStatus
    reason: str = ""


class Engine(Protocol):
    """Runs the workers of a grid."""

    def has_capacity(self) -> bool:
        """Whether one more worker can be started now."""

    def start(self, run: GridRun) -> None:
        """Start or resume a run. Raises `TembedError` if it cannot be started."""

    def poll(self) -> list[RunExit]:
        """The runs whose workers exited since the last call."""

    def stop(self, kill: bool = False) -> None:
        """Ask all workers to save and exit, or kill them. `poll` reports when they have exited."""

    def close(self) -> None:
        """Stop all workers, and release what the engine holds."""


class LocalEngine:
    """``jobs`` workers at a time on this machine, with ``threads`` threads each.

    With GPUs there are ``jobs_per_gpu`` jobs (default: 1) on each, and ``jobs`` can only lower their number. Without,
    the default is one job per core with one thread: on two cores, two runs side by side with one thread each finish
    sooner than one after the other with two threads each. ``OMP_NUM_THREADS`` decides the number of threads if
    ``threads`` does not. The number of threads affects the last bits of a result.
    """

    def __init__(
        self,
        root: str,
        jobs: int | None = None,
        threads: int | None = None,
        checkpoint_seconds: float = 60.0,
        jobs_per_gpu: int | None = None,
    ):
        for name, value in (("jobs", jobs), ("threads", threads), ("jobs_per_gpu", jobs_per_gpu)):
            if value is not None and value < 1:
                raise TembedError(f"`{name}` is {value}; it must be at least 1")
        gpus = visible_gpus()
        if jobs_per_gpu is not None and not gpus:
            raise TembedError("`jobs_per_gpu` needs a GPU, and torch finds none here; leave it out")
        threads = threads or wanted_threads(os.environ)
        slots: list[str | None] = [None] * (jobs or max(1, cores() // (threads or 1)))
        if gpus:
            slots = [*gpus] * (jobs_per_gpu or 1)
        self.free = slots[:jobs]
        """the GPU of each worker that can be started now; None: no particular one"""
        self.jobs, self.gpus = len(self.free), len(gpus)
        self.threads = threads or max(1, cores() // self.jobs)
        self.root, self.checkpoint_seconds = root, checkpoint_seconds
        self.running: dict[GridRun, tuple[subprocess.Popen[bytes], str | None]] = {}

    def __str__(self) -> str:
        gpus = f" with {counted(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{self.jobs} at a time on this machine{gpus}, {counted(self.threads, 'thread')} each"

    def has_capacity(self) -> bool:
        return bool(self.free)

    def start(self, run: GridRun) -> None:
        gpu = self.free[0]
        environment = worker_environment(run, self.root, self.threads)
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        process = start_worker(run.prepare(self.checkpoint_seconds), environment, run.log)
        self.running[run] = process, self.free.pop(0)

    def poll(self) -> list[RunExit]:
        exited = [run for run, (process, _) in self.running.items() if process.poll() is not None]
        return [self._ended(run) for run in exited]

    def _ended(self, run: GridRun) -> RunExit:
        process, gpu = self.running.pop(run)
        request_stop(process)  # closes the pipe
        self.free.append(gpu)
        return run_exit(run, process.returncode)

    def stop(self, kill: bool = False) -> None:
        for process, _ in self.running.values():
            process.kill() if kill else request_stop(process)

    def close(self) -> None:
        self.stop()
        for process, _ in self.running.values():
            process.wait()


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as entries of ``CUDA_VISIBLE_DEVICES``. A Mac has one, which ignores it."""
    import torch

    count = torch.cuda.device_count()
    if not count and torch.backends.mps.is_available():
        return ["0"]
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [name.strip() for name in given.split(",")][:count] if given else [str(gpu) for gpu in range(count)]


def worker_environment(run: GridRun, root: str, threads: int) -> dict[str, str]:
    """The variables that a grid sets for a worker. Every engine sets the threads: they affect the last bits."""
    numbers = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    plugins, progress = ",".join(named_plugins()), str(run.progress_path)
    return numbers | {"TEMBED_DATA": root, PLUGINS: plugins, ProgressFile.VARIABLE: progress, STOP_WITH_INPUT: "1"}


def start_worker(arguments: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``tembed`` with these arguments. It imports nothing from the current folder but the plugins.

    Workers share the machine, so idle threads sleep unless the user chose otherwise.
    """
    with explained(log), open_file(log, "ab") as output:
        return subprocess.Popen(
            tembed_command(*arguments),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={"OMP_WAIT_POLICY": "PASSIVE"} | os.environ | environment,
            start_new_session=True,  # Ctrl-C goes to the grid only, which stops its workers itself
        )


def request_stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a worker to save and exit."""
    assert process.stdin is not None
    process.stdin.close()


def run_exit(run: GridRun, code: int) -> RunExit:
    """The `RunExit` for a worker's exit code."""
    if code == 0 or run.state() == "finished":  # on a full disk a finished worker may fail to print so
        return RunExit(run, "finished")
    if code == InUse.exit_code:
        return RunExit(run, "busy")
    if code in STOPPED:
        return RunExit(run, "stopped")
    return RunExit(run, "failed", exit_reason(code, run.log))


def exit_reason(code: int, log: Path) -> str:
    """Why a worker exited with this code: the signal, or its error, which is the last line of its log."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        return f"the process was ended by {name}{hint}; its last output is in {log}"
    last = ""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL))
        last = file.read(TAIL).decode("utf-8", "replace").rstrip().rpartition("\n")[2]
    if code == TembedError.exit_code and "error: " in last:
        return last.partition("error: ")[2]
    return f"the process exited with code {code}{f' ({last})' if last else ''}; its last output is in {log}"


def make_engine(
    kind: Literal["local", "ray"],
    root: str,
    *,
    jobs: int | None = None,
    jobs_per_gpu: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    cpus: int | None = None,
    gpus: float | None = None,
    checkpoint_seconds: float = 60.0,
) -> Engine:
    """The engine of this kind. Raises `TembedError` for a setting that it does not have."""
    ours, rays = {"jobs": jobs, "jobs_per_gpu": jobs_per_gpu}, {"address": address, "cpus": cpus, "gpus": gpus}
    for name, value in (ours if kind == "ray" else rays).items():
        if value is not None:
            way_out = "`cpus` limits how many runs a cluster takes" if kind == "ray" else "it needs `engine` ray"
            raise TembedError(f"`{name}` does not apply to `engine` {kind}; {way_out}")
    if kind == "local":
        return LocalEngine(root, jobs, threads, checkpoint_seconds, jobs_per_gpu)
    from tembed.lab.grid.ray_engine import RayEngine

    return RayEngine(root, address or "auto", cpus or 1, gpus or 0, threads, checkpoint_seconds)
