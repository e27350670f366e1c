"""Where and how to compute: the device, deterministic operations, and a random state that is put back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch.utils import deterministic

from tembed.common.errors import TembedError


@contextmanager
def reproducible(device: torch.device | str) -> Iterator[None]:
    """Use deterministic operations only if ``device`` is the CPU, and restore torch's global generator afterwards.

    On a GPU some operations of the networks have no deterministic form, and torch would refuse them.
    """
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with torch.random.fork_rng(devices=[]):
        torch.use_deterministic_algorithms(torch.device(device).type == "cpu" or before)
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)
            deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def choose_device(accelerator: str) -> Literal["cpu", "cuda"]:
    """The device for "cpu", "cuda", or "auto", a GPU if there is one. Raises `TembedError` if it is not there."""
    if accelerator not in ("auto", "cpu", "cuda"):
        raise TembedError(f"`accelerator` is {accelerator!r}; it must be one of auto, cpu, cuda")
    available = torch.cuda.is_available()
    if accelerator == "cuda" and not available:
        raise TembedError("`accelerator` is cuda, but torch finds no GPU here; leave it out to compute on the CPU")
    return "cuda" if available and accelerator != "cpu" else "cpu"
