"""The grid report: the paper's numbers beside the measured ones, as Markdown and as one HTML page."""

import os
from pathlib import Path

from tembed.common.errors import TembedError, counted
from tembed.lab.grid.cells import make_cells
from tembed.lab.grid.records import RunsRead, read_runs
from tembed.lab.report.ablations import depth_figure, lambda_figure, maximizer_figure
from tembed.lab.report.curves import training_curves
from tembed.lab.report.document import Details, Element, Heading, Items, Link, Text, write_document
from tembed.lab.report.tables import all_cells, block_against_baseline, by_regime, claims, table1

TITLE = "Feature embedding by template matching: measured beside the paper"


def write_grid_report(sources: list[Path], out: Path) -> RunsRead:
    """Write ``report.md``, ``report.html`` and ``figures/`` into ``out``, and return the runs that were read."""
    read = read_runs(sources)
    if not read.records and not read.unfinished:
        excluded = "; ".join(read.excluded)
        raise TembedError(f"no run could be read, so there is nothing to report and {out} is unchanged: {excluded}")
    write_document([*report_elements(read), *page_links(read, out)], out, TITLE)
    return read


def page_links(read: RunsRead, out: Path) -> list[Element]:
    """Links to the pages with every patch that `tembed analyze` or `tembed explore` built in the runs' folders."""
    pages = {record.source: record.source / "analysis" / "page" / "index.html" for record in read.records}
    links = [
        Link(f"every patch of {source}", os.path.relpath(page, out)) for source, page in pages.items() if page.exists()
    ]
    return [Heading("Every patch on a map"), *links] if links else []


def report_elements(read: RunsRead) -> list[Element]:
    """The whole report."""
    cells = make_cells(read.records)
    regimes = by_regime(cells)
    runs = f"{counted(len(read.records), 'finished run')} in {counted(len(cells), 'cell')}"
    counts = f"{runs}; {len(read.unfinished)} unfinished; {len(read.excluded)} excluded."
    elements: list[Element] = [Heading(TITLE, 1), Text(counts)]
    not_measured = []
    for section, why_not in (
        (table1(regimes), "Table 1: no network of the paper has a finished run"),
        (block_against_baseline(cells), "the block against its baseline: no such pair was trained in the same way"),
        (claims(regimes), "the claims of §4.1 and §4.2: every one needs two networks trained in the same way"),
        (lambda_figure(cells), "lambda (Fig. 4): no network was trained at two values"),
        (maximizer_figure(cells), "maximizers (Fig. 3): no run of RN20 is finished"),
        (depth_figure(regimes), "depth (§4.1): no network was trained at both depths in the same way"),
    ):
        elements += section
        if not section:
            not_measured.append(why_not)
    elements += training_curves(cells)
    elements += all_cells(cells)
    if not_measured:
        elements.append(Details("Not measured", (Items(tuple(not_measured)),)))
    for heading, lines in (
        ("Unfinished runs", read.unfinished),
        ("Duplicates, counted once", read.duplicates),
        ("Excluded runs", read.excluded),
    ):
        if lines:
            elements += [Heading(heading), Items(tuple(lines))]
    return elements
