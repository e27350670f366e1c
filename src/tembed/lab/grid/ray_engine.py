"""An engine on an existing Ray cluster. Run folders and datasets must be on a path that all nodes see.

Each run is a Ray task that starts the same worker process as the local engine and waits for it, so that the number of
threads is set before torch is loaded. When a node is lost, its runs resume on another node from their last checkpoints.
When the grid is stopped, the workers save and stop. When it is killed, Ray ends its tasks, and the workers with them.
"""

import logging
import os
import socket
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import tembed
from tembed.common.errors import TembedError, first_line
from tembed.lab.grid.engines import RunExit, request_stop, run_exit, start_worker, worker_environment
from tembed.lab.grid.jobs import GridRun

CONNECT_TIMEOUT = 5.0
"""Seconds to wait for an answer from the cluster's address."""
PACKAGES = Path(tembed.__file__).parents[1]
"""The folder that this package is in. Ray's workers import from the folder in which the cluster is connected to."""
START = "RAY_AUTH_MODE=token ray start --head"
"""Starts a cluster with a token. Ray listens to all interfaces, and without a token whoever reaches it runs code."""


class RayEngine:
    """Runs are Ray tasks with ``cpus`` CPUs and ``gpus`` GPUs each; by default as many threads as CPUs."""

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
            raise TembedError(f"`cpus` is {cpus} and `gpus` is {gpus}; a run needs at least 1 CPU, and 0 GPUs or more")
        self.ray = connect(address)
        self.root, self.cpus, self.gpus, self.checkpoint_seconds = root, cpus, gpus, checkpoint_seconds
        self.threads = threads or cpus
        self.remote = self.ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_on_node)
        self.running: dict[Any, GridRun] = {}
        self.stopping = False

    def __str__(self) -> str:
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        large_enough = sum(self._fits(node["Resources"]) for node in nodes)
        gpus = f" and {self.gpus:g} GPUs" if self.gpus else ""
        each = f"{self.cpus} CPUs{gpus} and {self.threads} threads each"
        warning = "" if large_enough else "; warning: no node is large enough for a run, so all runs wait for one"
        return f"on a Ray cluster of {len(nodes)} nodes, {each}{warning}"

    def _fits(self, resources: dict[str, float]) -> bool:
        return resources.get("CPU", 0) >= self.cpus and resources.get("GPU", 0) >= self.gpus

    def has_capacity(self) -> bool:
        return True  # Ray keeps the queue

    def start(self, run: GridRun) -> None:
        device = ["cuda", "--devices", str(max(1, int(self.gpus)))] if self.gpus else ["cpu"]
        arguments = [*run.prepare(self.checkpoint_seconds), "--accelerator", *device]
        environment = worker_environment(run, self.root, self.threads)
        task = self.remote.options(name=run.name).remote(arguments, environment, str(run.log))
        self.running[task] = run

    def poll(self) -> list[RunExit]:
        if not self.running:
            return []
        ready, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0, fetch_local=False)
        return [self._exit(reference, self.running.pop(reference)) for reference in ready]

    def _exit(self, reference: Any, run: GridRun) -> RunExit:
        errors = self.ray.exceptions
        try:
            return run_exit(run, self.ray.get(reference))
        except errors.TaskCancelledError:
            return RunExit(run, "stopped")
        except errors.RayTaskError as error:
            reason = first_line(error.cause if error.cause is not None else error)
            return RunExit(run, "failed", f"the task failed on its node: {reason}")
        except errors.RayError as error:
            return RunExit(run, "stopped" if self.stopping else "lost", type(error).__name__)

    def stop(self, kill: bool = False) -> None:
        self.stopping = True
        for reference in self.running:
            self.ray.cancel(reference, force=kill)

    def close(self) -> None:
        self.ray.shutdown()


def connect(address: str) -> Any:
    """The ``ray`` module, connected to a running cluster. Raises `TembedError` without Ray or without a cluster."""
    try:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the future default; silences a warning
        import ray
    except ModuleNotFoundError:
        raise TembedError("the engine ray needs the package ray: pip install 'tembed[ray]'") from None
    if address != "auto" and "://" not in address:
        check_reachable(address)
    try:
        with chdir(PACKAGES):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = first_line(error)
        raise TembedError(
            f"no Ray cluster answers at {address!r} ({reason}): start one with '{START}', or give the "
            "`address` of one; a cluster with a token needs RAY_AUTH_MODE=token and that token here, too"
        ) from None
    return ray


def check_reachable(address: str) -> None:
    """Raise `TembedError` unless something listens at ``host:port``; Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise TembedError(f"`address` is {address!r}; it must have the form HOST:PORT, such as 10.0.0.5:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise TembedError(
            f"nothing answers at `address` {address} ({getattr(error, 'strerror', None) or error}): check that the "
            "head node is up, and that 'ray start' printed this address"
        ) from None


def run_on_node(arguments: list[str], environment: dict[str, str], log: str) -> int:
    """The Ray task: runs a worker on its node, and returns its exit code."""
    folder = Path(log).parent
    if not folder.is_dir():
        raise TembedError(f"{socket.gethostname()} does not see {folder}: put the runs on a path that all nodes share")
    process = start_worker(arguments, environment, Path(log))
    try:
        while process.poll() is None:
            time.sleep(0.1)
    finally:  # on cancellation, wait until the worker has saved
        request_stop(process)
        process.wait()
    return process.returncode
