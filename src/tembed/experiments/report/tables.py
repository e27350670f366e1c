"""The tables of a report: Table 1 beside the paper's, tests of the block, and the claims of §4.2."""

from tembed.experiments.report.cells import Cell, Regime, describe, network
from tembed.experiments.report.claims import judge, judge_paper
from tembed.experiments.report.statistics import Sample, contrast, holm
from tembed.paper import DATASETS, LABELS, PAIRS, TABLE1
from tembed.reporting.document import Block, Heading, Items, Table, Text

MISSING = "missing"

Regimes = dict[Regime, list[Cell]]


def score(sample: Sample) -> str:
    """``84.46 ± 0.31``, or the one value of a single seed."""
    return f"{sample.mean:.2f}" + ("" if sample.std is None else f" ± {sample.std:.2f}")


def by_regime(cells: list[Cell]) -> Regimes:
    """The cells of Table 1's networks, those trained alike together, the longest training first."""
    groups: Regimes = {}
    for cell in cells:
        if cell.usual and cell.recipe.model in LABELS:
            groups.setdefault(cell.regime, []).append(cell)
    return dict(sorted(groups.items(), key=lambda entry: (-entry[1][0].recipe.epochs, str(entry[0]))))


def by_data(cells: list[Cell]) -> dict[str, dict[str, Cell]]:
    """Cells of one regime by dataset and model. A copy with other content or other test images is another dataset."""
    groups: dict[str, dict[str, Cell]] = {}
    first: dict[str, str] = {}
    for cell in cells:
        name, on = cell.recipe.data, cell.measured_on
        if first.setdefault(name, on) != on:
            name = f"{name}, another copy ({cell.data_sha256[:8]}, {cell.test_images:,} test images)"
        groups.setdefault(name, {})[cell.recipe.model] = cell
    return groups


def datasets_of(groups: dict[str, dict[str, Cell]]) -> list[str]:
    """The paper's three, measured or not, if the regime has one of them; then all others that were measured."""
    papers = list(DATASETS) if set(DATASETS) & set(groups) else []
    return [*papers, *(name for name in groups if name not in DATASETS)]


def table1(regimes: Regimes) -> list[Block]:
    """A table for each regime and dataset."""
    blocks: list[Block] = [
        Heading("Table 1: test accuracy"),
        Text(
            "Top-1 in %. A cell is the mean ± standard deviation (n - 1) over n seeds of one recipe on one split of "
            "one dataset; n = 1 has no spread. Trainings that differ in anything else have tables of their own."
        ),
    ]
    if not any(cell.recipe.data in DATASETS for cells in regimes.values() for cell in cells):
        blocks.append(Text(f"No finished run of Table 1: all {len(TABLE1)} cells are {MISSING}."))
    for cells in regimes.values():
        blocks.append(Heading(describe(cells[0].recipe).capitalize(), 3))
        if warning := caution(cells):
            blocks.append(Text(warning))
        groups = by_data(cells)
        for data in datasets_of(groups):
            blocks += _table(data, groups.get(data, {}))
    return blocks


def caution(cells: list[Cell]) -> str:
    """What keeps a regime's numbers from being the paper's."""
    recipe, least = cells[0].recipe, min(cell.sample.n for cell in cells)
    words = []
    if least == 1:
        words.append("some cells have one seed only, whose differences say little")
    if recipe.preset != "paper" or recipe.train_images is not None:
        words.append("this is not the paper's training")
    if recipe.epochs < 100:
        words.append(f"{recipe.epochs} epochs are few (the paper does not print its number; 200 is our reading)")
    if recipe.split != "paper":
        words.append("this is not the paper's split")
    return f"Read with care: {'; '.join(words)}." if words else ""


def _table(data: str, cells: dict[str, Cell]) -> list[Block]:
    if not cells:
        return [Text(f"{DATASETS[data]}: {MISSING}, all {len(LABELS)} cells.")]
    rows = []
    for model, label in LABELS.items():
        cell, paper = cells.get(model), TABLE1.get((model, data))
        if cell is None and paper is None:
            continue
        printed = "-" if paper is None else f"{paper:.2f}"
        if cell is None:
            rows.append((label, MISSING, printed, "-", "0", "-"))
            continue
        sample = cell.sample
        difference = "-" if paper is None else f"{sample.mean - paper:+.2f}"
        rows.append((label, score(sample), printed, difference, str(sample.n), str(cell.recipe.epochs)))
    header = ("network", "measured", "paper", "difference", "n", "epochs")
    return [Heading(DATASETS.get(data, data), 4), Table(header, tuple(rows))]


def significance(regimes: Regimes) -> list[Block]:
    """Welch's test of each network with the block against its baseline."""
    blocks: list[Block] = [
        Heading("Block against baseline"),
        Text(
            "Welch's two-sided t-test on the seeds' test accuracies. Corrected: by Holm's method for all tests of a "
            "table. Two or three seeds show large differences only: no significance is no proof of equality."
        ),
    ]
    any_pair = False
    for cells in regimes.values():
        found = []
        for data, models in by_data(cells).items():
            for base, ours in PAIRS:
                if base in models and ours in models:
                    test = contrast([models[ours].sample], [models[base].sample])
                    counts = f"{models[ours].sample.n} and {models[base].sample.n}"
                    found.append((data, f"{LABELS[ours]} - {LABELS[base]}", test, counts))
        if not found:
            continue
        any_pair = True
        corrected = iter(holm([test.p for _, _, test, _ in found if test.p is not None]))
        rows = [
            (pair, DATASETS.get(data, data), f"{test.value:+.2f}", counts)
            + ((test.why_not, "-") if test.p is None else (f"{test.p:.3f}", f"{next(corrected):.3f}"))
            for data, pair, test, counts in found
        ]
        header = ("pair", "data", "difference", "n", "p", "p corrected")
        blocks += [Heading(describe(cells[0].recipe).capitalize(), 3), Table(header, tuple(rows))]
    return blocks if any_pair else [*blocks, Text("No baseline was measured with its block: every test is missing.")]


def claims(regimes: Regimes) -> list[Block]:
    """The claims of §4.2 on the paper's own numbers, and on the measured cells of each regime."""
    paper = judge_paper()
    rows = tuple((v.claim.text, v.word(), v.count()) for v in paper)
    blocks: list[Block] = [
        Heading("The claims of §4.2"),
        Text("Each claim is read as comparisons, made on every dataset. It mostly holds if more than half agree."),
        Items(tuple(f"{v.claim.text} Read as: {v.claim.reading}." for v in paper)),
        Heading("On the paper's own Table 1", 3),
        Text("The paper prints no spread, so chance cannot be judged."),
        Table(("claim", "verdict", "agreement"), rows),
        Text("Comparisons that the printed numbers contradict:"),
        Items(
            tuple(
                f"{DATASETS[one.data]}: {one.comparison.text}? It is {one.difference.value:+.2f}."
                for v in paper
                for one in v.made
                if not one.holds and one.difference is not None
            )
        ),
    ]
    for cells in regimes.values():
        groups = by_data(cells)
        values = {(model, data): cell.sample for data, models in groups.items() for model, cell in models.items()}
        verdicts = judge(values, datasets_of(groups))
        table = tuple((v.claim.text, v.word(), v.count(), v.chance()) for v in verdicts)
        blocks += [
            Heading(f"Measured: {describe(cells[0].recipe)}", 3),
            Table(("claim", "verdict", "agreement", "chance"), table),
        ]
    return blocks if regimes else [*blocks, Text("Measured: all cells are missing.")]


def other_cells(cells: list[Cell]) -> list[Block]:
    """Every cell, whatever its recipe, with what it is."""
    rows = tuple(
        (
            network(cell.recipe),
            DATASETS.get(cell.recipe.data, cell.recipe.data),
            score(cell.sample),
            str(cell.sample.n),
            ", ".join(map(str, cell.seeds)),
            f"{describe(cell.recipe)}, {cell.test_images:,} test images",
            f"{sum(record.seconds for record in cell.records) / cell.sample.n / 60:.0f} min",
        )
        for cell in cells
    )
    header = ("network", "data", "measured", "n", "seeds", "what it is", "time a run")
    return [Heading("All cells"), Table(header, rows) if rows else Text("None: no run is finished.")]
