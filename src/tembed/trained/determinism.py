"""Where and how to compute: the device, deterministic operations, and a random state that is put back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import get_args

import torch
from torch.utils import deterministic

from tembed.common.accelerators import Accelerator
from tembed.common.errors import TembedError

GPUS: dict[str, Callable[[], bool]] = {
    "cuda": lambda: torch.cuda.is_available(),
    "mps": lambda: torch.backends.mps.is_available(),
}
"""The kinds of GPU, and whether there is one. The first that is there is chosen."""


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


def choose_device(accelerator: str) -> str:
    """The device for "cpu", a kind of GPU, or "auto", a GPU if there is one. Raises `TembedError` if there is none."""
    if accelerator == "auto":
        return next((name for name, is_available in GPUS.items() if is_available()), "cpu")
    if accelerator not in ("cpu", *GPUS):
        raise TembedError(f"`accelerator` is {accelerator!r}; it must be one of {', '.join(get_args(Accelerator))}")
    if accelerator != "cpu" and not GPUS[accelerator]():
        raise TembedError(
            f"`accelerator` is {accelerator}, but torch finds no GPU here; leave it out to compute on the CPU"
        )
    return accelerator
