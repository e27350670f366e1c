"""The network that a run starts with, and what its folder records about a network from elsewhere."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from tembed.attachment.attached import Attached
from tembed.attachment.attaching import AttachWarning
from tembed.attachment.building import assemble, source_of
from tembed.attachment.frozen import Frozen
from tembed.common.arrays import Triple
from tembed.common.errors import TembedError
from tembed.common.files import read_json, write_json
from tembed.common.plain_values import check_fields
from tembed.common.progress import Progress
from tembed.lab.training.initial_weights import RANDOM, load_initial, read_weights
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.transfer import load_fitting, say_what_is_new
from tembed.models.description import Description
from tembed.models.foreign import TEMBED, is_foreign, parse_foreign
from tembed.trained.checksummed import checksum
from tembed.trained.weights_file import AnyNetwork
from tembed.trained.weights_file import build as build_described


def build(recipe: Recipe, classes: int, side: int) -> AnyNetwork:
    """The network of a complete recipe, freshly initialised. An attached one has no particular weights."""
    names = tuple(f"class {label}" for label in range(classes))
    return build_described(Description(recipe.model, recipe.model_options(), side, names))


class Start(NamedTuple):
    """A network before its first step, and the names of the weights that `init` or the network itself gave."""

    network: AnyNetwork
    loaded: tuple[str, ...]


def start_network(
    recipe: Recipe, run: Run, classes: tuple[str, ...], side: int, progress: Progress, *, first: bool = True
) -> Start:
    """The network of a complete recipe before its first step. Where it comes from is recorded in ``network.json``."""
    if not is_foreign(recipe.model):
        network = build(recipe, len(classes), side)
        return Start(network, () if recipe.init is None else _transfer(network, recipe, run, classes, progress, first))
    built = build_start(recipe, len(classes), side)
    trunk = [name for name in built.model.state_dict() if name.startswith("model.")]
    start = Start(built.model, () if recipe.init == RANDOM else tuple(trunk))
    if recipe.freeze and recipe.init == RANDOM:
        progress.say("warning: the frozen network has random weights, so its features were never trained")
    for warning in built.warnings:
        progress.say(f"warning: {warning}")
    path = run.folder / "network.json"
    if not first:
        return start
    if path.exists():
        before = _read_about(path)
        if isinstance(built.model, Frozen) and before.get("weights_sha256") != built.about["weights_sha256"]:
            raise TembedError(
                f"{run.folder} was started with other weights of {recipe.model}: restore {built.about['init']}, or "
                "give another `out`"
            )
        if before.get("source_sha256") != built.about.get("source_sha256"):
            progress.say(f"warning: the source of {built.about['factory']} has changed since this run was started")
    else:
        write_json(path, built.about)
    return start


def _read_about(path: Path, hints: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The ``network.json`` of a run, which has at least these fields."""
    about = read_json(path)
    try:
        check_fields(about, hints)
    except TembedError as error:
        raise TembedError(f"{path} was not written by tembed ({error}): restore it, or give another `out`") from None
    return about


class Built(NamedTuple):
    """An attached network with its start.

    ``about``: what the run folder records about it in ``network.json``. ``warnings``: what the user should know.
    """

    model: Attached | Frozen
    about: dict[str, Any]
    warnings: tuple[str, ...] = ()


def build_start(recipe: Recipe, classes: int, side: int) -> Built:
    """The attached network of a complete recipe at the start of its training."""
    init = recipe.init
    if init is None and parse_foreign(recipe.model).source == TEMBED:
        raise TembedError(
            f"{recipe.model} has no weights of its own: give shipped weights such as rn26/cifar10, a run, a weights "
            "file or random as `init`"
        )
    tensors, record = ({}, {}) if init in (None, RANDOM) else read_weights(str(init))
    source = source_of(recipe.model, classes, side, recipe.image_size, pretrained=init is None)

    def load(model: torch.nn.Module, unused: set[str]) -> None:
        if init not in (None, RANDOM):
            load_initial(model, tensors, str(init), recipe.model, unused)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AttachWarning)
        model = assemble(source, recipe.model, classes, side, recipe.model_options(), load)
    said = [str(each.message) for each in caught if issubclass(each.category, AttachWarning)]
    for each in caught:
        if not issubclass(each.category, AttachWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    weights = checksum(model.used_tensors() if isinstance(model, Frozen) else source.model.state_dict())
    about = {**source.about, "init": init or "its own weights", "weights_sha256": weights}
    if record.get("recipe"):
        about["init_recipe"] = record["recipe"]
    return Built(model, about, tuple(said))


def expected_normalisation(recipe: Recipe, classes: int, side: int) -> tuple[Triple, Triple] | None:
    """The mean and standard deviation that an attached network expects, or None if it does not say."""
    if recipe.init not in (None, RANDOM):
        record = read_weights(str(recipe.init))[1]
        if "mean" in record and "std" in record:
            mean, std = (tuple(map(float, record[key])) for key in ("mean", "std"))
            return mean, std  # type: ignore[return-value]
    with torch.random.fork_rng(devices=[]):
        return source_of(recipe.model, classes, side, recipe.image_size).normalisation


def _transfer(
    network: Any, recipe: Recipe, run: Run, classes: tuple[str, ...], progress: Progress, first: bool
) -> tuple[str, ...]:
    """Start a network of this package from other weights, unless the run has checkpoints, which hold its own."""
    path, resumed = run.folder / "network.json", run.checkpoints.any
    if resumed and path.exists():
        return tuple(_read_about(path, {"loaded": tuple[str, ...]})["loaded"])
    tensors, record = read_weights(str(recipe.init))
    loaded = load_fitting(network, classes, tensors, record, str(recipe.init))
    about = {"init": recipe.init, "weights_sha256": checksum(tensors), "loaded": loaded}
    if record.get("recipe"):
        about["init_recipe"] = record["recipe"]
    if path.exists() and _read_about(path).get("weights_sha256") != about["weights_sha256"]:
        raise TembedError(f"{run.folder} was started from other weights: restore {recipe.init}, or give another `out`")
    if first:
        write_json(path, about)
        say_what_is_new(network, loaded, str(recipe.init), progress)
    return tuple(loaded)
