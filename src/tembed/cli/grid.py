"""``tembed grid``: the paper's experiments, one command each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class GridCommand:
    """Run a grid: table1, lambda, maximizers, depth, or a file of your own. Without a name, list them.

    The same command again takes up what was stopped; finished runs are never repeated.
    """

    grid: Annotated[str | None, tyro.conf.Positional] = None
    """a grid of the paper, or a TOML file"""
    data: tuple[str, ...] = ()
    """these datasets instead of the grid's"""
    models: tuple[str, ...] = ()
    """these networks instead of the grid's"""
    seeds: int | None = None
    """this many seeds instead of the grid's, from 0"""
    epochs: int | None = None
    """this many epochs instead of the recipe's"""
    recipe: Literal["paper", "fast"] | None = None
    """where all other settings come from, instead of the grid's"""
    out: Path = Path("runs")
    """the folder of all runs; grids share those that they have in common"""
    dry_run: bool = False
    """list the runs, with an estimate of time from a short measurement"""
    retry: bool = False
    """try those again that failed before"""
    engine: Literal["local", "ray"] = "local"
    """processes on this machine, or tasks on a Ray cluster"""
    jobs: int | None = None
    """local: runs at a time; by default one for each core"""
    threads: int | None = None
    """threads of each run; local: by default the cores divided by the jobs, ray: its CPUs"""
    address: str | None = None
    """ray: HOST:PORT of the cluster; by default the one on this machine"""
    cpus: int | None = None
    """ray: CPUs of each run (1)"""
    gpus: float | None = None
    """ray: GPUs of each run (0)"""
    checkpoint_seconds: float = 60.0
    """how often a run saves within an epoch"""
    quiet: bool = False
    """print nothing but the outcome"""


def main(arguments: list[str]) -> int:
    command = tyro.cli(GridCommand, prog="tembed grid", args=arguments)
    from tembed.experiments.grid.specification import builtin_names, load_grid

    if command.grid is None:
        for name in builtin_names():
            print(f"{name:<12}{load_grid(name).about}")
        return 0
    changes = {
        "data": list(command.data) or None,
        "model": list(command.models) or None,
        "seeds": command.seeds,
        "epochs": command.epochs,
        "recipe": command.recipe,
    }
    grid = load_grid(command.grid, changes)

    from tembed.data import default_root
    from tembed.experiments.grid.engines import Local, make_engine
    from tembed.experiments.grid.folders import find_places
    from tembed.experiments.grid.preview import check_data, preview

    root, places = str(default_root().absolute()), find_places(grid.recipes, command.out.absolute())
    check_data(grid, root, stored=not command.dry_run)
    if command.dry_run:
        local = command.engine == "local"
        here = Local(root, command.jobs if local else None, command.threads or command.cpus)
        print(preview(grid, places, root, here.threads, here.jobs if local else None))
        return 0
    engine = make_engine(
        command.engine,
        root,
        jobs=command.jobs,
        threads=command.threads,
        address=command.address,
        cpus=command.cpus,
        gpus=command.gpus,
        checkpoint_seconds=command.checkpoint_seconds,
    )
    from tembed.experiments.grid.scheduler import conduct
    from tembed.reporting.terminal import for_stderr
    from tembed.training.stopping import listening

    progress = for_stderr(command.quiet)
    progress.say(f"{grid.name}: {len(places)} runs in {command.out}, {engine}")
    with listening() as wish:
        outcome = conduct(places, engine, progress, wish, command.retry)
    print(outcome.text())
    return 128 + wish.number if wish.number is not None else 0 if outcome.whole else 1
