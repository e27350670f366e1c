"""Starts the processes of a run on this machine, listens to them, and ends all when one fails.

The caller's process computes nothing itself, so that it can always act: it shows what the first process tells,
passes on the wish to stop, and waits for none that hangs.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import tembed
from tembed.errors import TembedError
from tembed.machine import ASLEEP, CHOICE, POLICIES, cores
from tembed.reporting.progress import Progress
from tembed.training.distributed.hardware import Hardware
from tembed.training.recipe import Recipe
from tembed.training.stopping import Stopped, Wish, listening

GRACE = 5.0
"""Seconds that the other processes have to end by themselves once one has failed."""


@dataclass(frozen=True)
class Job:
    """What a process of a run needs to know. Recipe and hardware are complete."""

    recipe: Recipe
    out: Path
    root: str | Path | None
    hardware: Hardware
    checkpoint_seconds: float


@dataclass
class Process:
    """One process of the run: how it ended is what it told last, if anything."""

    rank: int
    process: subprocess.Popen[bytes]
    connection: Connection
    end: tuple[Any, ...] | None = field(default=None)
    over: bool = False

    @property
    def failed(self) -> bool:
        return self.over and (self.end is None or self.end[0] in ("error", "lost"))


def launch(job: Job, progress: Progress) -> None:
    """The run in processes of its own, one for each device of this machine; returns or raises as the run does."""
    with listening() as wish, _started(job) as processes:
        _attend(processes, progress, wish)
        _judge(processes, job.hardware.world, wish)


def _attend(processes: list[Process], progress: Progress, wish: Wish) -> None:
    """Until all are over, or one has failed and the others had time to end."""
    told, deadline = False, float("inf")
    while (going := {p.connection: p for p in processes if not p.over}) and time.monotonic() < deadline:
        for connection in wait(list(going), timeout=0.1):
            assert isinstance(connection, Connection)
            _hear(going[connection], progress)
        if deadline == float("inf") and any(p.failed for p in processes):
            deadline = time.monotonic() + GRACE
        if wish.number is not None and not told:
            told = True
            for each in going.values():
                each.process.send_signal(signal.SIGTERM)


def _hear(process: Process, progress: Progress) -> None:
    try:
        name, *arguments = process.connection.recv()
    except (EOFError, OSError):
        process.process.wait()
        process.over = True
        return
    if name == "over":
        process.end, process.over = tuple(arguments), True
    else:
        positional, named = arguments
        getattr(progress, name)(*positional, **named)


def _judge(processes: list[Process], world: int, wish: Wish) -> None:
    """Raises what the run ended with, if it did not end well: the cause before what follows from it."""
    ends = {kind: p for p in reversed(processes) if p.end is not None for kind in p.end[:1]}
    for process in processes:
        if not process.over or process.end is not None:
            continue
        code = process.process.returncode
        if wish.number is not None and code == -signal.SIGTERM:
            raise Stopped(wish.number, "before its first step")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"broke down with code {code}, see above"
        raise TembedError(
            f"process {process.rank} of {world} {how}, and the run has ended with it: run the same command again to "
            "go on from the last checkpoint"
        )
    for kind in ("error", "stopped", "lost"):
        if kind not in ends:
            continue
        _, *what = ends[kind].end or ()
        if kind == "stopped":
            number, where = what
            raise Stopped(wish.number or number, where)
        raise TembedError(what[0])


@contextmanager
def _started(job: Job) -> Iterator[list[Process]]:
    """The processes, each with its job; none outlives the block."""
    common, node = _common(job.hardware), int(os.environ.get("NODE_RANK", 0)) if (job.hardware.nodes or 1) > 1 else 0
    processes: list[Process] = []
    try:
        for local in range(job.hardware.devices or 1):
            ours, theirs = Pipe()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tembed.training.distributed.worker", str(theirs.fileno())],
                    env=os.environ | common | {"LOCAL_RANK": str(local), "NODE_RANK": str(node)},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for us, who pass it on
                )
            processes.append(Process(node * (job.hardware.devices or 1) + local, process, ours))
            try:
                ours.send(job)
            except OSError:  # it is dead already, as its end will tell
                continue
        yield processes
    finally:
        for each in processes:
            if each.process.poll() is None:
                os.killpg(each.process.pid, signal.SIGKILL)  # and what it started
            each.process.wait()
            each.connection.close()


def _common(hardware: Hardware) -> dict[str, str]:
    """What the environment of all processes has in common: where they meet, and how many threads they have."""
    given = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if name in os.environ}
    if (hardware.nodes or 1) > 1:
        if len(given) < 3 or not 0 <= int(given["NODE_RANK"]) < (hardware.nodes or 1):
            raise TembedError(
                f"--nodes {hardware.nodes}: on each machine set MASTER_ADDR and MASTER_PORT to an address and a free "
                f"port of the first one, and NODE_RANK to 0 ... {(hardware.nodes or 1) - 1}; or start by torchrun"
            )
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    home = str(Path(tembed.__file__).parents[1])
    given["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    if "OMP_NUM_THREADS" not in os.environ and hardware.accelerator == "cpu":
        given["OMP_NUM_THREADS"] = str(max(1, cores() // (hardware.devices or 1)))
    decided = any(name in os.environ for name in POLICIES) and CHOICE not in os.environ
    return given if decided else given | ASLEEP  # they share the cores
