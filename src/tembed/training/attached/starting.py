"""The network that a run starts with, and what its folder records about a network from elsewhere."""

from tembed.attachment.frozen import Frozen
from tembed.errors import TembedError
from tembed.files import read_json, write_json
from tembed.models import is_foreign
from tembed.reporting.progress import Progress
from tembed.training.attached.building import build_start
from tembed.training.attached.initial import RANDOM
from tembed.training.recipe import Recipe
from tembed.training.run import Run
from tembed.training.weights import AnyNetwork, build


def start_network(
    recipe: Recipe, run: Run, classes: int, side: int, progress: Progress, *, first: bool = True
) -> AnyNetwork:
    """The network of a complete recipe before its first step. An attached one is recorded in ``network.json``."""
    if not is_foreign(recipe.model):
        return build(recipe, classes, side)
    built = build_start(recipe, classes, side)
    if recipe.freeze and recipe.init == RANDOM:
        progress.say("warning: the frozen network has random weights, so its features were never trained")
    path = run.folder / "network.json"
    if not first:
        return built.model
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
    return built.model
