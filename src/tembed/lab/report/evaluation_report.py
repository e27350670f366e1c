"""An evaluation as files: a report with figures, all numbers, and a line for each image."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tembed.common.errors import counted
from tembed.common.files import below, write_file, write_json
from tembed.lab.analysis.figures import figure_png, image_png
from tembed.lab.report.document import Details, Element, Heading, Items, Picture, Table, Text, write_document
from tembed.lab.report.evaluation_figures import calibration_figure, confusion_figure
from tembed.lab.report.evaluation_sheet import worst_sheet
from tembed.lab.training.evaluation import Detailed
from tembed.lab.training.prediction_measures import ClassMeasure, Predictions

WORST = 24
"""Images on the contact sheet."""
CLASSES = 30
"""Classes in the table; the others are folded away below it."""
PAIRS = 10
"""Confusions in the report."""


def default_out(source: str, subset: str) -> Path:
    """``evaluation-<subset>`` inside a run folder; ``evaluation/<name>-<subset>`` for other weights."""
    path = Path(source)
    if path.is_dir():
        return below(path, f"evaluation-{subset}")
    return Path("evaluation") / f"{path.with_suffix('').as_posix().replace('/', '-').strip('-.')}-{subset}"


def write_evaluation(found: Detailed, out: str | Path) -> Path:
    """Write ``report.md``, ``report.html``, ``figures/``, ``evaluation.json`` and ``images.csv`` into ``out``.

    Returns the path of ``report.md``.
    """
    out = Path(out)
    report = write_document(elements(found), out, f"{found.network.description.model} on {found.data}")
    write_json(out / "evaluation.json", evaluation_record(found))
    write_file(out / "images.csv", image_table(found.predictions).encode("utf-8", "surrogateescape"))
    return report


def evaluation_record(found: Detailed) -> dict[str, Any]:
    """All numbers as plain JSON values; rows of ``confusion`` are true classes."""
    measured = found.predictions
    return {
        "model": found.network.description.model,
        "data": found.data,
        "subset": found.subset,
        **found.evaluation.to_json(),
        "calibration_error": measured.calibration_error,
        "overconfidence": measured.overconfidence,
        "calibration": [asdict(one) for one in measured.calibration()],
        "classes": [asdict(one) for one in measured.by_class()],
        "confusion": measured.confusion.tolist(),
    }


def image_table(found: Predictions) -> str:
    """CSV with a line for each image, the highest loss first."""
    content = io.StringIO()
    table = csv.writer(content, lineterminator="\n")
    patches = [] if found.patches is None else ["patches", "patches_probability"]
    table.writerow(["file", "class", "predicted", "probability", "loss", *patches])
    for k in found.worst(len(found)).tolist():
        predicted = int(found.predicted[k])
        row = [found.files[k], found.classes[found.labels[k]], found.classes[predicted]]
        row += [f"{found.probabilities[k, predicted]:.4f}", f"{found.losses[k]:.4f}"]
        if found.patches is not None:
            row += [found.classes[int(found.patches[k].argmax())], f"{found.patches[k].max():.4f}"]
        table.writerow(row)
    return content.getvalue()


def elements(found: Detailed) -> list[Element]:
    """The report."""
    one, measured, worst = found.evaluation, found.predictions, found.predictions.worst(WORST)
    sheet = image_png(worst_sheet(found, worst))
    classes = sorted(measured.by_class(), key=lambda row: (row.accuracy is None, row.accuracy))
    return [
        Heading(f"{found.network.description.model} on the {found.subset} images of {found.data}", 1),
        Items(tuple(summary(found))),
        Heading("Accuracy by class, the lowest first"),
        *class_tables(classes),
        Heading("Confusions"),
        Items(tuple(f"{a} taken for {b}: {counted(count, 'image')}" for a, b, count in measured.confusions(PAIRS)))
        if measured.confusions(1)
        else Text("There are none: every image is classified correctly."),
        Picture("confusion", figure_png(confusion_figure(measured)), "True and predicted classes."),
        Heading("Calibration"),
        Text(
            "The calibration error is the mean distance between confidence and accuracy, over "
            f"{len(measured.calibration())} bins of confidence. A network that says 0.8 should be right 80 % of the "
            f"time; this one has a mean confidence {100 * abs(measured.overconfidence):.1f} points "
            f"{'above' if measured.overconfidence > 0 else 'below'} its accuracy."
        ),
        Picture("calibration", figure_png(calibration_figure(measured)), "Accuracy of the images of each confidence."),
        Heading("The worst images"),
        Text(
            f"The {len(worst)} images with the highest loss"
            + (
                "."
                if one.patches is None
                else ", each beside the best class of its patches. If the patches see the true class "
                "and the head does not, look at what follows the block; if neither does, look at the label."
            )
            + " All images are in images.csv, in this order."
        ),
        Picture("worst", sheet, "The images with the highest loss."),
    ]


def class_tables(classes: Sequence[ClassMeasure]) -> list[Element]:
    """The measures of each class; of many, the first ones, and the others folded away."""
    header = ("class", "images", "accuracy %", "precision %", "most often taken for")
    first, others = (Table(header, tuple(map(_row, some))) for some in (classes[:CLASSES], classes[CLASSES:]))
    return [first, Details(f"The other {len(others.rows):,} classes", (others,))] if others.rows else [first]


def summary(found: Detailed) -> list[str]:
    """The main numbers, a line each."""
    one, measured = found.evaluation, found.predictions
    lines = [f"accuracy {100 * one.accuracy:.2f} %, cross-entropy {one.head:.4f}"]
    if one.patches is not None and one.patch_accuracy is not None:
        lines.append(f"patches alone: accuracy {100 * one.patch_accuracy:.2f} %, cross-entropy {one.patches:.4f}")
    sure = "too sure" if measured.overconfidence > 0 else "too cautious"
    lines.append(
        f"calibration error {100 * measured.calibration_error:.2f} % "
        f"({sure} by {100 * abs(measured.overconfidence):.2f} points)"
    )
    return lines


def _row(row: ClassMeasure) -> tuple[str, ...]:
    confused = "" if row.confused is None else f"{row.confused} ({row.confused_images:,})"
    return row.name, f"{row.images:,}", _percent(row.accuracy), _percent(row.precision), confused


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
