"""Where a network comes from: what is needed to build it again, and what is known about its weights."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Origin:
    """``create_model`` notes the first three fields, and loading trained weights notes the rest.

    ``model``: the name for `create_model`, with ``options``. ``input_size``: the images' shorter side. ``mean`` and
    ``std`` normalise the images. ``recipe``: the recipe as plain values. ``about``: the epoch, its accuracy, the result
    of the run. ``weights_sha256``: checksum of the loaded weights, which tells whether they have changed since.
    """

    model: str
    input_size: int
    options: dict[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    recipe: dict[str, Any] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    weights_sha256: str | None = None
