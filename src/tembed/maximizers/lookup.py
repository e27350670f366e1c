"""The maximizers by name. To add one, call `register` once, from any file."""

import difflib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import nn

from tembed.common.errors import TembedError


class _Entry(NamedTuple):
    build: Callable[..., nn.Module]
    constants: dict[str, float]


_ENTRIES: dict[str, _Entry] = {}


def register(name: str, build: Callable[..., nn.Module], constants: Mapping[str, float]) -> None:
    """Add a maximizer.

    Args:
        name: what users write: ``create_model("rn26", maximizer=name)``.
        build: called as ``build(channels, **constants)``; returns a module that maps ``(N, channels, H, W)`` to the
            same shape.
        constants: the name of each constant and its default. Networks take them as options.
    """
    if name in _ENTRIES:
        raise TembedError(f"a maximizer named {name!r} is already registered")
    _ENTRIES[name] = _Entry(build, dict(constants))


def names() -> list[str]:
    """The registered maximizers."""
    return sorted(_ENTRIES)


def constants(name: str) -> dict[str, float]:
    """The constants of a maximizer with their defaults; empty for BN-ReLU."""
    return dict(_entry(name).constants)


def create(name: str, channels: int, **constants: float) -> nn.Module:
    """A maximizer over ``channels`` kernels by name, with these constants changed from their defaults."""
    entry = _entry(name)
    for constant in constants:
        if constant not in entry.constants:
            known = f"its constants are {', '.join(entry.constants)}" if entry.constants else "it has none"
            raise TembedError(f"the maximizer {name!r} has no constant {constant!r}; {known}")
    return entry.build(channels, **{**entry.constants, **constants})


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        near = difflib.get_close_matches(name, _ENTRIES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise TembedError(f"unknown maximizer {name!r}; {hint}choose from: {', '.join(names())}")
    return _ENTRIES[name]
