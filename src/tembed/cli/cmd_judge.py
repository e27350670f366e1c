"""``tembed judge``: a network's explanations beside their rivals."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tembed.cli.options import read_options
from tembed.common.accelerators import Accelerator


@dataclass(frozen=True)
class Judge:
    """Measure the explanations of a trained run beside those of rivals and beside null explanations.

    On data with known parts, parts are removed; on any data, cells and pixels are. Train the runs with --left-out parts
    or cells, so that they know such images.
    """

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """a run folder, a weights file, or the name of shipped weights; further ones are other seeds of it"""
    rivals: tuple[str, ...] = ()
    """runs of other networks on the same data, each compared with the run of its seed (default: none)"""
    data: str | None = None
    """another dataset with the same classes (default: that of the run)"""
    ours: str | None = None
    """the map to compare with all others (default: the one that `tembed explain` draws)"""
    images_per_class: int = 10
    """test images of each class; all other numbers of images are in proportion"""
    out: Path | None = None
    """the folder for the report (default: RUN/judge for a run folder, else judge/NAME)"""
    accelerator: Accelerator = "auto"
    """what to compute on; auto: a GPU if there is one"""
    quiet: bool = False
    """print only the result"""


def main(arguments: list[str]) -> int:
    command = read_options(Judge, "tembed judge", arguments)
    from tembed.common.errors import TembedError
    from tembed.common.files import below
    from tembed.lab.analysis.judging import Sizes, judge
    from tembed.lab.report.judge_report import summary, write_judgement
    from tembed.lab.terminal import stderr_progress

    if not command.sources:
        raise TembedError("give at least one run: tembed judge RUN")
    first = Path(command.sources[0])
    out = command.out or (below(first, "judge") if first.is_dir() else Path("judge") / first.stem)
    with stderr_progress(command.quiet) as progress:
        found = judge(
            command.sources,
            command.rivals,
            data=command.data,
            sizes=Sizes.of(command.images_per_class),
            ours=command.ours,
            accelerator=command.accelerator,
            progress=progress,
        )
    for line in summary(found):
        print(line)
    report = write_judgement(found, out)
    print(f"the report: {report} and {report.with_suffix('.html')}")
    return 0
