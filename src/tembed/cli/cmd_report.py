"""``tembed report``: the paper's numbers beside your own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tembed.cli.options import read_options
from tembed.common.errors import counted


@dataclass(frozen=True)
class ReportCommand:
    """Report on runs: Table 1, the figures of §4.1, tests, and the claims of §4.2, as Markdown and as one HTML page."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[PATH ...]")] = (Path("runs"),)
    """folders of runs, or files that `tembed runs --save` wrote, such as those in results/"""
    out: Path = Path("report")
    """the folder for report.md, report.html and figures/"""


def main(arguments: list[str]) -> int:
    command = read_options(ReportCommand, "tembed report", arguments)
    from tembed.lab.report.grid_report import write_grid_report

    read = write_grid_report(list(command.runs), command.out)
    runs = f"{counted(len(read.records), 'finished run')}, {len(read.unfinished)} unfinished"
    print(f"{runs}: {command.out / 'report.md'} and {command.out / 'report.html'}")
    for line in read.excluded:
        print(f"excluded: {line}")
    return 1 if read.excluded else 0
