"""Builds an attached network by its name: the network from elsewhere, cut or whole, with the block behind a layer."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tembed.attachment.attached import Attached
from tembed.attachment.attaching import AttachWarning, attach, make_block, start_with_identity
from tembed.attachment.dry_run import make_example
from tembed.attachment.frozen import BlockAndHead, Frozen
from tembed.attachment.sources import ForeignNetwork, make_source
from tembed.block import FeatureEmbedding
from tembed.models.description import Description
from tembed.models.foreign import parse_foreign

Load = Callable[[nn.Module, set[str]], None]
"""Loads weights into a network from elsewhere; the set names tensors that are not needed, those behind the layer."""


def source_of(
    model: str, classes: int, side: int, image_size: int | None, *, pretrained: bool = False
) -> ForeignNetwork:
    """The network from elsewhere, without the block. ``image_size``: the size that images are resized to, if any."""
    resized = image_size is not None
    return make_source(parse_foreign(model), classes, image_size or side, resized=resized, pretrained=pretrained)


def assemble(
    source: ForeignNetwork, model: str, classes: int, side: int, options: Mapping[str, Any], load: Load | None = None
) -> Attached | Frozen:
    """The block behind the layer that the name ``model`` says.

    ``options``: those of the block; ``image_size``; and ``freeze``, which keeps the network as it is up to the layer.
    """
    name, rest = parse_foreign(model), dict(options)
    image_size, freeze = rest.pop("image_size", None), rest.pop("freeze", False)
    size = image_size or side
    made: Attached | Frozen
    if not freeze:
        if load is not None:
            load(source.model, set())
        made = attach(source.model, name.at, classes, example=size, block=name.block, **rest)  # type: ignore[arg-type]
        made.image_size = image_size
    else:
        trunk = attach(source.model, name.at, classes, example=size, block="none")
        x = make_example(source.model, size)
        unused = behind_the_layer(trunk, x)
        if load is not None:
            load(source.model, unused)
        channels = trunk.features(x).shape[1]
        trunk.image_size = image_size
        block = make_block(name.block, channels, classes, trunk.layout, "paper", rest)
        if isinstance(block, FeatureEmbedding):  # the head is new, and from zero class vectors f' hardly grows
            start_with_identity(block)
        made = Frozen(trunk, BlockAndHead(block, channels, classes), unused)
    made.description = Description(model, dict(options), side)
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def build_attached(model: str, classes: int, side: int, options: Mapping[str, Any]) -> Attached | Frozen:
    """The network for weights that are loaded into it afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttachWarning)  # the training has said it
        source = source_of(model, classes, side, options.get("image_size"))
        return assemble(source, model, classes, side, options)


def behind_the_layer(trunk: Attached, x: Tensor) -> set[str]:
    """Names of the tensors of ``trunk.model`` that a pass to its layer does not need.

    Only modules beside the path to the layer count, because some modules use the weights of their children without
    calling them.
    """
    entered: set[str] = set()
    modules = dict(trunk.model.named_modules())
    handles = [
        module.register_forward_pre_hook(lambda module, inputs, name=name: entered.add(name))
        for name, module in modules.items()
    ]
    try:
        with torch.no_grad():
            trunk.eval().features(x)
    finally:
        for handle in handles:
            handle.remove()
    words = trunk.at.split(".")
    path = {".".join(words[:length]) for length in range(len(words))}
    parents = {name: name.rpartition(".")[0] for name in modules if name}
    skipped = [
        name
        for name, parent in parents.items()
        if parent in path and not any(each == name or each.startswith(f"{name}.") for each in entered)
    ]
    return {name for name in trunk.model.state_dict() if any(name.startswith(f"{each}.") for each in skipped)}
