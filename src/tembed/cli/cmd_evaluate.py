"""``tembed evaluate``: measure trained weights again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tembed.cli.options import read_options
from tembed.common.accelerators import Accelerator

SHOWN = 5
"""Classes and confusions on the terminal; the report has all."""


@dataclass(frozen=True)
class Evaluate:
    """Measure the best weights of a run on a subset of its dataset: accuracy by class, confusions, worst images."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """a run folder, a weights file, or the name of shipped weights such as rn26-embed/cifar10"""
    subset: Literal["test", "val", "train"] = "test"
    """the images to measure on: the test, validation or training subset of the run's split"""
    data: str | None = None
    """another dataset with the same classes; it is split by its own folders, or 65/15/20 (default: that of the run)"""
    out: Path | None = None
    """the folder for the report (default: RUN/evaluation-SUBSET for a run folder, else evaluation/NAME-SUBSET)"""
    accelerator: Accelerator = "auto"
    """what to compute on; auto: a GPU if there is one"""
    quiet: bool = False
    """print only the result, and write no report"""


def main(arguments: list[str]) -> int:
    command = read_options(Evaluate, "tembed evaluate", arguments)
    from tembed.common.errors import one_line
    from tembed.lab.analysis.knock_outs import without_embedding
    from tembed.lab.report.evaluation_report import default_out, summary, write_evaluation
    from tembed.lab.terminal import stderr_progress
    from tembed.lab.training.evaluation import evaluate_in_detail

    found = evaluate_in_detail(
        command.source,
        command.subset,
        data=command.data,
        accelerator=command.accelerator,
        progress=stderr_progress(command.quiet),
    )
    with stderr_progress(command.quiet) as progress:
        knocked = without_embedding(found.network, found.images, progress=progress, most=len(found.images))
    print(f"{command.source} on {found.evaluation.images:,} {command.subset} images:")
    if knocked is not None:
        print(f"  {knocked.at_work()}")
    for line in summary(found):
        print(f"  {line}")
    if command.quiet:
        return 0
    known = [one for one in found.predictions.by_class() if one.accuracy is not None]
    worst = sorted(known, key=lambda one: one.accuracy or 0.0)[:SHOWN]
    lowest = ", ".join(f"{one.name} {100 * (one.accuracy or 0):.1f} %" for one in worst)
    print(one_line(f"  lowest accuracy: {lowest}"))
    if pairs := found.predictions.confusions(SHOWN):
        confused = "; ".join(f"{a} taken for {b} ({count:,})" for a, b, count in pairs)
        print(one_line(f"  most confused: {confused}"))
    report = write_evaluation(found, command.out or default_out(command.source, command.subset))
    print(f"the report: {report} and {report.with_suffix('.html')}")
    return 0
