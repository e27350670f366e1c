"""``tembed grid``: the paper's experiments, one command each."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tembed.common.errors import counted
from tembed.common.plugins import named_plugins


@dataclass(frozen=True)
class GridCommand:
    """Run a grid: table1, lambda, maximizers, depth, or a file of your own. Without a name, list them.

    Run the same command again to resume runs that were stopped; finished runs are never repeated.
    """

    grid: Annotated[str | None, tyro.conf.Positional] = None
    """a grid of the paper, or a TOML file"""
    data: tuple[str, ...] = ()
    """these datasets instead of the grid's"""
    models: tuple[str, ...] = ()
    """these networks instead of the grid's"""
    seeds: int | None = None
    """this many seeds, starting at 0, instead of the grid's"""
    epochs: int | None = None
    """this many epochs instead of the preset's"""
    train_images: int | None = None
    """this many training images instead of all"""
    preset: Literal["paper", "fast", "frozen"] | None = None
    """the defaults of all other settings, instead of the grid's preset"""
    out: Path = Path("runs")
    """the folder of all runs; grids share the runs that they have in common"""
    dry_run: bool = False
    """list the runs, and estimate their time from a short measurement"""
    list_commands: Annotated[bool, tyro.conf.arg(name="list")] = False
    """print the command of each unfinished run on a line, for xargs or a SLURM array, and start nothing"""
    retry: bool = False
    """retry runs that failed before"""
    engine: Literal["local", "ray"] = "local"
    """processes on this machine, or tasks on a Ray cluster"""
    jobs: int | None = None
    """local: how many runs at a time; default: one per GPU, or one per core if there is none"""
    jobs_per_gpu: int | None = None
    """local: how many runs at a time on each GPU (1)"""
    threads: int | None = None
    """threads per run; default: cores divided by jobs (local), or as many as --cpus (ray)"""
    address: str | None = None
    """ray: HOST:PORT of the cluster; default: the one on this machine"""
    cpus: int | None = None
    """ray: CPUs per run (1)"""
    gpus: float | None = None
    """ray: GPUs per run (0); with a fraction, runs share one"""
    checkpoint_seconds: float = 60.0
    """seconds between two checkpoints within an epoch"""
    quiet: bool = False
    """print only the outcome"""


def main(arguments: list[str]) -> int:
    command = tyro.cli(GridCommand, prog="tembed grid", args=arguments)
    from tembed.lab.grid.grid_file import builtin_names, check_datasets, load_grid
    from tembed.lab.terminal import stderr_progress

    if command.grid is None:
        for name in builtin_names():
            print(f"{name:<12}{load_grid(name).about}")
        return 0
    changes = {
        "data": list(command.data) or None,
        "model": list(command.models) or None,
        "seeds": command.seeds,
        "epochs": command.epochs,
        "train_images": command.train_images,
        "preset": command.preset,
    }
    progress = stderr_progress(command.quiet)
    grid = load_grid(command.grid, changes)

    from tembed.lab.data.store import default_root
    from tembed.lab.grid.engines import LocalEngine, make_engine
    from tembed.lab.grid.jobs import locate_runs

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

        if command.engine == "local":
            local = LocalEngine(root, command.jobs, command.threads, jobs_per_gpu=command.jobs_per_gpu)
            print(preview(grid, runs, root, choose_device("auto"), local.threads, local.jobs))
        else:
            device = choose_device("auto") if command.gpus else "cpu"
            print(preview(grid, runs, root, device, command.threads or command.cpus or 1))
        return 0
    engine = make_engine(
        command.engine,
        root,
        jobs=command.jobs,
        jobs_per_gpu=command.jobs_per_gpu,
        threads=command.threads,
        address=command.address,
        cpus=command.cpus,
        gpus=command.gpus,
        checkpoint_seconds=command.checkpoint_seconds,
    )
    from tembed.lab.grid.scheduler import Scheduler
    from tembed.lab.training.stopping import listening

    progress.say(f"{grid.name}: {counted(len(runs), 'run')} in {command.out}, {engine}")
    with listening() as stop_request:
        outcome = Scheduler(runs, engine, progress, stop_request, command.retry).run()
    print(outcome.text())
    return 128 + stop_request.number if stop_request.number is not None else 0 if outcome.complete else 1
