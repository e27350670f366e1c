"""The paper's numbers and one's own side by side, as Markdown and as one HTML page."""

from pathlib import Path

from tembed.experiments.report.cells import make_cells
from tembed.experiments.report.figures import curves, depth_figure, lambda_figure, maximizer_figure
from tembed.experiments.report.records import Collected, collect
from tembed.experiments.report.tables import by_regime, claims, other_cells, significance, table1
from tembed.files import explained, write_file
from tembed.reporting.document import Block, Figure, Heading, Items, Text, to_html, to_markdown

TITLE = "Feature embedding by template matching: measured beside the paper"


def write_report(sources: list[Path], out: Path) -> Collected:
    """Write ``report.md``, ``report.html`` and ``figures/`` into ``out``, and return the runs that it is about."""
    found = collect(sources)
    blocks = compose(found)
    with explained(out):
        (out / "figures").mkdir(parents=True, exist_ok=True)
    for block in blocks:
        if isinstance(block, Figure):
            write_file(out / "figures" / f"{block.name}.svg", block.svg.encode())
    write_file(out / "report.md", to_markdown(blocks).encode())
    write_file(out / "report.html", to_html(TITLE, blocks).encode())
    return found


def compose(found: Collected) -> list[Block]:
    """The whole report."""
    cells = make_cells(found.records)
    regimes = by_regime(cells)
    counts = (
        f"{len(found.records)} finished runs in {len(cells)} cells; {len(found.unfinished)} unfinished; "
        f"{len(found.left_out)} left out."
    )
    blocks: list[Block] = [Heading(TITLE, 1), Text(counts)]
    blocks += table1(regimes)
    blocks += significance(regimes)
    blocks += claims(regimes)
    blocks += lambda_figure(cells)
    blocks += maximizer_figure(cells)
    blocks += depth_figure(regimes)
    blocks += curves(cells)
    blocks += other_cells(cells)
    for heading, lines in (
        ("Unfinished runs", found.unfinished),
        ("Counted once", found.repeated),
        ("Left out", found.left_out),
    ):
        if lines:
            blocks += [Heading(heading), Items(tuple(lines))]
    return blocks
