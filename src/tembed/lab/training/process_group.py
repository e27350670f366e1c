"""The processes of a run, and the device of each: a single process, or several that lightning-fabric connects."""

import atexit
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tembed.common.errors import TembedError, first_line
from tembed.lab.training.hardware import Hardware, under_torchrun
from tembed.models.network import Output

Forward = Callable[[Tensor], Output]


class ConnectionLost(TembedError):
    """Another process of the run cannot be reached. What ended that process is the cause, and this a consequence."""


class ProcessGroup:
    """A single process with plain torch; the base class for several.

    Args:
        device: where the process computes.
        autocast: the number format of products, if it is not that of the weights.
    """

    rank = 0
    world = 1
    device = torch.device("cpu")
    autocast: torch.dtype | None = None

    def __init__(self, device: torch.device | str = "cpu", autocast: torch.dtype | None = None):
        self.device, self.autocast = torch.device(device), autocast

    @property
    def is_first(self) -> bool:
        """Whether this process reports progress and writes the run folder."""
        return self.rank == 0

    @property
    def noise_key(self) -> tuple[str, ...]:
        """Added to the seed of this process's noise; empty in the first process."""
        return () if self.is_first else (f"rank {self.rank}",)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Raise `ConnectionLost` if another process ends within the ``with``."""
        yield

    def share_statistics(self, model: nn.Module) -> None:
        """Make every batch normalisation use the whole batch, of which each process has a share."""

    def setup(self, model: nn.Module, optimizer: Optimizer) -> tuple[Forward, Any]:
        """The wrapped model and optimizer that a step calls. Both keep their tensors, which go to the device."""
        return self.in_precision(model.to(self.device)), optimizer

    def in_precision(self, model: nn.Module) -> Forward:
        """How to call a model on the device, so that it computes in the precision of the run."""
        if self.autocast is None:
            return model

        def forward(x: Tensor) -> Output:
            with torch.autocast(self.device.type, self.autocast):
                output = model(x)
            return Output(output.logits.float(), None if output.scores is None else output.scores.float())

        return forward

    def to_device(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors on this process's device. The host does not wait for the copy of pinned memory."""
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in tensors)

    def backward(self, loss: Tensor, share: float) -> None:
        """Compute the gradients of the loss over the whole batch, of which this process has seen ``share``."""
        loss.backward()

    def clip_gradients(self, model: Any, optimizer: Any, norm: float) -> None:
        """Scale the gradients of the wrapped model down to this global norm, if theirs is larger."""
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], norm)

    def batch_means(self, means: Tensor, share: float, stop: bool) -> Tensor:
        """Means over the whole batch, from those over the share of it that this process has seen.

        With several processes they are followed by how many of them were asked to stop, so that all stop together.
        """
        return means

    def sum(self, values: Sequence[float]) -> Sequence[float]:
        """The sums over all processes."""
        return values

    def largest(self, number: int | None) -> int | None:
        """The largest number that any process has, or None if none has one."""
        return number

    def broadcast(self, value: Any) -> Any:
        """The value of the first process."""
        return value

    def precision_state(self) -> dict[str, Any]:
        """The state of the precision, such as a loss scale, for a checkpoint."""
        return {}

    def restore_precision(self, state: dict[str, Any]) -> None:
        """Load what `precision_state` returned."""


SINGLE_PROCESS = ProcessGroup()


class FabricGroup(ProcessGroup):
    """A process, single or one of several, on the device and in the precision that lightning-fabric gives it.

    The process group is never destroyed: gloo's threads may need Python's lock to free the last tensors sent, and
    destroying the group would wait for those threads while holding the lock.
    """

    def __init__(self, hardware: Hardware):
        self.fabric = _fabric(hardware)
        self.rank, self.world = self.fabric.global_rank, hardware.world
        with self.connected():
            self.fabric.launch()
        atexit.register(_leave_group)
        super().__init__(self.fabric.device)

    @contextmanager
    def connected(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if self.world == 1 or not _is_connection_error(error):
                raise
            raise ConnectionLost(
                f"process {self.rank} of {self.world} cannot reach the others: one of them ended, or the network "
                "failed; run the same command again to resume from the last checkpoint"
            ) from None

    def share_statistics(self, model: nn.Module) -> None:
        if self.world > 1:
            from tembed.lab.training.synced_norm import synchronise

            synchronise(model, self.device)

    def setup(self, model: nn.Module, optimizer: Optimizer) -> tuple[Forward, Any]:
        return self.fabric.setup(model, optimizer)

    def backward(self, loss: Tensor, share: float) -> None:
        self.fabric.backward(loss * (self.world * share))  # DDP averages gradients over the processes

    def clip_gradients(self, model: Any, optimizer: Any, norm: float) -> None:
        self.fabric.clip_gradients(model, optimizer, max_norm=norm, error_if_nonfinite=False)  # undoes a loss scale

    def batch_means(self, means: Tensor, share: float, stop: bool) -> Tensor:
        if self.world == 1:
            return means
        values = torch.cat([means.double() * share, means.new_full((1,), stop, dtype=torch.float64)])
        torch.distributed.all_reduce(values)
        return values

    def sum(self, values: Sequence[float]) -> Sequence[float]:
        if self.world == 1:
            return values
        return self._reduced(values, torch.distributed.ReduceOp.SUM)

    def largest(self, number: int | None) -> int | None:
        if self.world == 1:
            return number
        (largest,) = self._reduced([number or 0], torch.distributed.ReduceOp.MAX)
        return int(largest) or None

    def broadcast(self, value: Any) -> Any:
        return self.fabric.broadcast(value) if self.world > 1 else value

    def precision_state(self) -> dict[str, Any]:
        return self.fabric.strategy.precision.state_dict()

    def restore_precision(self, state: dict[str, Any]) -> None:
        if state:
            self.fabric.strategy.precision.load_state_dict(state)

    def _reduced(self, values: Sequence[float], operation: Any) -> list[float]:
        packed = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(packed, operation)
        return packed.tolist()


def join_process_group(hardware: Hardware) -> ProcessGroup:
    """The group for a complete `Hardware`. Call this in every process of the run; all must have been started."""
    if not hardware.needs_only_torch:
        return FabricGroup(hardware)
    return ProcessGroup(hardware.accelerator, torch.bfloat16 if hardware.precision == "bf16-mixed" else None)


def _leave_group() -> None:
    """End the threads of the connection, which otherwise may abort a process that ends."""
    if torch.distributed.is_initialized():
        time.sleep(0.1)  # gloo's threads take Python's lock to free what they sent; destroying would wait for them
        torch.distributed.destroy_process_group()


def _is_connection_error(error: RuntimeError) -> bool:
    """Whether an error comes from a broken connection between processes."""
    distributed = isinstance(error, torch.distributed.DistError)
    return distributed or any(word in str(error) for word in ("gloo", "NCCL", "Connection reset", "Socket"))


def _fabric(hardware: Hardware) -> Any:
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
        from lightning_fabric.strategies import DDPStrategy
    except ModuleNotFoundError as error:
        raise TembedError(
            f"several devices, 16-mixed and 64-true need {error.name}: pip install 'tembed[lab]'"
        ) from None
    for name in ("lightning_fabric", "lightning.fabric", "lightning_utilities"):
        logging.getLogger(name).setLevel(logging.WARNING)  # silence its banner
    try:
        return Fabric(
            accelerator=hardware.accelerator,
            devices=hardware.devices or 1,
            num_nodes=hardware.nodes or 1,
            strategy=DDPStrategy(**_no_buffer_sync()) if hardware.world > 1 else "auto",
            precision=hardware.precision,
            plugins=[TorchElasticEnvironment() if under_torchrun() else LightningEnvironment()],
        )
    except (ValueError, RuntimeError, TypeError) as error:
        raise TembedError(f"lightning-fabric cannot work with {hardware.record()}: {first_line(error)}") from None


def _no_buffer_sync() -> dict[str, Any]:
    """DDP's option not to broadcast running statistics in every forward pass.

    They are equal in all processes anyway, and in an evaluation the processes may have different numbers of batches.
    """
    options = inspect.signature(nn.parallel.DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers": False}
