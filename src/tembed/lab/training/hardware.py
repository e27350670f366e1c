"""The hardware of a run. The recipe defines the mathematics; the hardware changes only the last bits of the results."""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from tembed.common.accelerators import Accelerator
from tembed.common.errors import TembedError


@dataclass(frozen=True)
class Hardware:
    """Devices, precision and compiler of a run. The recipe's batch is divided among the devices."""

    accelerator: Accelerator = "auto"
    """what to compute on; auto: the GPUs if there are any"""
    devices: int | None = None
    """processes on this machine, one per GPU (default: 1, or as many as torchrun started)"""
    nodes: int | None = None
    """machines, each with the same number of devices (default: 1, or as many as torchrun started)"""
    strategy: Literal["ddp"] = "ddp"
    """how several devices work together: each computes a share of the batch, and gradients are averaged"""
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    """number format to compute with; 16-mixed is for GPUs only"""
    compile: bool = False
    """compile the network (torch.compile); for GPUs: on a CPU the package's own kernels are faster"""

    @property
    def world(self) -> int:
        """The number of processes on all machines."""
        return (self.devices or 1) * (self.nodes or 1)

    @property
    def needs_only_torch(self) -> bool:
        """Whether this is one process in a precision that torch offers by itself."""
        return self.world == 1 and self.precision in ("32-true", "bf16-mixed")

    def complete(self) -> "Hardware":
        """This hardware with every field filled in. Raises `TembedError` if the machine does not have it."""
        for name in ("strategy", "precision"):
            allowed = get_args(get_type_hints(type(self))[name])
            if getattr(self, name) not in allowed:
                raise TembedError(f"`{name}` is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
        for name in ("devices", "nodes"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise TembedError(f"`{name}` is {number}; it must be at least 1")
        from tembed.trained.determinism import choose_device  # imports torch

        chosen: Any = choose_device(self.accelerator)
        full = dataclasses.replace(self, accelerator=chosen, **_counts(self))
        if full.accelerator == "cuda":
            _check_gpus(full)
        elif full.accelerator == "cpu" and full.precision == "16-mixed":
            raise TembedError("`precision` 16-mixed is for GPUs; on a CPU use bf16-mixed or 32-true")
        elif full.accelerator == "mps" and (full.world > 1 or full.precision == "64-true"):
            raise TembedError("a Mac has one GPU, without 64-true: leave `devices` and `precision` out, or use the CPU")
        if full.compile:
            _check_compiler(full.accelerator)
        return full

    def __str__(self) -> str:
        many = f"{self.world} devices" + (f" on {self.nodes} machines" if (self.nodes or 1) > 1 else "")
        which = self.accelerator if self.world == 1 else f"{many} ({self.accelerator}, {self.strategy})"
        return ", ".join([which, self.precision, *(["compiled"] if self.compile else [])])

    def record(self) -> dict[str, Any]:
        """The fields of a complete `Hardware` as run folders and results record them."""
        names = {"compile": "compiled"}
        return {names.get(name, name): value for name, value in dataclasses.asdict(self).items()}


def under_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first_process() -> bool:
    """Whether this process reports: the only one, or the first of those that torchrun started."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def check_started(full: Hardware) -> None:
    """Raise `TembedError` with the command to use if a complete `Hardware` needs more processes than this one."""
    if full.world == 1 or under_torchrun():
        return
    several = (full.nodes or 1) > 1
    machines = f"--nnodes {full.nodes} --rdzv-backend c10d --rdzv-endpoint HOST:PORT " if several else ""
    raise TembedError(
        f"{full.world} devices need as many processes: start them{' on each machine' if several else ''} with torchrun "
        f"{machines}--nproc-per-node {full.devices} SCRIPT.py, or with -m tembed train ... in place of SCRIPT.py"
    )


def _counts(asked: Hardware) -> dict[str, Any]:
    """The numbers of devices and machines, from the arguments or torchrun."""
    if not under_torchrun():
        return {"devices": asked.devices or 1, "nodes": asked.nodes or 1}
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    started = {"devices": local, "nodes": int(os.environ["WORLD_SIZE"]) // local}
    for name, number in started.items():
        if getattr(asked, name) not in (None, number):
            raise TembedError(
                f"`{name}` is {getattr(asked, name)}, but torchrun started {number}: leave `{name}` out, or give "
                "torchrun other numbers"
            )
    return started


def _check_gpus(full: Hardware) -> None:
    import torch

    there = torch.cuda.device_count()
    if full.devices is not None and full.devices > there:
        raise TembedError(f"`devices` is {full.devices}, but there are {there} GPUs: give at most {there}")


def _check_compiler(accelerator: str) -> None:
    from tembed.lab.training.compiling import check_compiler

    check_compiler(accelerator)
