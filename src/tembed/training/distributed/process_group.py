"""The processes of a run: one alone, or those that lightning-fabric brings together."""

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tembed.errors import TembedError, first_line
from tembed.models import Output
from tembed.training.distributed.hardware import Hardware, under_torchrun

Forward = Callable[[Tensor], Output]


class Lost(TembedError):
    """Another process of the run is gone."""


class Team:
    """One process alone, with plain torch; the base of those who are several."""

    rank = 0
    world = 1

    @property
    def first(self) -> bool:
        """Whether this process speaks for all and writes the run folder."""
        return self.rank == 0

    @property
    def mark(self) -> tuple[str, ...]:
        """What makes this process's noise its own; nothing for the first one."""
        return () if self.first else (f"rank {self.rank}",)

    def setup(self, model: nn.Module, optimizer: Optimizer) -> tuple[Forward, Any]:
        """The model as a step calls it, and the optimizer as a step uses it. Both keep their tensors."""
        return model, optimizer

    def place(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors on this process's device."""
        return tensors

    def backward(self, loss: Tensor, share: float) -> None:
        """Gradients of the loss over the whole batch, of which this process has seen ``share``."""
        loss.backward()

    def add(self, values: Sequence[float]) -> Sequence[float]:
        """The sums over all processes."""
        return values

    def agree(self, number: int | None) -> int | None:
        """The largest number that a process has, if one has any."""
        return number

    def share(self, value: Any) -> Any:
        """The value that the first process has."""
        return value

    def state(self) -> dict[str, Any]:
        """What of the precision must be kept for a run to go on as it was."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""


ALONE = Team()


class Fabricated(Team):
    """A process, alone or one of several, on the device and in the precision that lightning-fabric gives it.

    The process group is left to the end of the process: gloo's threads may need Python's lock to let go of the last
    tensors that were sent, and taking the group apart waits for those threads with the lock held.
    """

    def __init__(self, hardware: Hardware):
        self.fabric = _fabric(hardware)
        self.world = hardware.world
        try:
            self.fabric.launch()
        except (OSError, RuntimeError) as error:
            if self.world == 1:
                raise
            raise Lost(f"the {self.world} processes of the run did not find each other ({first_line(error)})") from None
        self.rank = self.fabric.global_rank

    def setup(self, model: nn.Module, optimizer: Optimizer) -> tuple[Forward, Any]:
        if self.world > 1:
            from tembed.training.distributed.synced_norm import synchronise

            synchronise(model)
        return self.fabric.setup(model, optimizer)

    def place(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.to(self.fabric.device, non_blocking=True) for tensor in tensors)

    def backward(self, loss: Tensor, share: float) -> None:
        self.fabric.backward(loss * (self.world * share))  # gradients are averaged over the processes

    def add(self, values: Sequence[float]) -> Sequence[float]:
        if self.world == 1:
            return values
        return self._reduced(values, torch.distributed.ReduceOp.SUM)

    def agree(self, number: int | None) -> int | None:
        if self.world == 1:
            return number
        (largest,) = self._reduced([number or 0], torch.distributed.ReduceOp.MAX)
        return int(largest) or None

    def share(self, value: Any) -> Any:
        return self.fabric.broadcast(value) if self.world > 1 else value

    def state(self) -> dict[str, Any]:
        return self.fabric.strategy.precision.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        if state:
            self.fabric.strategy.precision.load_state_dict(state)

    def _reduced(self, values: Sequence[float], how: Any) -> list[float]:
        packed = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(packed, how)
        return packed.tolist()


def assemble(hardware: Hardware) -> Team:
    """The team of a complete hardware; in every process of it that is started already."""
    return ALONE if hardware.plain else Fabricated(hardware)


def lost(error: RuntimeError) -> bool:
    """Whether an error is that of a broken connection."""
    of_connection = isinstance(error, torch.distributed.DistError)
    return of_connection or any(word in str(error) for word in ("gloo", "NCCL", "Connection reset", "Socket"))


def _fabric(hardware: Hardware) -> Any:
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
        from lightning_fabric.strategies import DDPStrategy
    except ModuleNotFoundError as error:
        raise TembedError(
            f"several devices, GPUs and other precisions need {error.name}: pip install 'tembed[lab]'"
        ) from None
    for name in ("lightning_fabric", "lightning.fabric", "lightning_utilities"):
        logging.getLogger(name).setLevel(logging.WARNING)  # it greets
    try:
        return Fabric(
            accelerator=hardware.accelerator,
            devices=hardware.devices or 1,
            num_nodes=hardware.nodes or 1,
            strategy=DDPStrategy(**_keep_buffers()) if hardware.world > 1 else "auto",
            precision=hardware.precision,
            plugins=[TorchElasticEnvironment() if under_torchrun() else LightningEnvironment()],
        )
    except (ValueError, RuntimeError, TypeError) as error:
        raise TembedError(f"lightning-fabric cannot work with {hardware.record()}: {first_line(error)}") from None


def _keep_buffers() -> dict[str, Any]:
    """The option of DDP not to send the running statistics round at each step: they are the same everywhere."""
    options = inspect.signature(nn.parallel.DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers": False}
