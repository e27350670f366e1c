"""Several processes of one ``tembed train`` command, which torch's launcher, torchrun, starts and ends together."""

import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tembed.common.cores import ASLEEP, CHOICE, POLICIES, cores
from tembed.common.errors import TembedError
from tembed.common.files import write_file
from tembed.common.processes import tembed_command
from tembed.lab.training.hardware import Hardware
from tembed.lab.training.process_group import ConnectionLost
from tembed.lab.training.stopping import SIGNALS

LOST = 75
"""Exit code of a process that ended because it could not reach another one."""
SAVING_SECONDS = 600
"""How long the processes have to finish their step and save after a signal, before they are killed."""
LAUNCHER = "TEMBED_LAUNCHER"
"""Environment variable with the id of the process that started this one."""


def start_processes(hardware: Hardware, arguments: list[str]) -> int:
    """Run ``tembed train ARGUMENTS`` in a process per device of this machine, and return the exit code.

    Raises `TembedError` with the cause if one of them fails. The first process shows progress and prints the result.
    """
    log = logging.getLogger("torch.distributed.elastic")
    log.propagate, log.handlers = False, [logging.NullHandler()]  # the error below says it in one line
    os.environ.update(_environment(hardware))
    with tempfile.TemporaryDirectory() as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=hardware.devices or 1,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=str(Path(folder, "rendezvous")),
            rdzv_configs={"store_type": "file"},  # the launcher unpickles its content, so nobody else may write it
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(folder),
        )
        heeded = [signal.Signals(number).name for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        config.signals_to_handle = ",".join(heeded)  # `nohup` ignores SIGHUP; older versions of torch do not know this
        try:
            program, *options = tembed_command("train", *arguments)
            elastic_launch(config, program)(*options)
        except SignalException as stopped:  # the first process has said where
            return 128 + stopped.sigval
        except ChildFailedError as failed:
            return _raise_cause(failed.failures, hardware.world)
    return 0


def run_as_worker(work: Callable[[], int]) -> NoReturn:
    """Do ``work`` in a process that torchrun started, and exit with the code that it returns.

    The message of a `TembedError` goes to torchrun's error file, from which the launcher shows that of the cause.
    """
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    try:
        code = work()
    except TembedError as error:
        note = json.dumps({"message": {"message": str(error), "extraInfo": {"timestamp": int(time.time())}}})
        if file := os.environ["TORCHELASTIC_ERROR_FILE"]:
            write_file(Path(file), note.encode())
        else:
            print(error, file=sys.stderr)
        code = LOST if isinstance(error, ConnectionLost) else 2
    except KeyboardInterrupt:  # a second signal
        code = 128 + signal.SIGINT
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the threads of the process group could abort the process while Python shuts down


def _raise_cause(failures: dict[int, ProcessFailure], world: int) -> int:
    """Raise the error that ended the run: the cause, not its consequences. Return the exit code of a stopped run."""

    def order(rank: int) -> tuple[bool, int]:
        failure = failures[rank]
        return failure.exitcode in (LOST, -signal.SIGTERM), failure.timestamp  # torchrun sends SIGTERM to the others

    rank = min(failures, key=order)
    code, message = failures[rank].exitcode, failures[rank].message
    if code > 128:  # it was asked to stop, and has said so
        return code
    if isinstance(message, dict):
        raise TembedError(message["message"])
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code} (see above)"
    raise TembedError(
        f"process {rank} of {world} {how}, which ended the run: run the same command again to resume from the last "
        "checkpoint"
    )


def _environment(hardware: Hardware) -> dict[str, str]:
    """Variables for the processes, which share the cores and connect on this machine only."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    default = {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
    if hardware.accelerator == "cpu":
        default["OMP_NUM_THREADS"] = str(max(1, cores() // (hardware.devices or 1)))
    default["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(SAVING_SECONDS)
    ours = {LAUNCHER: str(os.getpid())}
    users_choice = any(name in os.environ for name in POLICIES) and CHOICE not in os.environ
    return default | os.environ | ours | ({} if users_choice else ASLEEP)


def _end_with_launcher() -> None:
    """Stop this process, as a signal would, when the launcher has been killed; do not wait for it for ever."""
    launcher = int(os.environ.get(LAUNCHER, os.getppid()))
    while os.getppid() == launcher:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVING_SECONDS)
    os._exit(1)
