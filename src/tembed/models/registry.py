"""The networks by name: ``create_model("rn26-embed")``, or by the paper's label, ``create_model("RN26-Ours")``."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tembed import maximizers
from tembed.block import DeepSupervision, FeatureEmbedding
from tembed.common.errors import TembedError
from tembed.models.conventions import CONVENTIONS, DEFAULT, adopt
from tembed.models.description import Description
from tembed.models.foreign import is_foreign, parse_foreign
from tembed.models.network import Network
from tembed.paper import LABELS

BLOCK_OPTIONS = ("softmax_on_bn", "smooth_shortcut", "norm_shortcut", "window")
"""Options of `FeatureEmbedding` that the ``-embed`` networks accept."""
FOREIGN_OPTIONS = ("softmax_on_bn",)
"""Those that a block with an identity shortcut accepts, which is how it starts in a foreign network."""


@dataclass(frozen=True)
class ModelInfo:
    """Everything about a registered network.

    ``build``: called as ``build(num_classes, input_size, **options)``. ``label``: what reports call it; by default the
    paper's label if the network is in Table 1. ``block``: "embed" (`FeatureEmbedding`), "aux" (`DeepSupervision`) or
    None. ``options``: what `create_model` accepts besides the constants of the maximizer. ``defaults``: values of
    options that override those of the dataset. ``about``: what `tembed models` says of a network that is not in
    Table 1.
    """

    name: str
    build: Callable[..., Network]
    label: str | None = None
    block: str | None = None
    options: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    about: str = ""

    @property
    def has_block(self) -> bool:
        """Whether the network feeds its patch scores back (§3.3)."""
        return self.block == "embed"

    @property
    def has_scores(self) -> bool:
        """Whether the network returns `Output.scores`, which the patch loss needs (Eq. 3.1)."""
        return self.block in ("embed", "aux")


_ENTRIES: dict[str, ModelInfo] = {}


def register_model(
    name: str,
    build: Callable[..., Network],
    *,
    label: str | None = None,
    block: str | None = "auto",
    options: tuple[str, ...] = (),
    defaults: Mapping[str, Any] | None = None,
    about: str = "",
) -> None:
    """Make a network known to `create_model`; the arguments are the fields of `ModelInfo`.

    With ``block="auto"``, `model_info` builds the network once, without memory for its weights, to look for the block.
    A network with the option "maximizer" also accepts every constant of the chosen maximizer as an option.
    """
    if name in _ENTRIES:
        raise TembedError(f"a model named {name!r} is already registered")
    if name != model_key(name):
        raise TembedError(f"`name` is {name!r}; it must be in lower case with hyphens: {model_key(name)!r}")
    if block not in ("auto", "embed", "aux", None):
        raise TembedError(f"`block` is {block!r}; it must be 'auto', 'embed', 'aux' or None")
    label = label or LABELS.get(name)
    _ENTRIES[name] = ModelInfo(name, build, label, block, tuple(options), dict(defaults or {}), about)


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return sorted(_ENTRIES)


def model_info(name: str) -> ModelInfo:
    """Everything about a network, by its name or its label. A foreign name is read, and nothing is imported for it."""
    if is_foreign(name):
        parsed = parse_foreign(name)
        block = None if parsed.block == "none" else parsed.block
        return ModelInfo(str(parsed), _not_registered, None, block, FOREIGN_OPTIONS if block == "embed" else ())
    info = _ENTRIES[canonical_name(name)]
    if info.block == "auto":
        info = replace(info, block=_find_block(info))
        _ENTRIES[info.name] = info
    return info


def canonical_name(name: str) -> str:
    """The registered name for a name or a label of Table 1: ``DN100-Ours-C`` is ``dn100-embed-cat``."""
    if is_foreign(name):
        return str(parse_foreign(name))
    key = model_key(name)
    key = next((info.name for info in _ENTRIES.values() if info.label and model_key(info.label) == key), key)
    if key not in _ENTRIES:
        near = difflib.get_close_matches(key, sorted(_ENTRIES), n=3, cutoff=0.5)
        hint = f"did you mean one of these: {', '.join(near)}?" if near else f"choose from: {', '.join(list_models())}"
        raise TembedError(f"unknown model {name!r}; {hint}")
    return key


def model_key(name: str) -> str:
    """The form in which names and labels of networks are compared."""
    return name.strip().lower().replace("_", "-").rstrip(".")


def create_model(name: str, num_classes: int = 10, input_size: int = 32, **options: Any) -> Network:
    """A freshly initialised network of Table 1, of the ablation, or of `register_model`.

    Args:
        name: one of `list_models`, or the paper's label for it.
        num_classes: ``C``.
        input_size: side of the images that the network is designed for. From 64 on, it has the Mini-ImageNet layout,
            which halves the map once more, so that the block sees maps of about the size of CIFAR's.
        options: ``maximizer`` and its constants (``mu``, ``eta``, ``eps``) for what follows the 3x3 convolutions of
            the RN networks (§4.1); ``softmax_on_bn``, ``smooth_shortcut``, ``norm_shortcut``, ``window`` for the block
            of the ``-embed`` networks; ``conventions="keras"`` for the authors' habits (`tembed.models.conventions`).
    """
    if is_foreign(name):
        _not_registered(name)
    info = _ENTRIES[canonical_name(name)]
    for argument, value, least in (("num_classes", num_classes, 1), ("input_size", input_size, 8)):
        if value < least:
            raise TembedError(f"`{argument}` is {value}; it must be at least {least}")
    accepted = [*info.options, "conventions"]
    if "maximizer" in accepted:
        accepted += maximizers.constants(options.get("maximizer", "bn-relu"))
    for option in options:
        if option not in accepted:
            takes = ", ".join(accepted)
            raise TembedError(f"{info.name} has no option {option!r}{_with_maximizer(info, options)}; it takes {takes}")
    conventions = options.get("conventions", DEFAULT)
    if conventions not in CONVENTIONS:
        raise TembedError(f"`conventions` is {conventions!r}; it must be one of {', '.join(CONVENTIONS)}")
    model = info.build(num_classes, input_size, **{key: options[key] for key in options if key != "conventions"})
    if conventions != DEFAULT:  # which a new network has already
        adopt(model, conventions)
    model.description = Description(info.name, options, input_size)
    return model


def _not_registered(name: object, *_: Any, **__: Any) -> Network:
    raise TembedError(
        f"{name} is not a network of this package: insert the block with tembed.attach, or train it with tembed.train"
    )


def shrinks_early(input_size: int) -> bool:
    """Whether images are large enough for the Mini-ImageNet layout (appendix A)."""
    return input_size >= 64


def _with_maximizer(info: ModelInfo, options: Mapping[str, Any]) -> str:
    return f" with the maximizer {options.get('maximizer', 'bn-relu')}" if "maximizer" in info.options else ""


def _find_block(info: ModelInfo) -> str | None:
    """The kind of block that the network contains."""
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                model = info.build(2, 32)
        except (NotImplementedError, RuntimeError):  # `build` reads tensor values, which a meta tensor lacks
            model = info.build(2, 32)
    kinds = [type(module) for module in model.modules()]
    if any(issubclass(kind, FeatureEmbedding) for kind in kinds):
        return "embed"
    return "aux" if any(issubclass(kind, DeepSupervision) for kind in kinds) else None
