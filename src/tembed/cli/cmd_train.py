"""``tembed train``: train a recipe, or resume it."""

import argparse
import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tembed.cli.cmd_layers import FLAGS as LAYER_FLAGS
from tembed.common.errors import TembedError, first_line
from tembed.common.files import below, parse_json, read_file
from tembed.common.plugins import name_plugins
from tembed.lab.training.hardware import Hardware, is_first_process, under_torchrun
from tembed.lab.training.optimizers import optimizer_names
from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.lab.training.settings import Constants
from tembed.lab.training.stopping import stop_with_input

FLAGS = {**LAYER_FLAGS, "weight": "--lambda"}

if TYPE_CHECKING:
    from tembed.common.progress import Progress
    from tembed.lab.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Settings(Recipe):
    """The fields of a recipe as the command line shows them."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    weight: Annotated[float | None, tyro.conf.arg(name="lambda")] = None
    """the weight of the patch loss (Eq. 3.1): 0.5 for networks with patch scores, such as -embed and -aux"""
    optimizer: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(optimizer_names()) + "}")] = Recipe.optimizer
    maximizer: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    constants: Annotated[Constants, tyro.conf.arg(metavar="[NAME VALUE ...]")] = ()


@dataclass(frozen=True)
class Train:
    """Train a network of the paper on a dataset. Run the same command again to resume after a stop or a kill.

    Exit codes: 0 finished; 2 an error; 75 another process trains this run; 128 + n stopped by signal n, and saved.
    """

    settings: Annotated[Settings, tyro.conf.arg(name="")]
    hardware: Annotated[Hardware, tyro.conf.arg(name="")] = field(default_factory=Hardware)
    preset: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(PRESETS) + "}")] = "paper"
    """the source of the defaults below: the paper's training (§4); settings for the best accuracy in few epochs; or
    those for a frozen network, which --freeze selects"""
    recipe_file: Annotated[Path | None, tyro.conf.arg(name="recipe", metavar="FILE")] = None
    """repeat a run: train the recipe.json of its folder, instead of MODEL and the settings below"""
    block: Literal["embed", "aux", "none"] | None = None
    """what to attach to a network from elsewhere: the block (default), deep supervision only, or nothing"""
    out: Path | None = None
    """the run folder; default: runs/MODEL-DATA-PRESET-SEED, with changed settings added to the name"""
    checkpoint_seconds: float = 60.0
    """seconds between two checkpoints within an epoch"""
    tensorboard: bool = False
    """also write losses and accuracies for TensorBoard, to the folder tensorboard in the run folder"""
    quiet: bool = False
    """print only the result"""

    @property
    def recipe(self) -> Recipe:
        """The settings as the plain recipe that Python code would give."""
        from tembed.models.foreign import with_block

        recipe = Recipe(**{each.name: getattr(self.settings, each.name) for each in dataclasses.fields(Recipe)})
        return dataclasses.replace(recipe, model=with_block(recipe.model, self.block))


def main(arguments: list[str]) -> int:
    stop_with_input()
    command = parse(arguments)
    from tembed.models.foreign import user_module

    if command.recipe_file is None and (module := user_module(command.settings.model)):
        name_plugins([module])  # the user named it on this command
    if under_torchrun():
        from tembed.lab.training.torchrun import run_as_worker

        run_as_worker(lambda: train_here(command))
    hardware = command.hardware.complete()
    if (hardware.devices or 1) > 1 and hardware.nodes == 1:
        from tembed.lab.training.torchrun import start_processes

        return start_processes(hardware, arguments)
    return train_here(command)


def train_here(command: Train) -> int:
    """Train in this process, print the result, and return the exit code."""
    from tembed.lab.training.environment import keep_freed_memory
    from tembed.lab.training.loop import train
    from tembed.lab.training.stopping import Stopped

    keep_freed_memory()

    try:
        run = train(
            command.recipe,
            command.out,
            hardware=command.hardware,
            progress=observer(command),
            checkpoint_seconds=command.checkpoint_seconds,
        )
    except Stopped as stopped:
        from tembed.cli.main import fail

        return fail(str(stopped), 128 + stopped.number) if is_first_process() else 128 + stopped.number
    if not is_first_process():
        return 0
    result = run.result
    assert result is not None
    print(
        f"{run.folder}: test accuracy {100 * result['test_accuracy']:.2f} % ({result['test']['images']:,} images), "
        f"weights of epoch {result['best_epoch']} of {result['epochs']}, the best on validation images "
        f"({100 * result['val_accuracy']:.2f} %)"
    )
    if not command.quiet and (line := at_work(run)):
        print(line)
    return 0


def at_work(run: "Run") -> str | None:
    """Whether the block of a finished run is at work on its test images, in one line; None if nothing is fed back."""
    from tembed.lab.analysis.knock_outs import without_embedding
    from tembed.lab.data.loading import load
    from tembed.lab.terminal import stderr_progress
    from tembed.models.registry import model_info
    from tembed.trained.weights_file import as_network

    recipe = run.recipe
    if not model_info(recipe.model).has_block:
        return None
    network = as_network(run)
    images = load(recipe.data, recipe.split, recipe.split_seed).test.resized(network.description.input_size)
    with stderr_progress(quiet=False) as progress:
        found = without_embedding(network, images, progress=progress)
    return None if found is None else found.at_work()


def observer(command: Train) -> "Progress":
    """What the command shows and records while it trains."""
    from tembed.common.progress import Several
    from tembed.lab.grid.jobs import ProgressFile
    from tembed.lab.tensorboard import TensorBoard
    from tembed.lab.terminal import stderr_progress
    from tembed.lab.training.run import default_folder

    observers = [stderr_progress(command.quiet)]
    if path := os.environ.get(ProgressFile.VARIABLE):
        observers.append(ProgressFile(Path(path)))
    if command.tensorboard:
        folder = command.out or default_folder(command.recipe.complete())
        observers.append(TensorBoard(below(folder, "tensorboard")))
    return Several(*observers)


def parse(arguments: list[str]) -> Train:
    """Parse the command line. The flags that decide the defaults of the others are read first."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--preset")
    first.add_argument("--recipe", type=Path)
    try:
        early = first.parse_known_args(arguments)[0]
    except argparse.ArgumentError:  # tyro's own message is clearer
        early = argparse.Namespace(preset=None, recipe=None)
    name = early.preset or ("frozen" if "--freeze" in arguments else "paper")
    settings = Settings.from_preset(name, tyro.MISSING, tyro.MISSING)
    if early.recipe is not None:
        settings = Settings(**vars(read_recipe(early.recipe)))
    command = tyro.cli(Train, prog="tembed train", args=arguments, default=Train(settings, preset=name))
    if early.recipe is not None and (command.settings != settings or early.preset or command.block):
        changes = command.settings.differences(settings) or ["--preset or --block"]
        raise TembedError(
            f"--recipe holds all settings of a run: leave out the others ({'; '.join(changes)}), or change a copy of "
            f"{early.recipe}"
        )
    return command


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file such as the ``recipe.json`` of a run folder."""
    try:
        return Recipe.from_json(parse_json(read_file(path)))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise TembedError(f"{path} cannot be read as a recipe ({reason}): give the recipe.json of a run") from None
