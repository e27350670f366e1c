"""Write docs/results.md from the run files in results/: python docs/figures/results.py

The opening above the comment is written by hand. Below it stand the vital signs (results/vital, by
benchmarks/vital_signs.py), the claims about features over seeds (`tembed analyze --also`) and what `tembed report` says
about results/*.json.
"""

import json
import shutil
import tempfile
import textwrap
from pathlib import Path

from tembed.lab.analysis.knock_outs import p_text
from tembed.lab.claims.claim import read_claim
from tembed.lab.grid.records import read_runs
from tembed.lab.report.analysis_report import verdict_table
from tembed.lab.report.document import Element, Heading, Table, Text, to_markdown, write_document
from tembed.lab.report.grid_report import report_elements

ROOT = Path(__file__).parents[2]
PAGE, RESULTS, FIGURES = ROOT / "docs" / "results.md", ROOT / "results", Path(__file__).parent / "results"
SEEDS = RESULTS / "analysis" / "rn26-embed-cifar10-fast-8epochs.json"
COMMENT = "<!-- Below this line the page is written by docs/figures/results.py. -->\n"
WIDTH = 100


def vital_signs() -> list[Element]:
    """What each network with a block loses without a part of it."""
    rows = []
    for path in sorted((RESULTS / "vital").glob("*.json")):
        found = json.loads(path.read_text("utf-8"))
        if found["share"] is None:
            continue
        outs = found["knock_outs"]
        costs = [f"{100 * out['cost']:+.2f} ({p_text(out['p'])})" for out in outs.values()]
        share, intact = f"{100 * found['share']:.1f} %", f"{100 * found['accuracy']:.2f}"
        rows.append((path.stem, share, f"{found['images']:,}", intact, *costs))
    header = ("run", "share of f'", "test images", "intact, %", *outs)
    words = (
        "The share of the variance that f' has in what the block writes, and the points that the head loses on the "
        "same test images if a part of the block is replaced (docs/vital-signs.md). p: paired over images."
    )
    return [Heading("Is the block at work?"), Text(words), Table(header, tuple(rows))]


def feature_claims() -> list[Element]:
    """The claims of `tembed analyze` over three seeds of each network."""
    found = json.loads(SEEDS.read_text("utf-8"))
    counts = {kind: len(sources) for kind, sources in found["seeds"].items()}
    claims = [read_claim(one) for one in found["claims"]]
    words = (
        f"The claims of docs/analysis.md for {counts['run']} seeds of RN26-Ours beside {counts['baseline']} of RN26, "
        f"{counts['aux']} of RN26-aux and {counts['one_by_one']} of rn26-1x1, after 8 epochs of the fast preset; "
        f"seed 0 of the first two in half precision ({found['images']:,} test images, {found['points']:,} patches; "
        f'{SEEDS.relative_to(ROOT)}). "For these weights" means seed 0. OLD RULES: this file was written before the '
        "rules of docs/analysis.md. It has no numbers of single seeds, so the verdicts cannot be computed again."
    )
    return [Heading("Claims over seeds"), Text(words), verdict_table(claims)]


def wrapped(line: str) -> str:
    """A line of prose broken at the width of the documents; tables, pictures and tags stay."""
    if line.startswith(("|", "!", "<", "#")):
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)


def generated() -> str:
    """The part of the page below the comment."""
    elements = [*vital_signs(), *feature_claims(), *report_elements(read_runs([RESULTS]))[1:]]
    text = to_markdown(elements).replace(f"{ROOT}/", "").replace("(figures/", "(figures/results/")
    return "\n".join(map(wrapped, text.splitlines())) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_document(report_elements(read_runs([RESULTS])), Path(folder), "")
        shutil.rmtree(FIGURES, ignore_errors=True)
        shutil.copytree(Path(folder) / "figures", FIGURES)
    opening = PAGE.read_text("utf-8").partition(COMMENT)[0]
    PAGE.write_text(f"{opening}{COMMENT}\n{generated()}", "utf-8")
