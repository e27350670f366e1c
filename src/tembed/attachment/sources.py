"""Where attached networks come from: timm, this package, or a module of the user."""

import difflib
import hashlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tembed import __version__
from tembed.common.arrays import Triple
from tembed.common.errors import TembedError, first_line
from tembed.common.extras import needs
from tembed.common.plugins import load_plugins, named_plugins
from tembed.models.foreign import TEMBED, TIMM, ForeignName
from tembed.models.registry import create_model

_OPERATORS: list[torch.library.Library] = []


@dataclass(frozen=True)
class ForeignNetwork:
    """A network as its factory made it, without the block.

    ``normalisation``: the mean and standard deviation that it expects, if it says so. ``about``: what the run folder
    records: the factory, its arguments, and a hash of its source.
    """

    model: nn.Module
    normalisation: tuple[Triple, Triple] | None
    about: dict[str, Any] = field(default_factory=dict)


def make_source(
    name: ForeignName, classes: int, side: int, *, resized: bool = False, pretrained: bool = False
) -> ForeignNetwork:
    """The network of a name for ``classes`` classes and images with the shorter side ``side``.

    ``resized``: the user chose that size. ``pretrained``: with timm's trained weights.
    """
    if name.source == TIMM:
        return _from_timm(name, classes, side if resized else None, pretrained)
    if name.source == TEMBED:
        made = create_model(name.factory, classes, side)
        return ForeignNetwork(made, None, _about(name, {"num_classes": classes, "input_size": side}))
    factory = _user_factory(name)
    try:
        model = factory(num_classes=classes)
    except Exception as error:
        raise TembedError(
            f"{name.source}:{name.factory}(num_classes={classes}) failed ({type(error).__name__}: "
            f"{first_line(error)}): it must take num_classes and return a network"
        ) from error
    if not isinstance(model, nn.Module):
        raise TembedError(f"{name.source}:{name.factory} returned a {type(model).__name__}, not a torch.nn.Module")
    return ForeignNetwork(model, _normalisation(model), _about(name, {"num_classes": classes}))


def check_source(name: ForeignName) -> None:
    """Raise `TembedError` if the network's source is not allowed or not installed here."""
    if name.source == TIMM:
        timm()
    elif name.source != TEMBED:
        _user_factory(name)


# --- timm


def timm() -> Any:
    """The package timm. It imports torchvision, of which the networks need nothing.

    A torchvision that was built for another torch lacks its compiled operators, and its import fails where it registers
    their shapes. Their declarations are enough for the import.
    """
    if "timm" not in sys.modules and importlib.util.find_spec("torchvision"):
        try:
            importlib.util.find_spec("torchvision.ops")
        except RuntimeError:
            for module in [each for each in sys.modules if each.split(".")[0] == "torchvision"]:
                del sys.modules[module]
            operators = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                operators.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _OPERATORS.append(operators)  # the declarations live as long as it does
    return needs("timm")


def _from_timm(name: ForeignName, classes: int, side: int | None, pretrained: bool) -> ForeignNetwork:
    package = timm()
    if not package.is_model(name.factory):
        near = difflib.get_close_matches(name.factory, package.list_models(), n=3)
        hint = f"did you mean one of these: {', '.join(near)}?" if near else "timm.list_models() lists the names"
        raise TembedError(f"timm has no network {name.factory!r}; {hint}")
    arguments: dict[str, Any] = {"num_classes": classes}
    if pretrained and not _has_weights(package, name.factory):
        raise _no_weights(name, "timm has none")
    try:
        with _quiet_hub():
            try:
                sized = arguments if side is None else arguments | {"img_size": side}
                model = package.create_model(name.factory, pretrained=pretrained, **sized)
            except TypeError:  # it takes images of any size
                sized = arguments
                model = package.create_model(name.factory, pretrained=pretrained, **sized)
    except Exception as error:
        if not pretrained:
            raise TembedError(f"timm cannot build {name.factory} ({first_line(error)})") from error
        raise _no_weights(name, first_line(error)) from error
    return ForeignNetwork(model, _normalisation(model), _about(name, sized))


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Silence the hub's warnings, one for each attempt to reach it. Its final error is shown."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _has_weights(package: Any, factory: str) -> bool:
    record = package.get_pretrained_cfg(factory)
    return record is not None and bool(record.has_weights)


def _no_weights(name: ForeignName, why: str) -> TembedError:
    return TembedError(
        f"the pretrained weights of {name.factory} cannot be had ({why}): give a weights file or random as `init`"
    )


def _normalisation(model: nn.Module) -> tuple[Triple, Triple] | None:
    """Mean and standard deviation in the record that timm's networks carry."""
    record: Any = getattr(model, "pretrained_cfg", None)
    try:
        mean, std = (tuple(float(value) for value in record[key]) for key in ("mean", "std"))
    except (TypeError, KeyError, ValueError):
        return None
    return (mean, std) if len(mean) == len(std) == 3 else None


# --- the user's modules


def _user_factory(name: ForeignName) -> Callable[..., Any]:
    """A function of a module that the user named on this command. A recipe or a run folder alone imports nothing."""
    if name.source not in named_plugins():
        raise TembedError(
            f"the network {name} is code of yours, which is imported only if you name it: add --plugin {name.source}, "
            "or set TEMBED_PLUGINS"
        )
    load_plugins([name.source])
    factory = getattr(sys.modules[name.source], name.factory, None)
    if not callable(factory):
        raise TembedError(f"the module {name.source} has no function {name.factory!r}")
    return factory


def _about(name: ForeignName, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the run folder records about a network."""
    return {"factory": f"{name.source}:{name.factory}", "layer": name.at, "arguments": arguments, **code_version(name)}


def code_version(name: ForeignName) -> dict[str, str]:
    """Identifies the code of a network: the version of its package, or a hash of the file of the user's factory."""
    if name.source == TIMM:
        return {"version": timm().__version__}
    if name.source == TEMBED:
        return {"version": __version__}
    try:
        path = inspect.getsourcefile(_user_factory(name))
        content = Path(path).read_bytes() if path else b""
    except (OSError, TypeError):
        content = b""
    return {"source_sha256": hashlib.sha256(content).hexdigest()}
