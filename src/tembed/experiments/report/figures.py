"""The figures of a report: lambda, maximizers, depth, and training curves."""

import dataclasses
from typing import Any

from tembed.experiments.report.cells import Cell, describe, network
from tembed.experiments.report.tables import MISSING, Regimes, by_data, score
from tembed.paper import DATASETS, LABELS, TABLE1
from tembed.reporting.charts import Series, chart
from tembed.reporting.document import Block, Figure, Heading, Table, Text
from tembed.training.recipe import Recipe

MAXIMIZERS = ("bn-relu", "entropic", "perturbed", "perturbed-sampled")
BATCHES = (8, 32)
ACCURACY = "test accuracy, %"


def lambda_figure(cells: list[Cell]) -> list[Block]:
    """Fig. 4: accuracy over lambda, for every network measured at two values or more."""
    blocks: list[Block] = [
        Heading("Lambda (Fig. 4)"),
        Text("The paper prints no numbers for this figure; it says that small values are worse and 0.5 is the best."),
    ]
    groups = _agreeing([cell for cell in cells if cell.recipe.weight is not None], ("weight",))
    shown = 0
    for number, group in enumerate(group for group in groups if len(group) > 1):
        group.sort(key=lambda cell: cell.recipe.weight or 0.0)
        recipe, shown = group[0].recipe, shown + 1
        points = tuple(_point(cell.recipe.weight or 0.0, cell) for cell in group)
        best = max(group, key=lambda cell: cell.sample.mean)
        rows = tuple((f"{cell.recipe.weight:g}", score(cell.sample), str(cell.sample.n)) for cell in group)
        what = f"{LABELS.get(recipe.model, recipe.model)} on {_title(recipe)}, {describe(recipe)}"
        caption = (
            f"{what}. Bars: one standard deviation over seeds. Best measured: lambda {best.recipe.weight:g}"
            f"{', from one seed' if best.sample.n == 1 else ''}."
        )
        svg = chart([Series(LABELS.get(recipe.model, recipe.model), points, number)], "lambda", ACCURACY)
        blocks += [Figure(f"lambda-{shown}", svg, caption), Table(("lambda", "measured", "n"), rows)]
    return blocks if shown else [*blocks, Text(f"{MISSING}: no network was measured at two values of lambda.")]


def maximizer_figure(cells: list[Cell]) -> list[Block]:
    """Fig. 3: what follows the 3x3 convolutions of RN20, by batch size."""
    blocks: list[Block] = [
        Heading("Maximizers (Fig. 3)"),
        Text(
            "The paper prints no numbers for this figure; it says that the methods perform on par, and leaves "
            "perturbed out at batch 32. perturbed is exact here; perturbed-sampled is the paper's estimate, 600 draws."
        ),
    ]
    swapped = [cell for cell in cells if cell.recipe.model == "rn20" and _usual_constants(cell.recipe)]
    groups = _agreeing(swapped, ("maximizer", "mu", "eta", "eps", "batch_size"))
    for number, group in enumerate(groups, 1):
        found: dict[tuple[str | None, int], Cell] = {
            (cell.recipe.maximizer, cell.recipe.batch_size): cell for cell in group
        }
        batches = sorted({*BATCHES, *(cell.recipe.batch_size for cell in group)})
        rows, series = [], []
        for colour, name in enumerate(MAXIMIZERS):
            mine = [(i, found[name, batch]) for i, batch in enumerate(batches) if (name, batch) in found]
            rows.append((name, *(_score(found.get((name, batch))) for batch in batches)))
            shift = (colour - (len(MAXIMIZERS) - 1) / 2) * 0.12  # side by side
            if mine:
                series.append(Series(name, tuple(_point(i + shift, cell) for i, cell in mine), colour, joined=False))
        recipe = group[0].recipe
        caption = (
            f"RN20 on {_title(recipe)}, {describe(recipe, without=('batch_size',))}. Bars: one standard deviation."
        )
        places = {float(i): f"batch {batch}" for i, batch in enumerate(batches)}
        blocks.append(Figure(f"maximizers-{number}", chart(series, "batch size", ACCURACY, places), caption))
        blocks.append(Table(("maximizer", *(f"batch {batch}" for batch in batches)), tuple(rows)))
    return blocks if groups else [*blocks, Text(f"{MISSING}: no run of RN20 is finished.")]


def depth_figure(regimes: Regimes) -> list[Block]:
    """§4.1, number of blocks: RN26 and RN38 with and without the block, and the paper's."""
    blocks: list[Block] = [Heading("Depth: two or three units a stage")]
    shown = 0
    for cells in regimes.values():
        for data, models in by_data(cells).items():
            series = []
            for colour, (name, pair) in enumerate(_DEPTHS.items()):
                points = tuple(_point(x, models[model]) for x, model in pair if model in models)
                if points:
                    series.append(Series(f"{name}, measured", points, colour))
            if not series:
                continue
            shown += 1
            absent = [LABELS[m] for pair in _DEPTHS.values() for _, m in pair if m not in models]
            for colour, (name, pair) in enumerate(_DEPTHS.items()):
                printed = tuple((x, TABLE1[model, data], 0.0) for x, model in pair if (model, data) in TABLE1)
                if printed:
                    series.append(Series(f"{name}, paper", printed, colour, dashed=True))
            caption = f"{DATASETS.get(data, data)}, {describe(cells[0].recipe)}."
            if data in DATASETS:
                caption += " Dashed: the paper's Table 1."
            if absent:
                caption += f" {MISSING.capitalize()}: {', '.join(absent)}."
            names = {2.0: "2 (RN26)", 3.0: "3 (RN38)"}
            blocks.append(Figure(f"depth-{shown}", chart(series, "units a stage", ACCURACY, names), caption))
    return blocks if shown else [*blocks, Text(f"{MISSING}: no run of RN26 or RN38 is finished.")]


def curves(cells: list[Cell]) -> list[Block]:
    """Validation accuracy by epoch, a figure for each dataset and regime."""
    blocks: list[Block] = [Heading("Training curves")]
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.regime, cell.measured_on), []).append(cell)
    for number, group in enumerate(groups.values(), 1):
        series = [
            Series(
                f"{network(cell.recipe)} (n = {cell.sample.n})",
                tuple((x, y, 0.0) for x, y in cell.curve()),
                colour,
                dots=len(cell.curve()) == 1,
            )
            for colour, cell in enumerate(group)
            if cell.curve()
        ]
        if series:
            recipe = group[0].recipe
            caption = (
                f"{_title(recipe)}, {describe(recipe)}: validation accuracy after each epoch, mean over the seeds."
            )
            blocks.append(Figure(f"curves-{number}", chart(series, "epoch", "validation accuracy, %"), caption))
    return blocks if len(blocks) > 1 else [*blocks, Text(f"{MISSING}: no run is finished.")]


_DEPTHS = {
    "baseline": ((2.0, "rn26"), (3.0, "rn38")),
    "with block": ((2.0, "rn26-embed"), (3.0, "rn38-embed")),
}


def _agreeing(cells: list[Cell], apart_from: tuple[str, ...]) -> list[list[Cell]]:
    """Cells that differ in these fields only, together."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        rest = tuple((k, v) for k, v in dataclasses.asdict(cell.recipe).items() if k not in apart_from)
        groups.setdefault((rest, cell.measured_on), []).append(cell)
    return list(groups.values())


def _usual_constants(recipe: Recipe) -> bool:
    return recipe == dataclasses.replace(recipe, mu=None, eta=None, eps=None).complete()


def _point(x: float, cell: Cell) -> tuple[float, float, float]:
    return x, cell.sample.mean, cell.sample.std or 0.0


def _score(cell: Cell | None) -> str:
    return MISSING if cell is None else f"{score(cell.sample)} (n = {cell.sample.n})"


def _title(recipe: Recipe) -> str:
    return DATASETS.get(recipe.data, recipe.data)
