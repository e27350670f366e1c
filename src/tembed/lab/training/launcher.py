"""Starts the processes of a run on this machine, shows their progress, and ends all of them when one fails.

The caller's process computes nothing itself, so that it stays responsive: it shows the events of the first process,
forwards stop requests, and does not wait for a process that hangs.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import tembed
from tembed.common.cores import ASLEEP, CHOICE, POLICIES, cores
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.training.hardware import MEETING_PLACE, Hardware, leave_meeting_place
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.stopping import Stopped, StopRequest, listening

GRACE = 5.0
"""Seconds that the other processes have to end by themselves after one has failed."""


@dataclass(frozen=True)
class Job:
    """What one process of a run has to do. The recipe and the hardware are complete."""

    recipe: Recipe
    out: Path
    root: str | Path | None
    hardware: Hardware
    checkpoint_seconds: float


@dataclass
class Process:
    """One process of the run. ``end`` is its last message, which says how it ended; None if it sent none."""

    rank: int
    process: subprocess.Popen[bytes]
    connection: Connection
    end: tuple[Any, ...] | None = field(default=None)
    over: bool = False

    @property
    def failed(self) -> bool:
        return self.over and (self.end is None or self.end[0] in ("error", "lost"))


def launch(job: Job, progress: Progress) -> None:
    """Run one process per device of this machine. Returns or raises as the run does."""
    with listening() as stop, _started(job) as processes:
        _relay(processes, progress, stop)
        _raise_failure(processes, job.hardware.world, stop)


def _relay(processes: list[Process], progress: Progress, stop: StopRequest) -> None:
    """Show events and forward signals until all have ended, or one has failed and the others have had time to end."""
    forwarded, deadline = False, float("inf")
    while (running := {p.connection: p for p in processes if not p.over}) and time.monotonic() < deadline:
        for connection in wait(list(running), timeout=0.1):
            assert isinstance(connection, Connection)
            _receive(running[connection], progress)
        if deadline == float("inf") and any(p.failed for p in processes):
            deadline = time.monotonic() + GRACE
        if stop.number is not None and not forwarded:
            forwarded = True
            for each in running.values():
                each.process.send_signal(signal.SIGTERM)


def _receive(process: Process, progress: Progress) -> None:
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


def _raise_failure(processes: list[Process], world: int, stop: StopRequest) -> None:
    """Raise the error that ended the run, if any: the cause rather than its consequences."""
    ends = {kind: p for p in reversed(processes) if p.end is not None for kind in p.end[:1]}
    for process in processes:
        if not process.over or process.end is not None:
            continue
        code = process.process.returncode
        if stop.number is not None and code == -signal.SIGTERM:
            raise Stopped(stop.number, "before its first step")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code} (see above)"
        raise TembedError(
            f"process {process.rank} of {world} {how}, which ended the run: run the same command again to resume from "
            "the last checkpoint"
        )
    for kind in ("error", "stopped", "lost"):
        if kind not in ends:
            continue
        _, *what = ends[kind].end or ()
        if kind == "stopped":
            number, where = what
            raise Stopped(stop.number or number, where)
        raise TembedError(what[0])


@contextmanager
def _started(job: Job) -> Iterator[list[Process]]:
    """Start the processes and send each its job. None of them outlives the ``with``."""
    common, node = _common(job.hardware), int(os.environ.get("NODE_RANK", 0)) if (job.hardware.nodes or 1) > 1 else 0
    processes: list[Process] = []
    try:
        if (job.hardware.nodes or 1) == 1:
            common |= _private_connection()
        for local in range(job.hardware.devices or 1):
            ours, theirs = Pipe()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tembed.lab.training.process_worker", str(theirs.fileno())],
                    env=os.environ | common | {"LOCAL_RANK": str(local), "NODE_RANK": str(node)},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C reaches the launcher, which forwards it
                )
            processes.append(Process(node * (job.hardware.devices or 1) + local, process, ours))
            try:
                ours.send(job)
            except OSError:  # it is dead already; `_raise_failure` reports it
                continue
        yield processes
    finally:
        for each in processes:
            if each.process.poll() is None:
                os.killpg(each.process.pid, signal.SIGKILL)  # its own children too
            each.process.wait()
            each.connection.close()
        leave_meeting_place(common)


def _private_connection() -> dict[str, str]:
    """Environment variables by which processes of one machine find each other, without a port that others can reach.

    They meet at a file in a folder that only this user can read, and listen to the loopback interface only. A store
    behind a port would listen to all interfaces, and serve anyone.
    """
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    interfaces = {name: os.environ.get(name, loopback) for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    return {MEETING_PLACE: str(Path(tempfile.mkdtemp(prefix="tembed-")) / "store"), **interfaces}


def _common(hardware: Hardware) -> dict[str, str]:
    """Environment variables of all processes: where machines connect, how many threads they use, how threads wait."""
    given = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if name in os.environ}
    if (hardware.nodes or 1) > 1:
        if len(given) < 3 or not 0 <= int(given["NODE_RANK"]) < (hardware.nodes or 1):
            raise TembedError(
                f"`nodes` is {hardware.nodes}: on each machine set MASTER_ADDR and MASTER_PORT to an address and a "
                f"free port of the first one, and NODE_RANK to 0 ... {(hardware.nodes or 1) - 1}; or use torchrun"
            )
    else:
        given = {}
    home = str(Path(tembed.__file__).parents[1])
    given["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    if "OMP_NUM_THREADS" not in os.environ and hardware.accelerator == "cpu":
        given["OMP_NUM_THREADS"] = str(max(1, cores() // (hardware.devices or 1)))
    users_choice = any(name in os.environ for name in POLICIES) and CHOICE not in os.environ
    return given if users_choice else given | ASLEEP  # the processes share the cores
