"""The tables of a report: Table 1 beside the paper's, tests of the block, and the claims of §4.2."""

from tembed.experiments.report.cells import Cell, Regime, data_title, describe, network_title
from tembed.experiments.report.claims import check_claims, check_paper
from tembed.experiments.report.statistics import Sample, contrast, holm
from tembed.paper import ACCURACY, BASELINES, DATASETS, LABELS
from tembed.reporting.document import Element, Heading, Items, Table, Text

MISSING = "missing"

Regimes = dict[Regime, list[Cell]]


def score(sample: Sample) -> str:
    """``84.46 ± 0.31``, or the value of a single seed."""
    return f"{sample.mean:.2f}" + ("" if sample.std is None else f" ± {sample.std:.2f}")


def by_regime(cells: list[Cell]) -> Regimes:
    """The cells of Table 1's networks by regime, the longest training first."""
    groups: Regimes = {}
    for cell in cells:
        if cell.is_standard and cell.recipe.model in LABELS:
            groups.setdefault(cell.regime, []).append(cell)
    return dict(sorted(groups.items(), key=lambda entry: (-entry[1][0].recipe.epochs, str(entry[0]))))


def by_data(cells: list[Cell]) -> dict[str, dict[str, Cell]]:
    """The cells of one regime by dataset and model. A copy with other content or test images is another dataset."""
    groups: dict[str, dict[str, Cell]] = {}
    first: dict[str, str] = {}
    for cell in cells:
        name, measured_on = cell.recipe.data, cell.measured_on
        if first.setdefault(name, measured_on) != measured_on:
            name = f"{name}, another copy ({cell.data_sha256[:8]}, {cell.test_images:,} test images)"
        groups.setdefault(name, {})[cell.recipe.model] = cell
    return groups


def datasets_to_show(groups: dict[str, dict[str, Cell]]) -> list[str]:
    """All datasets of the paper if one of them was measured, then the other measured ones."""
    printed = list(DATASETS) if set(DATASETS) & set(groups) else []
    return [*printed, *(name for name in groups if name not in DATASETS)]


def table1(regimes: Regimes) -> list[Element]:
    """One table for each regime and dataset."""
    elements: list[Element] = [
        Heading("Table 1: test accuracy"),
        Text(
            "Top-1 in %. A cell is the mean ± standard deviation (n - 1) over n seeds of one recipe on one split of "
            "one dataset; a single seed has no standard deviation. Runs that differ in anything else are in other "
            "tables."
        ),
    ]
    if not any(cell.recipe.data in DATASETS for cells in regimes.values() for cell in cells):
        elements.append(Text(f"No finished run of Table 1: all {len(ACCURACY)} cells are {MISSING}."))
    for cells in regimes.values():
        elements.append(Heading(describe(cells[0].recipe).capitalize(), 3))
        if warning := caution(cells):
            elements.append(Text(warning))
        groups = by_data(cells)
        for data in datasets_to_show(groups):
            elements += _table(data, groups.get(data, {}))
    return elements


def caution(cells: list[Cell]) -> str:
    """Why the numbers of a regime cannot be compared with the paper's without care."""
    recipe, fewest = cells[0].recipe, min(cell.sample.n for cell in cells)
    words = []
    if fewest == 1:
        words.append("some cells have one seed only, so their differences mean little")
    if recipe.preset != "paper" or recipe.train_images is not None:
        words.append("this is not the paper's training")
    if recipe.epochs < 100:
        words.append(f"{recipe.epochs} epochs are few (the paper does not state a number; we assume 200)")
    if recipe.split != "paper":
        words.append("this is not the paper's split")
    return f"Caution: {'; '.join(words)}." if words else ""


def _table(data: str, cells: dict[str, Cell]) -> list[Element]:
    if not cells:
        return [Text(f"{data_title(data)}: {MISSING}, all {len(LABELS)} cells.")]
    rows = []
    for model, label in LABELS.items():
        cell, paper = cells.get(model), ACCURACY.get((model, data))
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
    return [Heading(data_title(data), 4), Table(header, tuple(rows))]


def block_against_baseline(regimes: Regimes) -> list[Element]:
    """Welch's test of each extended network against its baseline."""
    elements: list[Element] = [
        Heading("Block against baseline"),
        Text(
            "Welch's two-sided t-test on the test accuracies of the seeds. Corrected: with Holm's method for all tests "
            "of a table. Two or three seeds reveal only large differences: one that is not significant may still be "
            "real."
        ),
    ]
    any_pair = False
    for cells in regimes.values():
        tests = []
        for data, models in by_data(cells).items():
            for baseline, extended in BASELINES:
                if baseline in models and extended in models:
                    test = contrast([models[extended].sample], [models[baseline].sample])
                    counts = f"{models[extended].sample.n} and {models[baseline].sample.n}"
                    tests.append((data, f"{LABELS[extended]} - {LABELS[baseline]}", test, counts))
        if not tests:
            continue
        any_pair = True
        corrected = iter(holm([test.p for _, _, test, _ in tests if test.p is not None]))
        rows = [
            (pair, data_title(data), f"{test.value:+.2f}", counts)
            + ((test.why_not, "-") if test.p is None else (f"{test.p:.3f}", f"{next(corrected):.3f}"))
            for data, pair, test, counts in tests
        ]
        header = ("pair", "data", "difference", "n", "p", "p corrected")
        elements += [Heading(describe(cells[0].recipe).capitalize(), 3), Table(header, tuple(rows))]
    if not any_pair:
        elements.append(Text(f"No baseline was measured together with its extension: every test is {MISSING}."))
    return elements


def claims(regimes: Regimes) -> list[Element]:
    """The claims of §4.2 on the paper's own numbers, and on the measured cells of each regime."""
    paper = check_paper()
    elements: list[Element] = [
        Heading("The claims of §4.2"),
        Text("We read each claim as comparisons on every dataset. It mostly holds if more than half of them hold."),
        Items(tuple(f"{one.claim.text} Read as: {one.claim.reading}." for one in paper)),
        Heading("On the paper's own Table 1", 3),
        Text("The paper prints no spread, so differences may be due to chance."),
        Table(
            ("claim", "verdict", "agreement"),
            tuple((one.claim.text, one.verdict(), one.agreement()) for one in paper),
        ),
        Text("Comparisons that do not hold in the printed table:"),
        Items(
            tuple(
                f"{data_title(result.data)}: {result.comparison.text}; the difference is {result.difference.value:+.2f}"
                for one in paper
                for result in one.made
                if not result.holds and result.difference is not None
            )
        ),
    ]
    for cells in regimes.values():
        groups = by_data(cells)
        accuracies = {(model, data): cell.sample for data, models in groups.items() for model, cell in models.items()}
        rows = tuple(
            (one.claim.text, one.verdict(), one.agreement(), one.significance())
            for one in check_claims(accuracies, datasets_to_show(groups))
        )
        elements += [
            Heading(f"Measured: {describe(cells[0].recipe)}", 3),
            Table(("claim", "verdict", "agreement", "significance"), rows),
        ]
    return elements if regimes else [*elements, Text(f"Measured: all cells are {MISSING}.")]


def all_cells(cells: list[Cell]) -> list[Element]:
    """Every cell, whatever its recipe."""
    rows = tuple(
        (
            network_title(cell.recipe),
            data_title(cell.recipe.data),
            score(cell.sample),
            str(cell.sample.n),
            ", ".join(map(str, cell.seeds)),
            f"{describe(cell.recipe)}, {cell.test_images:,} test images",
            f"{sum(record.seconds for record in cell.records) / cell.sample.n / 60:.0f} min",
        )
        for cell in cells
    )
    header = ("network", "data", "measured", "n", "seeds", "training", "time per run")
    return [Heading("All cells"), Table(header, rows) if rows else Text("None: no run is finished.")]
