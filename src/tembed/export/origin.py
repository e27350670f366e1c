"""What is known about the weights that a network has now."""

import dataclasses

from torch import nn

from tembed.models import Origin
from tembed.training.checksummed import checksum
from tembed.training.weights import plain_names


def current_origin(model: nn.Module) -> Origin | None:
    """The network's origin; None if it has none.

    If the weights have changed since they were loaded, their recipe and score no longer describe them: ``recipe`` is
    None, and ``about`` has only ``started_from``, the checksum of the loaded weights.
    """
    origin: Origin | None = getattr(model, "origin", None)
    if origin is None or origin.weights_sha256 in (None, checksum(plain_names(model.state_dict()))):
        return origin
    return dataclasses.replace(origin, recipe=None, about={"started_from": origin.weights_sha256})
