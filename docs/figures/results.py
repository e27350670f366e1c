"""Write docs/results.md from the run files in results/: python docs/figures/results.py

The opening above the comment is written by hand. Below it stand the vital signs (results/vital, by
benchmarks/vital_signs.py), the verdicts on the paper's sentences (results/analysis, by docs/figures/make.py) and four
sections of `tembed report results`.
"""

import json
import math
import shutil
import statistics
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import scipy.stats

from tembed.lab.analysis.knock_outs import p_text
from tembed.lab.claims.claim import Claim, read_claim
from tembed.lab.grid.records import read_runs
from tembed.lab.report.analysis_report import verdict_table
from tembed.lab.report.document import Element, Heading, Table, Text, to_markdown, write_document
from tembed.lab.report.grid_report import report_elements

ROOT = Path(__file__).parents[2]
PAGE, RESULTS, FIGURES = ROOT / "docs" / "results.md", ROOT / "results", Path(__file__).parent / "results"
SEEDS = tuple(f"rn26-embed-cifar10-fast-{seed}" for seed in range(3))
SHOWN = ("Table 1: test accuracy", "Block against baseline", "Lambda (Fig. 4)", "Maximizers (Fig. 3)")
COMMENT = "<!-- Below this line the page is written by docs/figures/results.py. -->\n"
WIDTH = 100
SHIPPED, OTHER = "rn26-embed-cifar10", "rn26-embed-cifar10-own-keras-0-0d34abb3"
"""The analyses whose verdicts stand beside each other."""


def vital_signs() -> list[Element]:
    """What each network with a block loses without a part of it, and the mean over the seeds of one recipe."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((RESULTS / "vital").glob("*.json"))}
    found = {name: one for name, one in found.items() if one["share"] is not None}
    names = list(next(iter(found.values()))["knock_outs"])
    rows: list[tuple[str, ...]] = []
    for name, one in found.items():
        costs = [f"{100 * out['cost']:+.2f} ({p_text(out['p'])})" for out in one["knock_outs"].values()]
        share, intact = f"{100 * one['share']:.1f} %", f"{100 * one['accuracy']:.2f}"
        rows.append((name, share, f"{one['images']:,}", intact, *costs))
    seeds = [found[name] for name in SEEDS]
    rows.append((f"mean of {len(seeds)} seeds of fast", "", "", "", *(pooled(seeds, name) for name in names)))
    words = (
        "The share of the variance that f' has in what the block writes, and the points that the head loses on the "
        "same test images if a part of the block is replaced (page Vital signs). p: paired over images. Last row: "
        "± is the error over images, and p is the two-sided t-test of the three costs over seeds."
    )
    header = ("run", "share of f'", "test images", "intact, %", *names)
    return [Heading("Is the block at work?"), Text(words), Table(header, tuple(rows))]


def pooled(seeds: list[dict[str, Any]], name: str) -> str:
    """The mean cost of one knock-out over seeds, its error over images, and the t-test over seeds."""
    outs = [seed["knock_outs"][name] for seed in seeds]
    costs = [100 * out["cost"] for out in outs]
    error = 100 * math.hypot(*(out["noise"] for out in outs)) / len(outs)
    p = scipy.stats.ttest_1samp(costs, 0).pvalue
    return f"{statistics.mean(costs):+.2f} ± {error:.2f} ({p_text(p)})"


def verdicts() -> list[Element]:
    """What the analysis of the shipped weights says about each part of each sentence, and that of another training."""
    records = [json.loads((RESULTS / "analysis" / f"{name}.json").read_text("utf-8")) for name in (SHIPPED, OTHER)]
    saved, _ = records
    words = (
        f"The shipped {saved['model']} on CIFAR-10: {saved['points']:,} patches of {saved['images']:,} test images, "
        "n = 1, without runs of -aux and -1x1. Last column: the training nearest to the paper's, n = 1, with the "
        "difference to the control that is beaten least surely. One seed says nothing about the method. Rules: "
        "page Analysis; doubts: page What does not hold."
    )
    shipped, other = ([read_claim(claim) for claim in record["claims"]] for record in records)
    named = {claim.name: claim for claim in other}
    table = verdict_table(shipped)
    header = (*table.header[:-1], "another training")
    rows = tuple((*row[:-1], brief(named.get(row[2]))) for row in table.rows)
    return [Heading("The paper's sentences about features"), Text(words), Table(header, rows)]


def brief(claim: Claim | None) -> str:
    """A verdict and the difference that it rests on."""
    if claim is None or claim.weights.p is None:
        return ""
    least = max(claim.controls, key=lambda control: control.p)
    return f"{claim.weights.verdict} ({least.difference.value:+.3f})"


def wrapped(line: str) -> str:
    """A line of prose broken at the width of the documents; tables, pictures and tags stay."""
    if line.startswith(("|", "!", "<", "#")):
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)


def report() -> list[Element]:
    """The sections `SHOWN` of what `tembed report results` says."""
    shown, elements = False, []
    for element in report_elements(read_runs([RESULTS])):
        if isinstance(element, Heading) and element.level <= 2:
            shown = element.text in SHOWN
        elements += [element] if shown else []
    return elements


def generated() -> str:
    """The part of the page below the comment."""
    elements = [*vital_signs(), *verdicts(), *report()]
    text = to_markdown(elements).replace(f"{ROOT}/", "").replace("(figures/", "(figures/results/")
    return "\n".join(map(wrapped, text.splitlines())) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_document(report(), Path(folder), "")
        shutil.rmtree(FIGURES, ignore_errors=True)
        shutil.copytree(Path(folder) / "figures", FIGURES)
    opening = PAGE.read_text("utf-8").partition(COMMENT)[0]
    PAGE.write_text(f"{opening}{COMMENT}\n{generated()}", "utf-8")
