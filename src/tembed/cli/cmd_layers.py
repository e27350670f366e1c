"""``tembed layers``: where the block can be attached in a network."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from tembed.cli.options import read_options

FLAGS = {
    "example": "--image-size",
    "num_classes": "num_classes",
    **{name: f"{name} to tembed.attach in Python" for name in ("layout", "grid", "prefix_tokens")},
}
"""What an error about attaching the block means for a command."""


@dataclass(frozen=True)
class Layers:
    """List the submodules of a network that the block can be attached behind, with their output for one image.

    The field is the side of the region, in pixels of the image, that a position of the output depends on.
    """

    network: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NETWORK")]
    """timm:NAME, tembed:NAME or my.module:factory"""
    image_size: int | None = None
    """side of the images (default: the one that the network expects, or 32 for the networks of this package)"""
    all: bool = False
    """also list submodules inside of submodules that are listed"""


def _is_inside(layer: str, others: set[str]) -> bool:
    """Whether one of the other layers contains this one."""
    parts = layer.split(".")
    return any(".".join(parts[:count]) in others for count in range(1, len(parts)))


def main(arguments: list[str]) -> int:
    command = read_options(Layers, "tembed layers", arguments)
    from tembed.attachment.dry_run import COLUMNS, aligned, list_layers
    from tembed.attachment.receptive_fields import receptive_fields
    from tembed.attachment.sources import make_source
    from tembed.common.plugins import name_plugins
    from tembed.models.foreign import parse_foreign, user_module

    name = parse_foreign(command.network, layer=False)
    if module := user_module(str(name)):
        name_plugins([module])  # the user named it on this command
    size = command.image_size or (32 if name.source == "tembed" else None)
    source = make_source(name, 10, size or 224, resized=command.image_size is not None)
    layers = list_layers(source.model, size)
    names = {layer.name for layer in layers}
    shown = [one for one in layers if command.all or one.name.count(".") <= 1 or not _is_inside(one.name, names)]
    fields = receptive_fields(source.model, size, [layer.name for layer in shown])
    rows = [(*COLUMNS, "field"), *((*layer.cells(), str(fields[layer.name])) for layer in shown)]
    print(aligned(rows))
    if len(shown) < len(layers):
        print(f"{len(layers) - len(shown)} more inside of these: --all lists them")
    return 0
