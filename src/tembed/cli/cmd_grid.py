"""``tembed grid``: the paper's experiments, one command each."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tembed.cli.options import read_options
from tembed.common.errors import counted
from tembed.common.plugins import named_plugins


@dataclass(frozen=True)
class Changes:
    """What to run instead of what the grid says."""

    data: tuple[str, ...] = ()
    """these datasets (default: the grid's)"""
    models: tuple[str, ...] = ()
    """these networks (default: the grid's)"""
    seeds: int | None = None
    """this many seeds, starting at 0 (default: the grid's)"""
    epochs: int | None = None
    """this many epochs (default: the preset's)"""
    train_images: int | None = None
    """this many training images (default: all)"""
    preset: Literal["paper", "fast", "frozen"] | None = None
    """the defaults of all other settings (default: the grid's preset)"""


@dataclass(frozen=True)
class Machine:
    """Where the runs are computed, and how many at a time."""

    engine: Literal["local", "ray"] = "local"
    """processes on this machine, or tasks on a Ray cluster"""
    jobs: int | None = None
    """local: how many runs at a time (default: one per GPU, or one per core if there is none)"""
    jobs_per_gpu: int | None = None
    """local: how many runs at a time on each GPU (default: 1)"""
    threads: int | None = None
    """threads per run (default: cores divided by jobs for local, as many as --cpus for ray)"""
    address: str | None = None
    """ray: HOST:PORT of the cluster (default: the one on this machine)"""
    cpus: int | None = None
    """ray: CPUs per run (default: 1)"""
    gpus: float | None = None
    """ray: GPUs per run; with a fraction, runs share one (default: 0)"""


@dataclass(frozen=True)
class GridCommand:
    """Run a grid: table1, lambda, maximizers, depth, or a file of your own. Without a name, list them.

    Run the same command again to resume runs that were stopped; finished runs are never repeated.
    """

    changes: Changes
    machine: Machine
    grid: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[GRID]")] = None
    """a grid of the paper, or a TOML file (default: list the grids)"""
    out: Path = Path("runs")
    """the folder of all runs; grids share the runs that they have in common"""
    dry_run: bool = False
    """list the runs, and estimate their time from a short measurement"""
    list_commands: Annotated[bool, tyro.conf.arg(name="list")] = False
    """print the command of each unfinished run on a line, for xargs or a SLURM array, and start nothing"""
    retry: bool = False
    """retry runs that failed before"""
    checkpoint_seconds: float = 60.0
    """seconds between two checkpoints within an epoch"""
    quiet: bool = False
    """print only the outcome"""


def main(arguments: list[str]) -> int:
    command = read_options(GridCommand, "tembed grid", arguments)
    from tembed.lab.grid.grid_file import builtin_names, check_datasets, load_grid
    from tembed.lab.terminal import stderr_progress

    if command.grid is None:
        for name in builtin_names():
            print(f"{name:<12}{load_grid(name).about}")
        return 0
    asked = command.changes
    changes = {
        "data": list(asked.data) or None,
        "model": list(asked.models) or None,
        "seeds": asked.seeds,
        "epochs": asked.epochs,
        "train_images": asked.train_images,
        "preset": asked.preset,
    }
    progress = stderr_progress(command.quiet)
    grid = load_grid(command.grid, changes)

    from tembed.lab.data.store import default_root
    from tembed.lab.grid.engines import LocalEngine, make_engine
    from tembed.lab.grid.jobs import locate_runs

    machine = command.machine
    root, runs = str(default_root().absolute()), locate_runs(grid.recipes, command.out.absolute())
    check_datasets(grid, root, stored=not command.dry_run)
    if command.list_commands:
        plugins = [word for module in named_plugins() for word in ("--plugin", module)]
        for run in runs:
            if run.state() != "finished":
                print(shlex.join(["tembed", *plugins, *run.prepare(command.checkpoint_seconds)]))
        return 0
    if command.dry_run:
        from tembed.lab.grid.preview import preview
        from tembed.trained.determinism import choose_device

        if machine.engine == "local":
            local = LocalEngine(root, machine.jobs, machine.threads, jobs_per_gpu=machine.jobs_per_gpu)
            print(preview(grid, runs, root, choose_device("auto"), local.threads, local.jobs))
        else:
            device = choose_device("auto") if machine.gpus else "cpu"
            print(preview(grid, runs, root, device, machine.threads or machine.cpus or 1))
        return 0
    engine = make_engine(
        machine.engine,
        root,
        jobs=machine.jobs,
        jobs_per_gpu=machine.jobs_per_gpu,
        threads=machine.threads,
        address=machine.address,
        cpus=machine.cpus,
        gpus=machine.gpus,
        checkpoint_seconds=command.checkpoint_seconds,
    )
    from tembed.lab.grid.scheduler import Scheduler
    from tembed.lab.training.stopping import listening

    progress.say(f"{grid.name}: {counted(len(runs), 'run')} in {command.out}, {engine}")
    with listening() as stop_request:
        outcome = Scheduler(runs, engine, progress, stop_request, command.retry).run()
    print(outcome.text())
    return 128 + stop_request.number if stop_request.number is not None else 0 if outcome.complete else 1
