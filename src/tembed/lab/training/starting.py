"""The network that a run starts with, and what its folder records about a network from elsewhere."""

from typing import Any, NamedTuple

from tembed.attachment.frozen import Frozen
from tembed.common.errors import TembedError
from tembed.common.files import read_json, write_json
from tembed.common.progress import Progress
from tembed.lab.training.attached_network import build_start
from tembed.lab.training.initial_weights import RANDOM, read_weights
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.transfer import load_fitting, say_what_is_new
from tembed.models.foreign import is_foreign
from tembed.trained.checksummed import checksum
from tembed.trained.weights_file import AnyNetwork, build


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
        before = read_json(path)
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


def _transfer(
    network: Any, recipe: Recipe, run: Run, classes: tuple[str, ...], progress: Progress, first: bool
) -> tuple[str, ...]:
    """Start a network of this package from other weights, unless the run has checkpoints, which hold its own."""
    path, resumed = run.folder / "network.json", run.checkpoints.any
    if resumed and path.exists():
        return tuple(read_json(path)["loaded"])
    tensors, record = read_weights(str(recipe.init))
    loaded = load_fitting(network, classes, tensors, record, str(recipe.init))
    about = {"init": recipe.init, "weights_sha256": checksum(tensors), "loaded": loaded}
    if record.get("recipe"):
        about["init_recipe"] = record["recipe"]
    if path.exists() and read_json(path).get("weights_sha256") != about["weights_sha256"]:
        raise TembedError(f"{run.folder} was started from other weights: restore {recipe.init}, or give another `out`")
    if first:
        write_json(path, about)
        say_what_is_new(network, loaded, str(recipe.init), progress)
    return tuple(loaded)
