"""``tembed train``: train a recipe, or go on with it."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tembed.training.distributed.hardware import Hardware, first_process
from tembed.training.recipe import Recipe


@dataclass(frozen=True)
class Train:
    """Train a network of the paper on a dataset. The same command again takes up a run that was stopped or killed."""

    settings: Annotated[Recipe, tyro.conf.arg(name="")]
    hardware: Annotated[Hardware, tyro.conf.arg(name="")] = field(default_factory=Hardware)
    recipe: Literal["paper", "fast"] = "paper"
    """where the defaults below come from: the paper's training (§4), or the most accuracy for few epochs"""
    out: Path | None = None
    """the run folder; default: runs/MODEL-DATA-RECIPE-SEED"""
    checkpoint_seconds: float = 60.0
    """how often to save within an epoch"""
    quiet: bool = False
    """print nothing but the result"""


def main(arguments: list[str]) -> int:
    command = parse(arguments)
    from tembed.reporting.terminal import for_stderr
    from tembed.training import Stopped, train
    from tembed.training.environment import keep_freed_memory

    keep_freed_memory()

    try:
        run = train(
            command.settings,
            command.out,
            hardware=command.hardware,
            progress=for_stderr(command.quiet),
            checkpoint_seconds=command.checkpoint_seconds,
        )
    except Stopped as stopped:
        from tembed.cli.main import fail

        return fail(str(stopped), code=128 + stopped.number)
    if not first_process(command.hardware):
        return 0
    result = run.result
    assert result is not None
    print(
        f"{run.folder}: test accuracy {100 * result['test_accuracy']:.2f} % ({result['test']['images']:,} images), "
        f"weights of epoch {result['best_epoch']} of {result['epochs']}, the best in validation "
        f"({100 * result['val_accuracy']:.2f} %)"
    )
    return 0


def parse(arguments: list[str]) -> Train:
    """The command line. ``--recipe`` is read first, because it decides the defaults of the rest."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--recipe", default="paper")
    try:
        name = first.parse_known_args(arguments)[0].recipe
    except argparse.ArgumentError:  # told better below
        name = "paper"
    preset = Recipe.fast if name == "fast" else Recipe.paper
    default = Train(preset(tyro.MISSING, tyro.MISSING))
    return tyro.cli(Train, prog="tembed train", args=arguments, default=default)
