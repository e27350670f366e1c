"""Engines start workers somewhere. `LocalEngine` starts a few at a time on this machine."""

import os
import subprocess
from dataclasses import dataclass
from typing import Literal, Protocol

from tembed.common.cores import cores, wanted_threads
from tembed.common.errors import TembedError, counted
from tembed.common.plugins import named_plugins
from tembed.lab.grid.grid_worker import BUSY, STOPPED, GridJob, exit_reason, request_stop, start_worker
from tembed.lab.grid.jobs import GridRun

ExitStatus = Literal["finished", "busy", "stopped", "failed", "lost"]


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
        """Start or resume a run."""

    def poll(self) -> list[RunExit]:
        """The runs whose workers exited since the last call."""

    def stop(self, kill: bool = False) -> None:
        """Ask all workers to save and exit, or kill them. `poll` reports when they have exited."""

    def close(self) -> None:
        """Stop all workers, and release what the engine holds."""


class LocalEngine:
    """``jobs`` workers at a time on this machine, with ``threads`` threads each.

    The default is one job per core with one thread: on two cores, two runs side by side with one thread each finish
    sooner than one after the other with two threads each. ``OMP_NUM_THREADS`` decides the number of threads if
    ``threads`` does not. The number of threads affects the last bits of a result.
    """

    def __init__(
        self, root: str, jobs: int | None = None, threads: int | None = None, checkpoint_seconds: float = 60.0
    ):
        for name, value in (("jobs", jobs), ("threads", threads)):
            if value is not None and value < 1:
                raise TembedError(f"`{name}` is {value}; it must be at least 1")
        threads = threads or wanted_threads(os.environ)
        self.jobs = jobs or max(1, cores() // (threads or 1))
        self.threads = threads or max(1, cores() // self.jobs)
        self.root, self.checkpoint_seconds = root, checkpoint_seconds
        self.running: dict[GridRun, subprocess.Popen[str]] = {}

    def __str__(self) -> str:
        return f"{self.jobs} at a time on this machine, {counted(self.threads, 'thread')} each"

    def has_capacity(self) -> bool:
        return len(self.running) < self.jobs

    def start(self, run: GridRun) -> None:
        self.running[run] = start_worker(make_job(run, self.root, self.threads, self.checkpoint_seconds))

    def poll(self) -> list[RunExit]:
        exited = [(run, process.returncode) for run, process in self.running.items() if process.poll() is not None]
        for run, _ in exited:
            request_stop(self.running.pop(run))  # closes the pipe
        return [run_exit(run, code) for run, code in exited]

    def stop(self, kill: bool = False) -> None:
        for process in self.running.values():
            process.kill() if kill else request_stop(process)

    def close(self) -> None:
        self.stop()
        for process in self.running.values():
            process.wait()


def make_job(run: GridRun, root: str, threads: int, checkpoint_seconds: float, gpus: float | None = None) -> GridJob:
    """The job of a run's worker, with the plugins of this process."""
    recipe, runs = run.recipe.to_json(), str(run.runs)
    return GridJob(recipe, runs, run.name, root, threads, checkpoint_seconds, gpus, named_plugins())


def run_exit(run: GridRun, code: int) -> RunExit:
    """The `RunExit` for a worker's exit code."""
    if code == 0:
        return RunExit(run, "finished")
    if code == BUSY:
        return RunExit(run, "busy")
    if code in (STOPPED, -15, -2):
        return RunExit(run, "stopped")
    return RunExit(run, "failed", exit_reason(code, run))


def make_engine(
    kind: Literal["local", "ray"],
    root: str,
    *,
    jobs: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    cpus: int | None = None,
    gpus: float | None = None,
    checkpoint_seconds: float = 60.0,
) -> Engine:
    """The engine of this kind. Raises `TembedError` for a setting that it does not have."""
    foreign = {"jobs": jobs} if kind == "ray" else {"address": address, "cpus": cpus, "gpus": gpus}
    for name, value in foreign.items():
        if value is not None:
            way_out = "`cpus` limits how many runs a cluster takes" if kind == "ray" else "it needs `engine` ray"
            raise TembedError(f"`{name}` does not apply to `engine` {kind}; {way_out}")
    if kind == "local":
        return LocalEngine(root, jobs, threads, checkpoint_seconds)
    from tembed.lab.grid.ray_engine import RayEngine

    return RayEngine(root, address or "auto", cpus or 1, gpus or 0, threads, checkpoint_seconds)
