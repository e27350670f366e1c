"""``tembed train``: train a recipe, or resume it."""

import argparse
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tembed.cli.cmd_layers import FLAGS as LAYER_FLAGS
from tembed.common.plugins import name_plugins
from tembed.lab.training.hardware import Hardware, is_first_process, under_torchrun
from tembed.lab.training.optimizers import optimizer_names
from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.lab.training.settings import Constants

FLAGS = {**LAYER_FLAGS, "weight": "--lambda"}

if TYPE_CHECKING:
    from tembed.common.progress import Progress


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
    """Train a network of the paper on a dataset. Run the same command again to resume after a stop or a kill."""

    settings: Annotated[Settings, tyro.conf.arg(name="")]
    hardware: Annotated[Hardware, tyro.conf.arg(name="")] = field(default_factory=Hardware)
    preset: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(PRESETS) + "}")] = "paper"
    """the source of the defaults below: the paper's training (§4); settings for the best accuracy in few epochs; or
    those for a frozen network, which --freeze selects"""
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
    command = parse(arguments)
    from tembed.models.foreign import user_module

    if module := user_module(command.settings.model):
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
    return 0


def observer(command: Train) -> "Progress":
    """What the command shows and records while it trains."""
    from tembed.common.progress import Several
    from tembed.lab.tensorboard import TensorBoard
    from tembed.lab.terminal import stderr_progress
    from tembed.lab.training.run import default_folder

    shown = stderr_progress(command.quiet)
    if not command.tensorboard:
        return shown
    folder = command.out or default_folder(command.recipe.complete())
    return Several(shown, TensorBoard(folder / "tensorboard"))


def parse(arguments: list[str]) -> Train:
    """Parse the command line. ``--preset`` is read first, because it decides the defaults of the other flags."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--preset")
    try:
        name = first.parse_known_args(arguments)[0].preset
    except argparse.ArgumentError:  # tyro's own message is clearer
        name = "paper"
    name = name or ("frozen" if "--freeze" in arguments else "paper")
    settings = Settings.from_preset(name, tyro.MISSING, tyro.MISSING)
    return tyro.cli(Train, prog="tembed train", args=arguments, default=Train(settings, preset=name))
