"""Torch in a state in which the same inputs give the same bits."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import deterministic


@contextmanager
def reproducible(deterministic_only: bool = True) -> Iterator[None]:
    """Torch with deterministic operations only, and its global generator as before afterwards.

    Not all that the networks need has a deterministic form on a GPU, hence the choice.
    """
    before = torch.are_deterministic_algorithms_enabled()
    fill = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with torch.random.fork_rng(devices=[]):
        torch.use_deterministic_algorithms(deterministic_only or before)
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)
            deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
