"""Engines run workers somewhere. This one runs them here, a few at a time."""

import subprocess
from dataclasses import dataclass
from typing import Literal, Protocol

from tembed.errors import TembedError
from tembed.experiments.grid.folders import Place
from tembed.experiments.grid.worker import BUSY, STOPPED, Task, ask_to_stop, start_worker, why_it_ended
from tembed.machine import cores

How = Literal["finished", "busy", "stopped", "failed", "lost"]


@dataclass(frozen=True)
class Ending:
    """How a run ended: ``busy`` if another process has it, ``lost`` if its machine is gone."""

    place: Place
    how: How
    why: str = ""


class Engine(Protocol):
    """Somewhere to run the runs of a grid."""

    def room(self) -> bool:
        """Whether one more can be started now."""

    def start(self, place: Place) -> None:
        """Begin a run, or go on with it."""

    def endings(self) -> list[Ending]:
        """The runs that ended since the last call."""

    def stop(self, at_once: bool = False) -> None:
        """Ask all runs to save and end; ``endings`` tells when they have."""

    def close(self) -> None:
        """Leave nothing behind."""


class Local:
    """``jobs`` processes on this machine, with ``threads`` threads each.

    By default as many as there are cores, one thread each: two runs of one thread are done sooner than two runs of two
    threads, one after the other. The number of threads decides the last bits of a result.
    """

    def __init__(
        self, root: str, jobs: int | None = None, threads: int | None = None, checkpoint_seconds: float = 60.0
    ):
        for name, value in (("--jobs", jobs), ("--threads", threads)):
            if value is not None and value < 1:
                raise TembedError(f"{name} is {value}; it must be at least 1")
        self.jobs = jobs or max(1, cores() // (threads or 1))
        self.threads = threads or max(1, cores() // self.jobs)
        self.root, self.checkpoint_seconds = root, checkpoint_seconds
        self.running: dict[Place, subprocess.Popen[str]] = {}

    def __str__(self) -> str:
        return f"{self.jobs} at a time on this machine, threads each: {self.threads}"

    def room(self) -> bool:
        return len(self.running) < self.jobs

    def start(self, place: Place) -> None:
        self.running[place] = start_worker(task_of(place, self.root, self.threads, self.checkpoint_seconds))

    def endings(self) -> list[Ending]:
        ended = [(place, process.returncode) for place, process in self.running.items() if process.poll() is not None]
        for place, _ in ended:
            ask_to_stop(self.running.pop(place))
        return [ending(place, code) for place, code in ended]

    def stop(self, at_once: bool = False) -> None:
        for process in self.running.values():
            process.kill() if at_once else ask_to_stop(process)

    def close(self) -> None:
        self.stop()
        for process in self.running.values():
            process.wait()


def task_of(place: Place, root: str, threads: int, checkpoint_seconds: float, gpus: float | None = None) -> Task:
    """What a worker of any engine is told."""
    return Task(place.recipe.plain(), str(place.runs), place.name, root, threads, checkpoint_seconds, gpus)


def ending(place: Place, code: int) -> Ending:
    """What a worker's exit code says."""
    if code == 0:
        return Ending(place, "finished")
    if code == BUSY:
        return Ending(place, "busy")
    if code in (STOPPED, -15, -2):
        return Ending(place, "stopped")
    return Ending(place, "failed", why_it_ended(code, place))


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
    """The engine of this kind. `TembedError` for a setting that it does not have."""
    others = {"--jobs": jobs} if kind == "ray" else {"--address": address, "--cpus": cpus, "--gpus": gpus}
    for flag, value in others.items():
        if value is not None:
            way_out = "a cluster runs as many as its --cpus allow" if kind == "ray" else "add --engine ray"
            raise TembedError(f"{flag} does not apply to --engine {kind}; {way_out}")
    if kind == "local":
        return Local(root, jobs, threads, checkpoint_seconds)
    from tembed.experiments.grid.cluster import Cluster

    return Cluster(root, address or "auto", cpus or 1, gpus or 0, threads, checkpoint_seconds)
