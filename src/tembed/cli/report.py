"""``tembed report``: the paper's numbers and one's own side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class ReportCommand:
    """Report on runs: Table 1, the figures of §4.1, tests, and the claims of §4.2, as Markdown and as one HTML page."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = (Path("runs"),)
    """folders of runs, or files that `tembed runs --save` wrote, such as those in results/"""
    out: Path = Path("report")
    """where report.md, report.html and figures/ go"""


def main(arguments: list[str]) -> int:
    command = tyro.cli(ReportCommand, prog="tembed report", args=arguments)
    from tembed.experiments.report.report import write_report

    found = write_report(list(command.runs), command.out)
    print(
        f"{len(found.records)} finished runs, {len(found.unfinished)} unfinished: {command.out / 'report.md'} and "
        f"{command.out / 'report.html'}"
    )
    for line in found.left_out:
        print(f"left out: {line}")
    return 1 if found.left_out else 0
