"""``tembed evaluate``: measure trained weights again."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from tembed.cli.renamed import renamed_flag


@dataclass(frozen=True)
class Evaluate:
    """Measure the best weights of a run on a subset of its dataset."""

    source: Annotated[str, tyro.conf.Positional]
    """a run folder, a weights file, or the name of shipped weights such as rn26-embed/cifar10"""
    subset: Literal["test", "val", "train"] = "test"
    """the images to measure on: the test, validation or training subset of the run's split"""
    data: str | None = None
    """another dataset with the same classes"""
    quiet: bool = False
    """print only the result"""


def main(arguments: list[str]) -> int:
    arguments = renamed_flag(arguments, "--part", "--subset")
    command = tyro.cli(Evaluate, prog="tembed evaluate", args=arguments)
    from tembed.reporting.terminal import for_stderr
    from tembed.training import evaluate

    measured = evaluate(command.source, command.subset, data=command.data, progress=for_stderr(command.quiet))
    print(f"{command.source} on {measured.images:,} {command.subset} images:")
    print(f"  accuracy {100 * measured.accuracy:.2f} %, cross-entropy {measured.head:.4f}")
    if measured.patches is not None and measured.patch_accuracy is not None:
        print(f"  patches alone: accuracy {100 * measured.patch_accuracy:.2f} %, cross-entropy {measured.patches:.4f}")
    return 0
