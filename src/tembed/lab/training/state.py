"""The state of a run between two steps, and its tensors by name."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tembed.common.errors import TembedError, first_line
from tembed.lab.training.run import check_metrics
from tembed.maximizers.bn_relu import current_names

Tensors = dict[str, Tensor]

NO_STATE = "no_state"
"""Marks a parameter for which the optimizer has no state."""


@dataclass
class Sums:
    """Sums over the images that the current epoch has trained on so far."""

    images: int = 0
    head: float = 0.0
    patches: float = 0.0
    correct: int = 0
    seconds: float = 0.0


@dataclass
class State:
    """How far a run has got. ``epoch`` and ``step`` count finished ones; ``metrics`` has a record per finished epoch.

    ``best`` holds the weights of the epoch with the best validation accuracy, the first such epoch if several tie.
    ``average`` holds the mean weights so far if the recipe averages them.
    """

    epoch: int = 0
    step: int = 0
    sums: Sums = field(default_factory=Sums)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    best: Tensors = field(default_factory=dict)
    average: Tensors = field(default_factory=dict)

    @property
    def best_metrics(self) -> dict[str, Any]:
        """The record of the best epoch."""
        assert self.best_epoch is not None
        return self.metrics[self.best_epoch]

    @property
    def val_accuracies(self) -> list[float]:
        """The validation accuracy of each finished epoch."""
        return [record["val_accuracy"] for record in self.metrics]

    def to_json(self) -> dict[str, Any]:
        """Everything but the tensors."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "sums": dataclasses.asdict(self.sums),
            "metrics": self.metrics,
            "best_epoch": self.best_epoch,
        }


def gather(state: State, model: nn.Module, optimizer: Optimizer) -> Tensors:
    """All tensors of a run by name. Raises `TembedError` if a weight is not finite: such a state must not be saved."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise TembedError(f"{name.removeprefix('model.')} is not finite after step {state.step}")
    for name, parameter in model.named_parameters():
        if parameter in optimizer.state:
            moments = optimizer.state[parameter]
            for key, value in moments.items():
                if not isinstance(value, Tensor):
                    raise TembedError(f"the optimizer stores {key!r} as {type(value).__name__}; only tensors are saved")
            tensors |= {f"optimizer.{name}.{key}": value for key, value in moments.items()}
        elif optimizer.state:  # the parameter never had a gradient
            tensors[f"optimizer.{name}.{NO_STATE}"] = torch.empty(0)
    tensors |= {f"average.{name}": tensor for name, tensor in state.average.items()}
    return tensors | {f"best.{name}": tensor for name, tensor in state.best.items()}


def restore(plain: dict[str, Any], tensors: Tensors, model: nn.Module, optimizer: Optimizer) -> State:
    """Load what `State.to_json` and `gather` returned into a model and an optimizer of the same recipe.

    Raises `TembedError` if it does not fit them.
    """

    def under(prefix: str) -> Tensors:
        return current_names(_under(prefix, tensors), model)

    try:
        values = {key: plain[key] for key in ("epoch", "step", "metrics", "best_epoch")}
        state = State(**values, sums=Sums(**plain["sums"]))
        state.best = {name: tensor.clone() for name, tensor in under("best.").items()}
        device = next(model.parameters()).device
        state.average = {name: tensor.to(device, copy=True) for name, tensor in under("average.").items()}
        _check(state, model)
        model.load_state_dict(under("model."))
        _restore_optimizer(under("optimizer."), model, optimizer)
    except TembedError:
        raise
    except Exception as error:  # a checksum is not a signature, so the file may hold anything
        raise TembedError(f"it does not fit this model ({first_line(error)})") from None
    return state


def copy_tensors(model: nn.Module) -> Tensors:
    """A copy of the weights and statistics."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _restore_optimizer(saved: Tensors, model: nn.Module, optimizer: Optimizer) -> None:
    old_names = getattr(optimizer, "OLD_STATE_NAMES", {})
    for name, parameter in model.named_parameters():
        found = _under(f"{name}.", saved)
        if NO_STATE in found:
            continue
        # The copies keep the parameter's memory layout, which the fused step relies on.
        optimizer.state[parameter] = {
            old_names.get(key, key): torch.empty_like(parameter, dtype=value.dtype).copy_(value)
            if value.shape == parameter.shape
            else value.to(parameter.device, copy=True)
            for key, value in found.items()
        }
    names = {name for name, _ in model.named_parameters()}
    if saved and {key.rpartition(".")[0] for key in saved} != names:
        raise TembedError("its optimizer state does not fit this model")


def _check(state: State, model: nn.Module) -> None:
    """Raise `TembedError` unless position, records and best weights agree with each other and with the model."""
    sums = state.sums
    counts = all(type(n) is int and n >= 0 for n in (state.epoch, state.step, sums.images, sums.correct))
    numbers = all(type(n) is float and math.isfinite(n) for n in (sums.head, sums.patches, sums.seconds))
    if not counts or not numbers or sums.seconds < 0 or len(state.metrics) != state.epoch:
        raise TembedError("its position makes no sense")
    if state.step and not sums.images:
        raise TembedError("its sums make no sense")
    check_metrics(state.metrics)
    for number, record in enumerate(state.metrics, 1):
        if record["epoch"] != number or record["total_seconds"] is None:
            raise TembedError(f"its record of epoch {number} makes no sense")
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if state.epoch and (
        state.best_epoch not in range(state.epoch) or {name: t.shape for name, t in state.best.items()} != shapes
    ):
        raise TembedError("its best epoch makes no sense")
    if state.average and {name: tensor.shape for name, tensor in state.average.items()} != shapes:
        raise TembedError("its average weights make no sense")


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
