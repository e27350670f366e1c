"""Starts a network of this package from the weights of another run, with a new head where the classes differ."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.maximizers.bn_relu import current_names

PER_CLASS = ("head.", "block.match.score.", "block.maximizer.", "block.values.")
"""Beginnings of the names of tensors whose entries belong to classes."""


def load_fitting(
    model: nn.Module, classes: tuple[str, ...], tensors: Mapping[str, Tensor], record: Mapping[str, Any], source: str
) -> list[str]:
    """Load all weights that still make sense, and return their names.

    The head and the block's class convolutions stay as they are if the weights were trained on other classes. The block
    stays as it is if the weights have none. Raises `TembedError` if anything else is missing or does not fit.
    """
    wanted, tensors = model.state_dict(), current_names(tensors, model)
    same = tuple(record["classes"]) == classes if "classes" in record else _same_shapes(wanted, tensors)
    loaded = [name for name in wanted if name in tensors and (same or not name.startswith(PER_CLASS))]
    missing = [name for name in wanted if name not in tensors and not name.startswith(("block.", *PER_CLASS))]
    extra = [name for name in tensors if name not in wanted and not name.startswith(("block.", *PER_CLASS))]
    shapes = [name for name in loaded if tensors[name].shape != wanted[name].shape]
    for names, what in (
        (missing, "it lacks {}"),
        (extra, "it has {} in addition"),
        (shapes, "{} has another shape"),
    ):
        if names:
            raise TembedError(
                f"`init`: the weights of {source} do not fit this network: {what.format(names[0])}; give weights of "
                "the same network, with or without the block"
            )
    model.load_state_dict({name: tensors[name] for name in loaded}, strict=False)
    return loaded


def say_what_is_new(model: nn.Module, loaded: Iterable[str], source: str, progress: Progress) -> None:
    """Name the modules that do not start from ``source``."""
    known = set(loaded)
    new = {name.rpartition(".")[0] for name, _ in model.named_parameters() if name not in known}
    progress.say(f"starting from {source}" + (f"; new: {', '.join(sorted(new))}" if new else ""))


def slow_down(optimizer: Optimizer, model: nn.Module, loaded: Iterable[str], scale: float) -> None:
    """Give the loaded weights parameter groups of their own, whose rate is multiplied by ``scale``."""
    known = set(loaded)
    slow = {id(parameter) for name, parameter in model.named_parameters() if name in known}
    for group in list(optimizer.param_groups):
        slower = [parameter for parameter in group["params"] if id(parameter) in slow]
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in slow]
        if slower:
            optimizer.param_groups.append({**group, "params": slower, "scale": scale})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


def _same_shapes(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> bool:
    """Whether weights without a record of their classes have as many as the network."""
    named = [name for name in wanted if name.startswith(PER_CLASS) and name in tensors]
    return all(wanted[name].shape == tensors[name].shape for name in named)
