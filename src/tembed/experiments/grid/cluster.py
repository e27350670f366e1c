"""An engine on an existing Ray cluster. Run folders and datasets must be on a path that all its nodes see.

Each run is a Ray task that starts the same worker process as the local engine and waits for it, so that its threads
are set before torch is loaded. When a node is lost, its runs are taken up on another one from their last checkpoints.
When the grid ends, however that happens, Ray ends its tasks, and the workers save and stop.
"""

import logging
import os
import socket
import time
from typing import Any

from tembed.errors import TembedError, first_line
from tembed.experiments.grid.engines import Ending, ending, task_of
from tembed.experiments.grid.folders import Place
from tembed.experiments.grid.worker import Task, ask_to_stop, start_worker

REACH = 5.0
"""Seconds to wait for an answer from the cluster's address."""
UNSEEN = -1000
"""Returned by a task whose node does not see the runs."""


class Cluster:
    """Runs as tasks of ``cpus`` CPUs and ``gpus`` GPUs each; as many threads as CPUs."""

    def __init__(
        self,
        root: str,
        address: str = "auto",
        cpus: int = 1,
        gpus: float = 0,
        threads: int | None = None,
        checkpoint_seconds: float = 60.0,
    ):
        if cpus < 1 or gpus < 0:
            raise TembedError(f"--cpus is {cpus} and --gpus is {gpus}; a run needs at least 1 CPU, and 0 GPUs or more")
        self.ray = connect(address)
        self.root, self.cpus, self.gpus, self.checkpoint_seconds = root, cpus, gpus, checkpoint_seconds
        self.threads = threads or cpus
        self.task = self.ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_here)
        self.running: dict[Any, Place] = {}
        self.stopping = False

    def __str__(self) -> str:
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        able = sum(self._fits(node["Resources"]) for node in nodes)
        gpus = f" and {self.gpus:g} GPUs" if self.gpus else ""
        each = f"{self.cpus} CPUs{gpus} and {self.threads} threads each"
        warning = "" if able else "; warning: none of them is large enough for a run now, so the runs wait for one"
        return f"on a Ray cluster of {len(nodes)} nodes, {each}{warning}"

    def _fits(self, resources: dict[str, float]) -> bool:
        return resources.get("CPU", 0) >= self.cpus and resources.get("GPU", 0) >= self.gpus

    def room(self) -> bool:
        return True  # Ray keeps the queue

    def start(self, place: Place) -> None:
        from dataclasses import asdict

        task = asdict(task_of(place, self.root, self.threads, self.checkpoint_seconds, self.gpus))
        self.running[self.task.options(name=place.name).remote(task)] = place

    def endings(self) -> list[Ending]:
        if not self.running:
            return []
        ready, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0, fetch_local=False)
        return [self._ending(reference, self.running.pop(reference)) for reference in ready]

    def _ending(self, reference: Any, place: Place) -> Ending:
        errors = self.ray.exceptions
        try:
            code, node = self.ray.get(reference)
        except errors.TaskCancelledError:
            return Ending(place, "stopped")
        except errors.RayTaskError as error:
            why = first_line(error.cause if error.cause is not None else error)
            place.fail(f"the task failed on its node: {why}")
            return Ending(place, "failed", place.failure() or why)
        except errors.RayError as error:
            how = "stopped" if self.stopping else "lost"
            return Ending(place, how, type(error).__name__)  # type: ignore[arg-type]
        if code == UNSEEN:
            place.fail(f"{node} does not see {place.runs}: put the runs on a path that all nodes share (--out)")
            return Ending(place, "failed", place.failure() or "")
        return ending(place, code)

    def stop(self, at_once: bool = False) -> None:
        self.stopping = True
        for reference in self.running:
            self.ray.cancel(reference, force=at_once)

    def close(self) -> None:
        self.ray.shutdown()


def connect(address: str) -> Any:
    """The ``ray`` module, connected to a running cluster. `TembedError` if it is not installed or there is none."""
    try:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its new default, without the warning
        import ray
    except ModuleNotFoundError:
        raise TembedError("--engine ray needs ray: pip install 'tembed[ray]'") from None
    if address != "auto" and "://" not in address:
        reach(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        why = first_line(error)
        raise TembedError(
            f"no Ray cluster answers at {address!r} ({why}): start one with `ray start --head`, or give the --address "
            "that it printed"
        ) from None
    return ray


def reach(address: str) -> None:
    """`TembedError` unless something listens at ``host:port``; Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise TembedError(f"--address {address!r} is not of the form HOST:PORT, such as 10.0.0.5:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, OverflowError) as error:
        raise TembedError(
            f"nothing answers at --address {address} ({getattr(error, 'strerror', None) or error}): is the head node "
            "up, and is this the address that `ray start --head` printed?"
        ) from None


def run_here(plain: dict[str, Any]) -> tuple[int, str]:
    """The task on its node: a worker's exit code, and the node's name."""
    task, node = Task(**plain), socket.gethostname()
    if not task.place.log.parent.is_dir():
        return UNSEEN, node
    process = start_worker(task)
    try:
        while process.poll() is None:
            time.sleep(0.1)
    finally:  # cancelled: wait until the state is saved
        ask_to_stop(process)
        process.wait()
    return process.returncode, node
