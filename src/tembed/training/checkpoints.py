"""Checkpoints of a run: the newest and the one before it.

A new one is written aside and synced; then the newest becomes the previous, and the new one the newest. The names
say which is which, so nothing depends on an order of names or dates, and at every moment one of the two is whole.
"""

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tembed.errors import TembedError, first_line
from tembed.files import explained, sync_folder, write_aside
from tembed.training.checksummed import seal, unseal

Tensors = dict[str, Tensor]


@dataclass
class Sums:
    """What an epoch has added up so far, over its images."""

    images: int = 0
    head: float = 0.0
    patches: float = 0.0
    correct: int = 0
    seconds: float = 0.0


@dataclass
class State:
    """Where a run is. ``epoch`` and ``step`` count what is done; ``metrics`` has a record for each epoch done.

    ``best`` holds the weights of the epoch with the best validation accuracy, the first of equals.
    """

    epoch: int = 0
    step: int = 0
    sums: Sums = field(default_factory=Sums)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    best: Tensors = field(default_factory=dict)

    @property
    def best_metrics(self) -> dict[str, Any]:
        """The record of the best epoch."""
        assert self.best_epoch is not None
        return self.metrics[self.best_epoch]

    def plain(self) -> dict[str, Any]:
        """Everything but the tensors."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "sums": dataclasses.asdict(self.sums),
            "metrics": self.metrics,
            "best_epoch": self.best_epoch,
        }


def gather(state: State, model: nn.Module, optimizer: Optimizer) -> Tensors:
    """All tensors of a run by name. `TembedError` if a weight is not finite: such a state is not worth keeping."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise TembedError(f"{name.removeprefix('model.')} is not finite after step {state.step}")
    for name, moments in _moments(model, optimizer).items():
        tensors |= {f"optimizer.{name}.{key}": value for key, value in moments.items()}
    return tensors | {f"best.{name}": tensor for name, tensor in state.best.items()}


def restore(plain: dict[str, Any], tensors: Tensors, model: nn.Module, optimizer: Optimizer) -> State:
    """Puts a saved run back into a model and an optimizer of the same make. `TembedError` if it does not fit them."""
    try:
        values = {key: plain[key] for key in ("epoch", "step", "metrics", "best_epoch")}
        state = State(**values, sums=Sums(**plain["sums"]))
        state.best = {name: tensor.clone() for name, tensor in _under("best.", tensors).items()}
        _check(state, model)
        model.load_state_dict(_under("model.", tensors))
        saved = _under("optimizer.", tensors)
        names = {name for name, _ in model.named_parameters()}
        for name, parameter in model.named_parameters():
            moments = _under(f"{name}.", saved)
            # A copy, so that the moments keep the parameter's layout in memory: the fused step relies on it.
            optimizer.state[parameter] = {
                key: torch.empty_like(parameter).copy_(value) if value.ndim else value.to(parameter.device, copy=True)
                for key, value in moments.items()
            }
        if saved and {key.rpartition(".")[0] for key in saved} != names:
            raise TembedError("its optimizer is not that of this model")
    except TembedError:
        raise
    except Exception as error:  # a checksum is no signature: anything may be in there
        raise TembedError(f"it does not fit this model ({first_line(error)})") from None
    return state


def _check(state: State, model: nn.Module) -> None:
    """`TembedError` unless position, records and best weights belong together and to the model."""
    whole = all(type(n) is int and n >= 0 for n in (state.epoch, state.step, state.sums.images))
    if not whole or len(state.metrics) != state.epoch:
        raise TembedError("its position makes no sense")
    for number, record in enumerate(state.metrics, 1):
        if record["epoch"] != number or not all(
            type(record[key]) is float for key in ("val_accuracy", "total_seconds")
        ):
            raise TembedError(f"its record of epoch {number} makes no sense")
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if state.epoch and (
        state.best_epoch not in range(state.epoch) or {name: t.shape for name, t in state.best.items()} != shapes
    ):
        raise TembedError("its best epoch makes no sense")


def copy_tensors(model: nn.Module) -> Tensors:
    """The weights and statistics as they are now."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _moments(model: nn.Module, optimizer: Optimizer) -> dict[str, dict[str, Tensor]]:
    return {name: optimizer.state[p] for name, p in model.named_parameters() if p in optimizer.state}


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


KIND = "a checkpoint"


@dataclass(frozen=True)
class Checkpoints:
    """The ``checkpoints`` folder of a run."""

    folder: Path

    @property
    def newest(self) -> Path:
        return self.folder / "newest.safetensors"

    @property
    def previous(self) -> Path:
        return self.folder / "previous.safetensors"

    def save(self, tensors: Tensors, record: dict[str, Any]) -> None:
        """Make this the newest. If the disk is full or gone, the two that are there stay as they are."""
        content = seal(tensors, {**record, "kind": KIND})
        aside = self.folder / "next.part"
        with explained(self.newest):
            try:
                write_aside(aside, content)
                if self.newest.exists():
                    os.replace(self.newest, self.previous)
                os.replace(aside, self.newest)
                sync_folder(self.folder)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise

    def load(self) -> tuple[Tensors, dict[str, Any], list[str]]:
        """Tensors and record of the newest checkpoint that is whole, and what was wrong with those that are not.

        A damaged newest one is moved out of the way, so that it never takes the place of the good previous one.
        Raises `TembedError` if there are checkpoints and none is whole.
        """
        wrong: list[str] = []
        for path in (self.newest, self.previous):
            if not path.exists():
                continue
            try:
                tensors, record = unseal(path, KIND)
            except TembedError as error:
                wrong.append(str(error))
                continue
            if wrong:
                with explained(self.newest):
                    os.replace(self.newest, self.folder / "damaged.safetensors")
            return tensors, record, wrong
        raise TembedError(
            f"{'; '.join(wrong)}: no checkpoint in {self.folder} can be used; remove that folder to start this run "
            "again from its beginning, or give another --out"
        )

    @property
    def any(self) -> bool:
        """Whether something was saved."""
        return self.newest.exists() or self.previous.exists()

    def last_good(self) -> str:
        """The checkpoint that a stopped run would go on from, for an error's text."""
        return str(self.newest if self.newest.exists() else self.previous) if self.any else "none yet"
