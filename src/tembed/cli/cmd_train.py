"""``tembed train``: train a recipe, or resume it."""

import argparse
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tyro

from tembed.cli.cmd_layers import FLAGS as LAYER_FLAGS
from tembed.cli.options import read_options
from tembed.common.errors import TembedError, first_line
from tembed.common.files import below, parse_json, read_file
from tembed.common.plugins import name_plugins
from tembed.lab.training.hardware import Hardware, is_first_process, under_torchrun
from tembed.lab.training.optimizers import optimizer_names
from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.lab.training.settings import (
    Constants,
    DataSettings,
    LengthSettings,
    NetworkSettings,
    OptimisationSettings,
    StartSettings,
    names_of,
)
from tembed.lab.training.stopping import stop_with_input

FLAGS = {**LAYER_FLAGS, "weight": "--lambda"}

if TYPE_CHECKING:
    from tembed.common.progress import Progress
    from tembed.lab.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Network(NetworkSettings):
    """The block, its loss and the maximizers of the network."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    block: Literal["embed", "aux", "none"] | None = None
    """what to attach to a network from elsewhere: the block, deep supervision only, or nothing (default: embed)"""
    weight: Annotated[float | None, tyro.conf.arg(name="lambda")] = None
    """the weight of the patch loss (Eq. 3.1) (default: 0.5 for networks with patch scores, such as -embed and -aux)"""
    maximizer: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    constants: Annotated[Constants, tyro.conf.arg(metavar="[NAME VALUE ...]")] = ()


@dataclass(frozen=True, kw_only=True)
class Optimisation(OptimisationSettings):
    """Steps, learning rate, augmentation and regularisation."""

    optimizer: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(optimizer_names()) + "}")] = Recipe.optimizer


@dataclass(frozen=True)
class Output:
    """What is written and printed, and where."""

    out: Path | None = None
    """the run folder (default: runs/MODEL-DATA-PRESET-SEED, with changed settings added to the name)"""
    checkpoint_seconds: float = 60.0
    """seconds between two checkpoints within an epoch"""
    tensorboard: bool = False
    """also write losses and accuracies for TensorBoard, to the folder tensorboard in the run folder"""
    quiet: bool = False
    """print only the result"""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a network of the paper on a dataset. Run the same command again to resume after a stop or a kill.

    Exit codes: 0 finished; 2 an error; 75 another process trains this run; 128 + n stopped by signal n, and saved.
    """

    data: DataSettings
    length: LengthSettings
    optimisation: Optimisation
    network: Annotated[Network, tyro.conf.arg(name="block")]
    start: StartSettings
    machine: Hardware
    output: Output
    preset: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(PRESETS) + "}")] = "paper"
    """the source of all defaults below: the paper's training (§4); settings for the best accuracy in few epochs; or
    those for a frozen network, which --freeze selects"""
    recipe_file: Annotated[Path | None, tyro.conf.arg(name="recipe", metavar="FILE")] = None
    """repeat a run: train the recipe.json of its folder, instead of MODEL and all settings (default: a new recipe)"""

    @classmethod
    def of(cls, recipe: Recipe, preset: str) -> Self:
        """The command that trains a recipe of a preset."""
        values = vars(recipe)
        parts: dict[str, Any] = {
            part: kind(**{name: values[name] for name in names_of(kind) if name in values})
            for part, kind in KINDS.items()
        }
        return cls(**parts, machine=Hardware(), output=Output(), preset=preset)

    @property
    def settings(self) -> Recipe:
        """The settings as the plain recipe that Python code would give."""
        values = {name: value for part in KINDS for name, value in vars(getattr(self, part)).items()}
        del values["block"]
        return Recipe(**values)

    @property
    def recipe(self) -> Recipe:
        """The settings, with the block attached that --block names."""
        from tembed.models.foreign import with_block

        recipe = self.settings
        return dataclasses.replace(recipe, model=with_block(recipe.model, self.network.block))


KINDS: dict[str, type] = {
    "data": DataSettings,
    "length": LengthSettings,
    "optimisation": Optimisation,
    "network": Network,
    "start": StartSettings,
}
"""The parts of the command that make the recipe."""


def main(arguments: list[str]) -> int:
    stop_with_input()
    command = parse(arguments)
    from tembed.models.foreign import user_module

    if command.recipe_file is None and (module := user_module(command.network.model)):
        name_plugins([module])  # the user named it on this command
    if under_torchrun():
        from tembed.lab.training.torchrun import run_as_worker

        run_as_worker(lambda: train_here(command))
    hardware = command.machine.complete()
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
            command.output.out,
            hardware=command.machine,
            progress=observer(command),
            checkpoint_seconds=command.output.checkpoint_seconds,
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
    if not command.output.quiet and (line := at_work(run)):
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

    observers = [stderr_progress(command.output.quiet)]
    if path := os.environ.get(ProgressFile.VARIABLE):
        observers.append(ProgressFile(Path(path)))
    if command.output.tensorboard:
        folder = command.output.out or default_folder(command.recipe.complete())
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
    settings = Recipe.from_preset(name, tyro.MISSING, tyro.MISSING)
    if early.recipe is not None:
        settings = read_recipe(early.recipe)
    command = read_options(Train, "tembed train", arguments, default=Train.of(settings, name))
    if early.recipe is not None and (command.settings != settings or early.preset or command.network.block):
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
