"""``tembed demo``: both networks on the parts world, in a few minutes."""

import os
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Options:
    """Make the parts world, train rn26 and rn26-embed on it, and report. About five minutes on two cores."""

    out: Path = Path("runs/demo")
    """where the two runs and the report go"""
    epochs: int = 4
    """of each network"""
    train_images: int = 3000
    """of the 7,800 there are"""
    seed: int = 0
    """of both networks"""
    quiet: bool = False
    """print the report only"""


def main(arguments: list[str]) -> int:
    options = tyro.cli(Options, prog="tembed demo", args=arguments)
    from tembed.cli.main import fail
    from tembed.demo.demo import Demo, run_demo
    from tembed.machine import WaitingPolicy
    from tembed.reporting.terminal import for_stderr
    from tembed.training import Stopped
    from tembed.training.environment import keep_freed_memory

    keep_freed_memory()
    demo = Demo(options.epochs, options.train_images, options.seed)
    try:
        waiting = WaitingPolicy.from_environment(os.environ)
        text = run_demo(demo, options.out, progress=for_stderr(options.quiet), waiting=waiting)
    except Stopped as stopped:
        return fail(str(stopped), code=128 + stopped.number)
    print(text)
    print(f"the report: {options.out / 'report.md'} and {options.out / 'report.png'}")
    return 0
