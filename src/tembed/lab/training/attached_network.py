"""Builds the attached network of a recipe, with its start, or empty for weights that are loaded afterwards."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tembed.attachment.attached import Attached
from tembed.attachment.attaching import AttachWarning, attach, make_block
from tembed.attachment.dry_run import make_example
from tembed.attachment.frozen import Frozen, Top
from tembed.attachment.sources import Source, Triple, make_source
from tembed.common.errors import TembedError
from tembed.lab.training.initial_weights import RANDOM, behind_the_layer, load_initial, read_weights
from tembed.lab.training.recipe import Recipe
from tembed.models.foreign import OWN, parse_foreign
from tembed.models.registry import shrinks_early
from tembed.trained.checksummed import checksum


@dataclass(frozen=True)
class Built:
    """An attached network with its start.

    ``about``: what the run folder records about it in ``network.json``. ``warnings``: what the user should know.
    """

    model: Attached | Frozen
    about: dict[str, Any]
    warnings: tuple[str, ...] = ()


def build_start(recipe: Recipe, classes: int, side: int) -> Built:
    """The network of a complete recipe at the start of its training."""
    name, init = parse_foreign(recipe.model), recipe.init
    if init is None and name.source == OWN:
        raise TembedError(
            f"{recipe.model} has no weights of its own: give shipped weights such as rn26/cifar10, a run, a weights "
            "file or random as `init`"
        )
    tensors, record = ({}, {}) if init in (None, RANDOM) else read_weights(str(init))
    source = _source(recipe, classes, side, pretrained=init is None)
    start = None if init in (None, RANDOM) else (tensors, str(init))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AttachWarning)
        model = _assemble(recipe, source, classes, side, start)
    said = [str(each.message) for each in caught if issubclass(each.category, AttachWarning)]
    said += _other_layout(recipe, record.get("input_size"), side)
    for each in caught:
        if not issubclass(each.category, AttachWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    weights = checksum(model.used_tensors() if isinstance(model, Frozen) else source.model.state_dict())
    about = {**source.about, "init": init or "its own weights", "weights_sha256": weights}
    if record.get("recipe"):
        about["init_recipe"] = record["recipe"]
    return Built(model, about, tuple(said))


def _other_layout(recipe: Recipe, trained: int | None, side: int) -> list[str]:
    """A warning if a network of this package is built with other strides than its weights were trained with."""
    side = recipe.image_size or side
    if parse_foreign(recipe.model).source != OWN or trained is None or shrinks_early(trained) == shrinks_early(side):
        return []
    return [
        f"{recipe.init} was trained on images of {trained} pixels, and a network for {side} pixels has other "
        f"strides (appendix A), so its features are not those of the weights: resize the images to {trained} pixels"
    ]


def build_empty(recipe: Recipe, classes: int, side: int) -> Attached | Frozen:
    """The network of a complete recipe, for weights that are loaded into it afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttachWarning)  # the training has said it
        return _assemble(recipe, _source(recipe, classes, side), classes, side, None)


def normalisation(recipe: Recipe, classes: int, side: int) -> tuple[Triple, Triple] | None:
    """The mean and standard deviation that the network expects, or None if it does not say."""
    if recipe.init not in (None, RANDOM):
        record = read_weights(str(recipe.init))[1]
        if "mean" in record and "std" in record:
            mean, std = (tuple(map(float, record[key])) for key in ("mean", "std"))
            return mean, std  # type: ignore[return-value]
    with torch.random.fork_rng(devices=[]):
        return _source(recipe, classes, side).normalisation


def _source(recipe: Recipe, classes: int, side: int, *, pretrained: bool = False) -> Source:
    size, resized = recipe.image_size or side, recipe.image_size is not None
    return make_source(parse_foreign(recipe.model), classes, size, resized=resized, pretrained=pretrained)


def _assemble(
    recipe: Recipe, source: Source, classes: int, side: int, start: tuple[dict[str, Any], str] | None
) -> Attached | Frozen:
    name, options = parse_foreign(recipe.model), recipe.model_options()
    size = recipe.image_size or side
    made: Attached | Frozen
    if not recipe.freeze:
        _load(source.model, start, recipe, set())
        made = attach(source.model, name.at, classes, example=size, block=name.block, **options)  # type: ignore[arg-type]
        made.image_size = recipe.image_size
    else:
        trunk = attach(source.model, name.at, classes, example=size, block="none")
        x = make_example(source.model, size)
        unused = behind_the_layer(trunk, x)
        _load(source.model, start, recipe, unused)
        channels = trunk.features(x).shape[1]
        trunk.image_size = recipe.image_size
        block = make_block(name.block, channels, classes, trunk.layout, "bystander", options)
        made = Frozen(trunk, Top(block, channels, classes), unused)
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _load(model: nn.Module, start: tuple[dict[str, Any], str] | None, recipe: Recipe, after: set[str]) -> None:
    if start is not None:
        load_initial(model, start[0], start[1], recipe.model, after)
