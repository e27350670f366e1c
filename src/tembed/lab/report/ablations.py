"""The figures of a report: lambda, maximizers and depth."""

import dataclasses
import itertools
from typing import Any

from tembed.common.palette import AUX, BASELINE, BASELINE_SHADES, BLOCK, BLOCK_SHADES, OTHERS
from tembed.lab.claims.accuracies import Checked, judged
from tembed.lab.claims.claim import corrected
from tembed.lab.claims.contrast import ON_PAR, Contrast
from tembed.lab.grid.cells import Cell, data_title, describe, model_title, network_title
from tembed.lab.report.charts import Series, chart
from tembed.lab.report.document import Element, Heading, Picture, Table, Text
from tembed.lab.report.tables import MISSING, Regimes, by_data, score, verdicts
from tembed.lab.training.recipe import Recipe
from tembed.models.registry import model_info
from tembed.paper import ACCURACY, BATCH_SIZES, DATASETS, LABELS, LAMBDA

MAXIMIZERS = {
    "bn-relu": BASELINE,
    "entropic": OTHERS[0],
    "perturbed": OTHERS[1],
    "perturbed-sampled": OTHERS[2],
}
"""The maximizers of Fig. 3 and their colours."""
ON_PAR_WITH_BN_RELU = {"entropic": "Margin soft-max", "perturbed": "The perturbed maximizer"}
"""The maximizers of which the paper says so (§4.1)."""
DEPTHS = {
    "baseline": (BASELINE, {2.0: "rn26", 3.0: "rn38"}),
    "with block": (BLOCK, {2.0: "rn26-embed", 3.0: "rn38-embed"}),
}
ACCURACY_LABEL = "test accuracy, %"


def network_colours(cells: list[Cell]) -> dict[str, str]:
    """The colour of each network by its title, the same in all figures of a report.

    Baselines are grey, networks with the block have the accent colour, and deep supervision is blue. Variants of a
    network of Table 1, such as another lambda, have relatives of these colours. The maximizers of RN20 have colours of
    their own.
    """
    colours: dict[str, str] = {}
    shades = {"embed": itertools.cycle(BLOCK_SHADES), None: itertools.cycle(BASELINE_SHADES)}
    blues = itertools.cycle(OTHERS[1:])
    for cell in cells:
        title, model = network_title(cell.recipe), cell.recipe.model
        if title in colours:
            continue
        block = model_info(model).block
        if model == "rn20" and cell.recipe.maximizer in MAXIMIZERS:
            colours[title] = MAXIMIZERS[cell.recipe.maximizer]
        elif cell.is_standard and model in LABELS and model != "dn100-embed-cat":
            colours[title] = {"embed": BLOCK, "aux": AUX, None: BASELINE}[block]
        else:
            colours[title] = next(blues if block == "aux" else shades[block])
    return colours


def lambda_figure(cells: list[Cell]) -> list[Element]:
    """Fig. 4: accuracy over lambda, for every network measured at two values or more; nothing if there is none."""
    elements: list[Element] = [
        Heading("Lambda (Fig. 4)"),
        Text("The paper prints no numbers for this figure. It says that small values are worse and 0.5 is the best."),
    ]
    groups = _differing_in(("weight",), [cell for cell in cells if cell.recipe.weight is not None])
    groups = [group for group in groups if len(group) > 1]
    for number, group in enumerate(groups, 1):
        group.sort(key=lambda cell: cell.recipe.weight or 0.0)
        recipe = group[0].recipe
        best = max(group, key=lambda cell: cell.sample.mean)
        caption = (
            f"{model_title(recipe.model)} on {data_title(recipe.data)}, {describe(recipe)}. Bars: one standard "
            f"deviation over seeds. Highest mean: lambda {best.recipe.weight:g} (n = {best.sample.n})."
        )
        points = tuple(_point(cell.recipe.weight or 0.0, cell) for cell in group)
        colour = BLOCK if model_info(recipe.model).block == "embed" else AUX
        svg = chart([Series(model_title(recipe.model), points, colour)], "lambda", ACCURACY_LABEL)
        rows = tuple((f"{cell.recipe.weight:g}", score(cell.sample), str(cell.sample.n)) for cell in group)
        elements += [Picture(f"lambda-{number}", svg, caption), Table(("lambda", "measured", "n"), rows)]
        elements += verdicts([_best_lambda(group)])
    return elements if groups else []


def maximizer_figure(cells: list[Cell]) -> list[Element]:
    """Fig. 3: the maximizer after the 3x3 convolutions of RN20, by batch size; nothing if RN20 was not measured."""
    elements: list[Element] = [
        Heading("Maximizers (Fig. 3)"),
        Text(
            "The paper prints no numbers for this figure. It says that the methods perform on par, and leaves out "
            "perturbed at batch 32. Here perturbed is exact; perturbed-sampled is the paper's estimate with 600 "
            "samples."
        ),
    ]
    measured = [cell for cell in cells if cell.recipe.model == "rn20" and _has_default_constants(cell.recipe)]
    groups = _differing_in(("maximizer", "mu", "eta", "eps", "constants", "batch_size"), measured)
    for number, group in enumerate(groups, 1):
        found = {(str(cell.recipe.maximizer), cell.recipe.batch_size): cell for cell in group}
        registered = dict.fromkeys(name for name, _ in found if name not in MAXIMIZERS)
        colours = MAXIMIZERS | dict(zip(registered, itertools.cycle(OTHERS[3:]), strict=False))
        batches = sorted({*BATCH_SIZES, *(batch for _, batch in found)})
        rows, series = [], []
        for index, (name, colour) in enumerate(colours.items()):
            rows.append((name, *(_score(found.get((name, batch))) for batch in batches)))
            shift = (index - (len(colours) - 1) / 2) * 0.12  # side by side
            there = [(x + shift, found[name, batch]) for x, batch in enumerate(batches) if (name, batch) in found]
            if there:
                series.append(Series(name, tuple(_point(x, cell) for x, cell in there), colour, joined=False))
        recipe = group[0].recipe
        caption = (
            f"RN20 on {data_title(recipe.data)}, {describe(recipe, without=('batch_size',))}. "
            "Bars: one standard deviation."
        )
        if len(group) > 1:
            ticks = {float(x): str(batch) for x, batch in enumerate(batches)}
            elements.append(
                Picture(f"maximizers-{number}", chart(series, "batch size", ACCURACY_LABEL, ticks), caption)
            )
        else:
            elements.append(Text(caption))
        elements.append(Table(("maximizer", *(f"batch {batch}" for batch in batches)), tuple(rows)))
        elements += verdicts(_on_par(found, batches))
    return elements if groups else []


def depth_figure(regimes: Regimes) -> list[Element]:
    """§4.1, depth: RN26 and RN38 with and without the block, beside the paper's numbers; nothing without a pair."""
    elements: list[Element] = [Heading("Depth: two or three units per stage")]
    for cells in regimes.values():
        for data, models in by_data(cells).items():
            series = []
            for name, (colour, networks) in DEPTHS.items():
                points = tuple(_point(x, models[model]) for x, model in networks.items() if model in models)
                if points:
                    series.append(Series(f"{name}, measured", points, colour))
            if not any(len(s.points) > 1 for s in series):  # nothing to compare
                continue
            for name, (colour, networks) in DEPTHS.items():
                printed = [(x, ACCURACY[m, data], 0.0) for x, m in networks.items() if (m, data) in ACCURACY]
                if printed:
                    series.append(Series(f"{name}, paper", tuple(printed), colour, measured=False))
            caption = f"{data_title(data)}, {describe(cells[0].recipe)}."
            if data in DATASETS:
                caption += " Dashed: the paper's Table 1."
            if absent := [LABELS[m] for _, networks in DEPTHS.values() for m in networks.values() if m not in models]:
                caption += f" {MISSING.capitalize()}: {', '.join(absent)}."
            ticks = {2.0: "2 (RN26)", 3.0: "3 (RN38)"}
            svg = chart(series, "units per stage", ACCURACY_LABEL, ticks)
            elements.append(Picture(f"depth-{len(elements)}", svg, caption))
    return elements if len(elements) > 1 else []


def _best_lambda(group: list[Cell]) -> Checked:
    """The claim that the paper's lambda is better than every other measured value."""
    ours = [cell for cell in group if cell.recipe.weight == LAMBDA]
    others = [cell for cell in group if cell.recipe.weight != LAMBDA] if ours else []
    contrasts = [
        Contrast(f"lambda {LAMBDA} > {cell.recipe.weight:g}", (ours[0].sample,), (cell.sample,), cell.test_images)
        for cell in others
    ]
    text = f"Equal weights of the losses (lambda {LAMBDA}) are the best."
    return Checked(judged(text, "it beats every other measured value", contrasts))


def _on_par(found: dict[tuple[str, int], Cell], batches: list[int]) -> list[Checked]:
    """The claim for each soft maximizer that it is on par with BN-ReLU at every batch size."""
    claims, absent = [], []
    for name, title in ON_PAR_WITH_BN_RELU.items():
        both = [batch for batch in batches if {(name, batch), ("bn-relu", batch)} <= set(found)]
        contrasts = [
            Contrast(
                f"{name} - bn-relu at batch {batch}",
                (found[name, batch].sample,),
                (found["bn-relu", batch].sample,),
                found[name, batch].test_images,
                on_par=True,
            )
            for batch in both
        ]
        absent.append(len(batches) - len(both))
        text = f"{title} performs on par with BN-ReLU (within {ON_PAR:g} point)."
        claims.append(judged(text, "at every batch size", contrasts, missing=absent[-1]))
    return [Checked(claim, missing) for claim, missing in zip(corrected(claims), absent, strict=True)]


def _differing_in(fields: tuple[str, ...], cells: list[Cell]) -> list[list[Cell]]:
    """Groups of cells that differ in nothing but these fields."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        rest = tuple((k, v) for k, v in dataclasses.asdict(cell.recipe).items() if k not in fields)
        groups.setdefault((rest, cell.measured_on), []).append(cell)
    return list(groups.values())


def _has_default_constants(recipe: Recipe) -> bool:
    return recipe == dataclasses.replace(recipe, mu=None, eta=None, eps=None, constants=()).complete()


def _point(x: float, cell: Cell) -> tuple[float, float, float]:
    return x, cell.sample.mean, cell.sample.std or 0.0


def _score(cell: Cell | None) -> str:
    return MISSING if cell is None else f"{score(cell.sample)} (n = {cell.sample.n})"
