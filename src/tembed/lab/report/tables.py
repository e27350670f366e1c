"""The tables of a report: Table 1 beside the paper's, tests of the block, and the claims of §4.1 and §4.2."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tembed.lab.claims.accuracies import Checked, check_claims, check_paper
from tembed.lab.claims.claim import SEEDS
from tembed.lab.claims.contrast import Contrast
from tembed.lab.claims.statistics import LEVEL, holm
from tembed.lab.grid.cells import Cell, Regime, Sample, data_title, describe, model_title, network_title
from tembed.lab.report.document import Element, Heading, Items, Table, Text
from tembed.paper import ACCURACY, BASELINES, CLAIMS, DATASETS, LABELS, PARAMETERS_ONLY, TEST_IMAGES

MISSING = "missing"
SILENT = ("conventions", "schedule", "warmup", "patience")
"""Settings that the paper does not state, besides the number of epochs."""

Regimes = dict[Regime, list[Cell]]


def score(sample: Sample) -> str:
    """``84.46 ± 0.31``, or the value of a single seed."""
    return f"{sample.mean:.2f}" + ("" if sample.std is None else f" ± {sample.std:.2f}")


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def by_regime(cells: list[Cell]) -> Regimes:
    """The cells of Table 1's networks and of our control by regime, the longest training first."""
    groups: Regimes = {}
    for cell in cells:
        if cell.is_standard and cell.recipe.model in (*LABELS, PARAMETERS_ONLY):
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
    """One table for each regime and dataset; nothing without a run."""
    elements: list[Element] = [
        Heading("Table 1: test accuracy"),
        Text(
            "Top-1 in %. A cell is the mean ± standard deviation (n - 1) over n seeds of one recipe on one split of "
            "one dataset; a single seed has no standard deviation. Runs that differ in anything else are in other "
            "tables."
        ),
    ]
    for cells in regimes.values():
        elements.append(Heading(describe(cells[0].recipe).capitalize(), 3))
        if warning := caution(cells):
            elements.append(Text(warning))
        groups = by_data(cells)
        shown = datasets_to_show(groups)
        elements += [element for data in shown if data in groups for element in _table(data, groups[data])]
        if absent := [data_title(data) for data in shown if data not in groups]:
            elements.append(Text(f"Missing altogether: {', '.join(absent)}."))
    return elements if regimes else []


def caution(cells: list[Cell]) -> str:
    """Why the numbers of a regime cannot be compared with the paper's without care."""
    recipe, fewest = cells[0].recipe, min(cell.sample.n for cell in cells)
    words = []
    if fewest == 1:
        words.append("some cells have one seed only, so their differences mean little")
    usual: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(recipe) if field.name in SILENT}
    stated = dataclasses.replace(recipe, **usual)
    if stated.preset != "paper" or recipe.train_images is not None:
        words.append("this is not the paper's training")
    elif guessed := [name for name in SILENT if getattr(recipe, name) != usual[name]]:
        words.append(f"the paper does not state {' and '.join(guessed)}, so these are guesses")
    if recipe.epochs < 100:
        few = "1 epoch is" if recipe.epochs == 1 else f"{recipe.epochs} epochs are"
        words.append(f"{few} few (the paper does not state a number; we assume 200)")
    if recipe.split != "paper":
        words.append("this is not the paper's split")
    return f"Caution: {'; '.join(words)}." if words else ""


def _table(data: str, cells: dict[str, Cell]) -> list[Element]:
    """The measured cells of one dataset beside the paper's, and a line that names the networks without a run."""
    control = {PARAMETERS_ONLY: f"{PARAMETERS_ONLY} (our control)"} if PARAMETERS_ONLY in cells else {}
    rows, absent = [], []
    for model, label in (LABELS | control).items():
        cell, paper = cells.get(model), ACCURACY.get((model, data))
        if cell is None:
            absent += [] if paper is None else [f"{label} ({paper:.2f})"]
            continue
        sample = cell.sample
        printed, difference = ("-", "-") if paper is None else (f"{paper:.2f}", f"{sample.mean - paper:+.2f}")
        rows.append((label, score(sample), printed, difference, str(sample.n), cell.epochs))
    header = ("network", "measured", "paper", "difference", "n", "epochs")
    elements: list[Element] = [Heading(data_title(data), 4), Table(header, tuple(rows))]
    return [*elements, Text(f"Missing (the paper's number): {', '.join(absent)}.")] if absent else elements


def block_against_baseline(cells: list[Cell]) -> list[Element]:
    """Welch's test of each extended network, and of its variants, against its baseline; nothing without such a pair."""
    elements: list[Element] = [
        Heading("Block against baseline"),
        Text(
            "The interval (95 %) of a difference covers the choice of test images. It is paired where the runs record "
            "which images they classify correctly; otherwise it uses the binomial error of each network. p: Welch's "
            "two-sided t-test over seeds. Corrected: with Holm's method for all tests of a table. Two or three seeds "
            "reveal only large differences: one that is not significant may still be real."
        ),
    ]
    variants = sorted(cells, key=lambda cell: not cell.is_standard)  # the network of Table 1 comes first
    any_pair = False
    for regime, regular in by_regime(cells).items():
        tests = [
            (data, _gain(cell, baseline))
            for data, extended, baseline in _baselines(regular)
            for cell in variants
            if (cell.recipe.model, cell.regime, cell.measured_on) == (extended, regime, baseline.measured_on)
        ]
        if not tests:
            continue
        any_pair = True
        found = [test.seed_test() for _, test in tests]
        corrected = iter(holm([p for p, _ in found if p is not None]))
        rows = [
            (test.text, data_title(data), test.shown(), " and ".join(str(sample.n) for sample in test.samples))
            + ((why_not, "-") if p is None else (p_text(p), p_text(next(corrected))))
            for (data, test), (p, why_not) in zip(tests, found, strict=True)
        ]
        header = ("pair", "data", "difference", "n", "p", "p corrected")
        elements += [Heading(describe(regular[0].recipe).capitalize(), 3), Table(header, tuple(rows))]
    return elements if any_pair else []


def _baselines(regular: list[Cell]) -> Iterator[tuple[str, str, Cell]]:
    """The dataset, the name of an extended network, and the cell of its baseline, for each baseline of a regime."""
    pairs = (*BASELINES, (PARAMETERS_ONLY, "rn26-embed"))
    for data, models in by_data(regular).items():
        yield from ((data, extended, models[baseline]) for baseline, extended in pairs if baseline in models)


def _gain(cell: Cell, baseline: Cell) -> Contrast:
    """The accuracy of an extended network minus that of its baseline."""
    text = f"{network_title(cell.recipe)} - {model_title(baseline.recipe.model)}"
    return Contrast(text, (cell.sample,), (baseline.sample,), cell.test_images)


def claims(regimes: Regimes) -> list[Element]:
    """The claims about Table 1 on the paper's own numbers, and on the measured cells of each regime that can judge one.

    Nothing if there is no such regime: the paper's own numbers alone do not belong in a report of measurements.
    """
    elements: list[Element] = [
        Heading("The claims of §4.1 and §4.2"),
        Text(
            "We read each claim as comparisons on every dataset; all of them must hold, or more than half if the paper "
            "says mostly. For these weights: tested over the choice of test images, in pairs where the runs record "
            "which images they classify correctly, otherwise with the binomial error of each accuracy, which is "
            f"larger. For the method: tested over seeds; with fewer than {SEEDS} of a network the verdict is unclear. "
            f"Both tests are one-sided, at p < {LEVEL}, and corrected across the claims of a table by Holm's method. A "
            "claim does not hold if the opposite is significant, and is unclear otherwise. The intervals are two-sided "
            "(95 %), so a claim can hold although its interval just includes 0."
        ),
        Items(tuple(f"{claim.text} Read as: {claim.reading}." for claim in CLAIMS)),
        Heading("On the paper's own Table 1", 3),
        Text(
            f"The paper prints one value for each cell and no spread. Each dataset has {TEST_IMAGES:,} test images "
            "(20 %)."
        ),
        *verdicts(check_paper()),
    ]
    paper = len(elements)
    for cells in regimes.values():
        groups = by_data(cells)
        accuracies = {(model, data): cell.sample for data, models in groups.items() for model, cell in models.items()}
        images = {data: next(iter(models.values())).test_images for data, models in groups.items()}
        shown = {data: images.get(data, TEST_IMAGES) for data in datasets_to_show(groups)}
        checked = check_claims(accuracies, shown)
        if any(one.was_measured for one in checked):
            elements += [Heading(f"Measured: {describe(cells[0].recipe)}", 3), *verdicts(checked)]
    return elements if len(elements) > paper else []


def verdicts(checked: list[Checked]) -> list[Element]:
    """A table of the claims that were measured, and a line for the others."""
    made = [one for one in checked if one.was_measured]
    rows = tuple(
        (
            one.claim.name,
            one.text(one.claim.weights),
            one.claim.weights.why,
            one.text(one.claim.method),
            one.claim.method.why,
        )
        for one in made
    )
    header = ("claim", "for these weights", "over test images", "for the method", "over seeds")
    elements: list[Element] = [Table(header, rows)] if made else []
    if absent := [one.claim.name for one in checked if one not in made]:
        elements.append(Text(f"Not measured, because a network is {MISSING}: {' '.join(absent)}"))
    return elements


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
