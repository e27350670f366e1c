"""What is known about the weights that a network has now."""

import dataclasses
from collections.abc import Sequence

from torch import nn

from tembed.common.errors import TembedError
from tembed.models.origin import Origin
from tembed.trained.checksummed import checksum
from tembed.trained.weights_file import plain_names


def current_origin(model: nn.Module) -> Origin | None:
    """The network's origin; None if it has none.

    If the weights have changed since they were loaded, their recipe and score no longer describe them: ``recipe`` is
    None, and ``about`` has only ``started_from``, the checksum of the loaded weights.
    """
    origin: Origin | None = getattr(model, "origin", None)
    if origin is None or origin.weights_sha256 in (None, checksum(plain_names(model.state_dict()))):
        return origin
    return dataclasses.replace(origin, recipe=None, about={"started_from": origin.weights_sha256})


def normalisation(
    origin: Origin, mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[list[float] | None, list[float] | None]:
    """The mean and the standard deviation that were given, or those of the training; None if they are unknown."""
    if (mean is None) != (std is None):
        raise TembedError("give both `mean` and `std`, or neither")
    mean, std = (origin.mean, origin.std) if mean is None else (mean, std)
    return tuple(None if values is None else [float(value) for value in values] for values in (mean, std))  # type: ignore[return-value]
