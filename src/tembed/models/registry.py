"""The networks by name: ``create_model("rn26-embed")``, or by the paper's label, ``create_model("RN26-Ours")``."""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

from tembed.errors import TembedError
from tembed.models.network import Network

BLOCK_OPTIONS = ("softmax_on_bn", "smooth_shortcut", "window")
"""What a user of an ``-embed`` network may set of its `FeatureEmbedding`."""


class Entry(NamedTuple):
    """How a network is built, and the options that it takes."""

    build: Callable[..., Network]
    options: tuple[str, ...]


_ENTRIES: dict[str, Entry] = {}


def register_model(name: str, build: Callable[..., Network], options: tuple[str, ...] = ()) -> None:
    """Make ``build(num_classes, input_size, **options)`` known to `create_model`."""
    if name in _ENTRIES:
        raise TembedError(f"a model named {name!r} is registered already")
    _ENTRIES[name] = Entry(build, options)


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return sorted(_ENTRIES)


def model_options(name: str) -> tuple[str, ...]:
    """The options that `create_model` takes for this network."""
    return _ENTRIES[canonical_name(name)].options


def canonical_name(name: str) -> str:
    """Our name for a name of ours or a label of Table 1: ``DN100-Ours-C`` is ``dn100-embed-cat``."""
    plain = name.strip().lower().replace("_", "-").rstrip(".")
    plain = plain.replace("-ours-c", "-embed-cat").replace("-ours", "-embed")
    if plain not in _ENTRIES:
        near = difflib.get_close_matches(plain, _ENTRIES, n=3, cutoff=0.5)
        hint = f"near it: {', '.join(near)}" if near else f"there are: {', '.join(list_models())}"
        raise TembedError(f"unknown model {name!r}; {hint}")
    return plain


def create_model(name: str, num_classes: int = 10, input_size: int = 32, **options: Any) -> Network:
    """A freshly initialised network of Table 1 or of the ablation.

    Args:
        name: one of `list_models`, or the paper's label for it.
        num_classes: ``C``.
        input_size: side of the images it is laid out for. From 64 on it has the Mini-ImageNet layout, which halves
            the map once more, so that the block sees maps of about CIFAR's size.
        options: ``maximizer``, ``mu``, ``eta``, ``eps`` for what follows the 3x3 convolutions of the RN networks
            (§4.1); ``softmax_on_bn``, ``smooth_shortcut``, ``window`` for the block of the ``-embed`` ones.
    """
    name = canonical_name(name)
    build, known = _ENTRIES[name]
    if num_classes < 1 or input_size < 8:
        raise TembedError(
            f"num_classes must be at least 1 and input_size at least 8, not {num_classes} and {input_size}"
        )
    for option in options:
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise TembedError(f"{name} has no option {option!r}; {takes}")
    return build(num_classes, input_size, **options)


def shrinks_early(input_size: int) -> bool:
    """Whether images are large enough for the Mini-ImageNet layout (appendix A)."""
    return input_size >= 64
