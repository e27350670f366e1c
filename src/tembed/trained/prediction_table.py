"""Predictions as lines of text, as CSV and as JSON."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tembed.common.arrays import probability
from tembed.common.errors import TembedError, one_line
from tembed.common.files import write_file, write_json
from tembed.trained.predicting import Prediction


def describe(one: Prediction, top: int) -> str:
    """One line: ``a.jpg: cat 0.91, dog 0.05; patches: cat 0.64; entropy 0.31``."""
    classes = ", ".join(f"{name} {probability(p)}" for name, p in one.top(top))
    patches = ""
    if one.patches is not None:
        differ = "" if one.agree else " (disagree)"
        patches = f"; patches: {one.patch_prediction} {probability(one.patches.max())}{differ}"
    return one_line(f"{one.name}: {classes}{patches}; entropy {one.entropy:.2f}")


def check_table(path: Path) -> None:
    """Raise `TembedError` before any work if `write_table` cannot write this file."""
    if path.suffix.lower() not in (".csv", ".json"):
        raise TembedError(f"`out` is {path}; it must end in .csv or .json")
    if not path.parent.is_dir():
        raise TembedError(f"`out` is {path}, but there is no folder {path.parent}: make it first")


def write_table(found: Sequence[Prediction], path: Path, top: int) -> None:
    """Write the predictions to a CSV or JSON file."""
    check_table(path)
    if path.suffix.lower() == ".json":
        write_json(path, [_record(one, top) for one in found])
        return
    count = min(top, len(found[0].classes)) if found else 0
    columns = [name for k in range(1, count + 1) for name in (f"class_{k}", f"probability_{k}")]
    has_patches = any(one.patches is not None for one in found)
    columns += ["patches_class", "patches_probability", "agree", "patch_entropy"] if has_patches else []
    content = io.StringIO()
    table = csv.writer(content, lineterminator="\n")
    table.writerow(["file", *columns, "entropy"])
    for one in found:
        row: list[Any] = [one.name]
        for name, p in one.top(count):
            row += [name, f"{p:.4f}"]
        if one.patches is not None and one.patch_entropy is not None:
            row += [one.patch_prediction, f"{one.patches.max():.4f}", "yes" if one.agree else "no"]
            row += [f"{one.patch_entropy:.4f}"]
        table.writerow([*row, f"{one.entropy:.4f}"])
    write_file(path, content.getvalue().encode("utf-8", "surrogateescape"))


def _record(one: Prediction, top: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        "file": one.name,
        "classes": [{"class": name, "probability": round(p, 6)} for name, p in one.top(top)],
        "entropy": round(one.entropy, 6),
    }
    if one.patches is not None and one.patch_entropy is not None:
        record["patches"] = {
            "class": one.patch_prediction,
            "probability": round(float(one.patches.max()), 6),
            "agree": one.agree,
            "entropy": round(one.patch_entropy, 6),
        }
    return record
