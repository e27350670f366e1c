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
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import scipy.stats

from tembed.lab.analysis.knock_outs import p_text
from tembed.lab.claims.claim import Claim, read_claim
from tembed.lab.claims.separation import FURTHER
from tembed.lab.grid.records import read_runs
from tembed.lab.report.analysis_report import verdict_table
from tembed.lab.report.document import Element, Heading, Table, Text, to_markdown, write_document
from tembed.lab.report.grid_report import report_elements

ROOT = Path(__file__).parents[2]
PAGE, RESULTS, FIGURES = ROOT / "docs" / "results.md", ROOT / "results", Path(__file__).parent / "results"
POOLED = {
    "CIFAR-10, 8 epochs": "rn26-embed-cifar10-fast-?",
    "CIFAR-100, 5 epochs": "rn26-embed-cifar100-fast-5epochs-?-*",
}
"""Recipes of the fast preset with several seeds, and the names of their runs."""
SHOWN = ("Table 1: test accuracy", "Block against baseline", "Lambda (Fig. 4)", "Maximizers (Fig. 3)")
COMMENT = "<!-- Below this line the page is written by docs/figures/results.py. -->\n"
WIDTH = 100
SHIPPED = "rn26-embed-cifar10"
OTHERS = {
    "nearest to the paper's": "rn26-embed-cifar10-own-keras-0-0d34abb3",
    "CIFAR-100": "rn26-embed-cifar100",
    "Mini-ImageNet": "rn26-embed-mini-imagenet",
}
"""The analyses whose verdicts stand beside those of the shipped weights on CIFAR-10."""
OVER_SEEDS = "CIFAR-100"
"""The one of them that has several seeds of every network."""


def vital_signs() -> list[Element]:
    """What each network with a block loses without a part of it, and the mean over the seeds of one recipe."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((RESULTS / "vital").glob("*.json"))}
    found = {name: one for name, one in found.items() if one["share"] is not None}
    names = [name for name in next(iter(found.values()))["knock_outs"] if name != "shortcut = 0"]
    rows: list[tuple[str, ...]] = []
    for name, one in found.items():
        costs = [
            f"{100 * out['cost']:+.2f} ({p_text(out['p'])})" for out in (one["knock_outs"][name] for name in names)
        ]
        rows.append((name, f"{100 * one['share']:.1f} %", f"{100 * one['accuracy']:.2f}", *costs))
    for recipe, pattern in POOLED.items():
        seeds = [one for name, one in found.items() if fnmatch(name, pattern)]
        rows.append((f"{recipe}: mean of {len(seeds)} seeds", "", "", *(pooled(seeds, name) for name in names)))
    (images,) = {one["images"] for one in found.values()}
    words = (
        "The share of the variance that f' has in what the block writes, and the points that the head loses on "
        f"{images:,} test images, in float32, if a part of the block is replaced (page Vital signs). p: paired over "
        "images. Last rows: ± is the error over images, and p is the two-sided t-test of the costs over seeds."
    )
    header = ("run", "share of f'", "intact, %", *names)
    return [Heading("Is the block at work?"), Text(words), Table(header, tuple(rows))]


def pooled(seeds: list[dict[str, Any]], name: str) -> str:
    """The mean cost of one knock-out over seeds, its error over images, and the t-test over seeds."""
    outs = [seed["knock_outs"][name] for seed in seeds]
    costs = [100 * out["cost"] for out in outs]
    error = 100 * math.hypot(*(out["noise"] for out in outs)) / len(outs)
    p = scipy.stats.ttest_1samp(costs, 0).pvalue
    return f"{statistics.mean(costs):+.2f} ± {error:.2f} ({p_text(p)})"


def verdicts() -> list[Element]:
    """What the analyses say about each part of each sentence: the shipped weights' in words, the others' in short."""
    saved, seeds = analysis_of(SHIPPED), len(analysis_of(OTHERS[OVER_SEEDS])["seeds"]["run"])
    words = (
        f"The shipped {saved['model']} on CIFAR-10: {saved['points']:,} patches of {saved['images']:,} test images, "
        "without runs of -aux and -1x1. Then the verdicts of other weights, n = 1 each, with the difference to the "
        "control that is beaten least surely; columns may differ in that control, so their numbers do not compare. "
        f"Last column: {OVER_SEEDS} over {seeds} seeds. Datasets without super-classes are judged by classes."
    )
    tables = {title: {claim.name: claim for claim in judged(analysis_of(name))} for title, name in OTHERS.items()}
    table = verdict_table(judged(saved))
    header = (*table.header[:-1], *OTHERS, f"{OVER_SEEDS}, method")
    rows = []
    for row in table.rows:
        if row[-2].endswith(FURTHER):
            continue
        found = [brief(claims.get(row[2])) for claims in tables.values()]
        rows.append((*row[:-1], *found, over_seeds(tables[OVER_SEEDS].get(row[2]))))
    return [Heading("The paper's sentences about features"), Text(words), Table(header, tuple(rows))]


def analysis_of(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / "analysis" / f"{name}.json").read_text("utf-8"))


def judged(analysis: dict[str, Any]) -> list[Claim]:
    return [read_claim(claim) for claim in analysis["claims"]]


def brief(claim: Claim | None) -> str:
    """A verdict on weights and the difference that it rests on."""
    if claim is None or claim.weights.p is None:
        return ""
    least = max(claim.controls, key=lambda control: control.p)
    return f"{claim.weights.verdict} ({least.difference.value:+.3f})"


def over_seeds(claim: Claim | None) -> str:
    """A verdict on the method and the difference that it rests on."""
    if claim is None or claim.method.p is None:
        return ""
    least = max((control.seeds for control in claim.controls if control.seeds), key=lambda seeds: seeds.tails()[0])
    return f"{claim.method.verdict} ({least.gap:+.3f})"


def wrapped(line: str) -> str:
    """A line of prose broken at the width of the documents; tables, pictures and tags stay."""
    if line.startswith("| --- "):
        return line.replace(" ", "")
    if line.startswith(("|", "!", "<", "#")):
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)


def report() -> list[Element]:
    """The sections `SHOWN` of what `tembed report results` says, without what it repeats in every table."""
    shown, elements = False, []
    for element in report_elements(read_runs([RESULTS])):
        if isinstance(element, Heading) and element.level <= 2:
            shown = element.text in SHOWN
        repeated = isinstance(element, Text) and element.text.startswith(("Missing", "Caution"))
        elements += [element] if shown and not repeated else []
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
