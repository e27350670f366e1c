"""``tembed demo``: two networks on the parts world, with the analysis and the report, in a few minutes."""

from dataclasses import dataclass
from pathlib import Path

from tembed.cli.options import read_options


@dataclass(frozen=True)
class DemoCommand:
    """Make the parts world, train rn26 and rn26-embed on it, analyse and report. A few minutes on two cores.

    Run the same command again to resume a demo that was stopped.
    """

    out: Path = Path("runs/demo")
    """the folder for the two runs, the analysis and the report"""
    epochs: int = 3
    """epochs of each network"""
    train_images: int = 3000
    """how many of the 7,800 training images to use"""
    seed: int = 0
    """seed of both networks"""
    quiet: bool = False
    """print only the summary"""


def main(arguments: list[str]) -> int:
    command = read_options(DemoCommand, "tembed demo", arguments)
    from tembed.cli.main import fail
    from tembed.lab.demo import Demo, run_demo
    from tembed.lab.terminal import stderr_progress
    from tembed.lab.training.environment import keep_freed_memory
    from tembed.lab.training.stopping import Stopped

    keep_freed_memory()
    demo = Demo(command.epochs, command.train_images, command.seed)
    try:
        print(run_demo(demo, command.out, progress=stderr_progress(command.quiet)))
    except Stopped as stopped:
        return fail(str(stopped), code=128 + stopped.number)
    return 0
