"""Training curves: accuracy, losses and the share of f' by epoch."""

from typing import Any, NamedTuple

from tembed.lab.grid.cells import Cell, data_title, describe, network_title
from tembed.lab.report.ablations import network_colours
from tembed.lab.report.charts import Series, chart
from tembed.lab.report.document import Details, Element, Heading, Picture, Table, Text
from tembed.lab.report.tables import MISSING

FAMILY_LINES = {"rn26": "-", "rn38": "--", "wrn16": "-.", "dn100": ":"}
"""The line of each family of networks; the colour says whether it has the block."""


LAST = 10
"""The epochs at the end whose mean is shown, for runs of twice as many. At a constant rate the best is partly luck."""


class Quantity(NamedTuple):
    """What a figure shows: metrics of the validation images, and those of the training images if there are any."""

    name: str
    title: str
    y_label: str
    validation: str
    training: str | None
    scale: float = 1.0
    from_zero: bool = False


ACCURACY = Quantity("curves", "accuracy", "accuracy, %", "val_accuracy", "accuracy", 100)
FOLDED = (
    Quantity("head-loss", "loss of the head", "cross-entropy of the head", "val_head", "head"),
    Quantity("patch-loss", "mean loss of the patches", "cross-entropy of patches", "val_patches", "patches"),
    Quantity(
        "share", "share of f' in what the block writes", "share of the variance, %", "variance_share", None, 100, True
    ),
)


def training_curves(cells: list[Cell]) -> list[Element]:
    """Figures for each dataset and regime: accuracy, and folded away below it the losses and the share of f'."""
    elements: list[Element] = [Heading("Training curves")]
    colours = network_colours(cells)
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        if len(cell.curve("val_accuracy")) > 1:
            groups.setdefault((cell.regime, cell.measured_on), []).append(cell)
    for number, group in enumerate(groups.values(), 1):
        recipe = group[0].recipe
        elements.append(Heading(f"{data_title(recipe.data)}, {describe(recipe)}", 3))
        elements += _figure(ACCURACY, number, group, colours)
        elements.append(_validation(group))
        folded = [figure for quantity in FOLDED for figure in _figure(quantity, number, group, colours)]
        if folded:
            elements.append(Details("Losses and the share of f'", tuple(folded)))
    return elements if groups else [*elements, Text(f"{MISSING}: no run of two or more epochs is finished.")]


def _validation(cells: list[Cell]) -> Table:
    """The validation accuracy of each network: its best epoch and its last ones, the mean over the seeds."""
    rows = []
    for cell in cells:
        values = [value for _, value, _ in cell.curve("val_accuracy", 100)]
        best = [max(100 * epoch["val_accuracy"] for epoch in record.curve) for record in cell.records]
        share = cell.curve("variance_share", 100)
        rows.append(
            (
                network_title(cell.recipe),
                str(cell.sample.n),
                f"{sum(best) / len(best):.2f}",
                f"{sum(values[-LAST:]) / LAST:.2f}" if len(values) >= 2 * LAST else "-",
                f"{share[-1][1]:.1f}" if share else "-",
            )
        )
    header = ("network", "n", "best validation", f"mean of the last {LAST} epochs", "share of f' at the end")
    return Table(header, tuple(rows))


def _figure(quantity: Quantity, number: int, cells: list[Cell], colours: dict[str, str]) -> list[Element]:
    """One figure, or none if no run recorded the quantity."""
    series, has_training = [], False
    for cell in cells:
        title = network_title(cell.recipe)
        line = FAMILY_LINES.get(cell.recipe.model.partition("-")[0], "-")
        points = cell.curve(quantity.validation, quantity.scale)
        if not points:
            continue
        series.append(Series(f"{title} (n = {cell.sample.n})", points, colours[title], line, dots=False))
        if quantity.training is not None and (points := cell.curve(quantity.training, quantity.scale)):
            series.append(Series("", points, colours[title], line, dots=False, thin=True))
            has_training = True
    if not series:
        return []
    images = "Thick: validation images. Thin: training images." if has_training else "Validation images."
    caption = f"{quantity.title[0].upper()}{quantity.title[1:]} after each epoch, mean over the seeds. {images}"
    svg = chart(series, "epoch", quantity.y_label, from_zero=quantity.from_zero)
    return [Picture(f"{quantity.name}-{number}", svg, caption)]
