"""A judgement of explanations as files: a report with tables, and all numbers."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tembed.common.errors import counted
from tembed.common.files import write_json
from tembed.lab.analysis.attributions import NULLS
from tembed.lab.analysis.judging import COMPETITIVE, MEASURES, Judged, Row, interval
from tembed.lab.report.document import Element, Heading, Items, Table, Text, write_document

TABLES = {
    "Removed parts": (
        *("pointing", "energy", "completeness", "CSDC", "PC", "DC", "D"),
        *("correctness", "over area", "per pixel", "TS", "TS kept"),
    ),
    "Pixels, cells and weights": ("grid", "cells", "deletion", "insertion", "sanity all", "sanity top"),
}
"""The measures of each table."""


def write_judgement(found: Judged, out: Path) -> Path:
    """Write ``report.md``, ``report.html`` and ``judge.json`` into ``out``; return the path of ``report.md``."""
    report = write_document(elements(found), out, f"explanations of {found.model} on {found.data}")
    write_json(out / "judge.json", judgement_record(found))
    return report


def judgement_record(found: Judged) -> dict[str, Any]:
    """All numbers as plain JSON values."""
    return {
        "data": found.data,
        "model": found.model,
        "ours": found.ours,
        "images": found.images,
        "seeds": found.seeds,
        "left_out": found.left_out,
        "sizes": asdict(found.sizes),
        "rows": [
            {
                "source": row.source,
                "model": row.model,
                "seed": row.seed,
                "accuracy": row.accuracy,
                "competitive": row.competitive,
                "explanation": row.explanation,
                "explains": row.explains,
                "threshold": row.threshold,
                "locality": None if np.isnan(row.locality) else row.locality,
                "ms": row.ms,
                "measures": {name: _measured(values) for name, values in row.values.items()},
            }
            for row in found.rows
        ],
        "comparisons": [
            {
                "measure": one.measure,
                "rival": one.rival,
                "verdict": one.verdict,
                "differences": [[_finite(value) for value in values] for values in one.intervals],
            }
            for one in found.comparisons
        ],
    }


def _measured(values: Any) -> dict[str, Any]:
    mean, low, high = (_finite(value) for value in interval(values))
    dropped = int(np.isnan(values).sum())
    return {"mean": mean, "interval": [low, high], "n": len(values) - dropped, "dropped": dropped}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def elements(found: Judged) -> list[Element]:
    """The report."""
    present = {name for row in found.rows for name in row.values}
    tables: list[Element] = []
    for title, names in TABLES.items():
        if shown := [name for name in names if name in present]:
            tables += [Heading(title), _table(found, shown, last=title == list(TABLES)[-1])]
    return [
        Heading(f"Explanations of {found.model} on {found.data}", 1),
        Text(
            f"{found.images} test images, {counted(len(found.seeds), 'seed')} of each network; nothing was chosen on "
            "these images. Thresholds were chosen on validation images. Maps are of the true class. Our map is "
            f"{found.ours} of {found.model}."
        ),
        Text(_removals(found)),
        Heading("Where our map is ahead"),
        Text(
            "Ahead: the paired 95 % interval over images is above zero in each seed; behind: below zero in each seed; "
            "level: neither. judge.json has every comparison. Null explanations see no network."
        ),
        Table(
            ("measure", "ours", "verdict", "behind"),
            tuple(_verdict(found, name) for name in MEASURES if name in present),
        ),
        *tables,
        Heading("The measures"),
        Items(
            tuple(
                f"{one.name}: {one.what}{'' if one.better > 0 else '; lower is better'}{_dropped(found, one.name)}"
                for one in MEASURES.values()
                if one.name in present
            )
        ),
    ]


def _removals(found: Judged) -> str:
    if found.left_out == "nothing":
        return (
            "Caution: the network was trained on whole images only, so what it says about images with something "
            "removed may be chance. Train it with left_out parts or cells."
        )
    return f"Half of the training images lacked {found.left_out}, so the network knows such images."


def _ours(found: Judged) -> list[Row]:
    return [row for row in found.rows if row.model == found.model and row.explanation == found.ours]


def _mean(rows: Sequence[Row], name: str) -> str:
    """The mean over seeds of the mean over images."""
    values = [interval(row.values[name])[0] for row in rows if name in row.values]
    return f"{np.mean(values):.2f}" if values else "-"


def _verdict(found: Judged, name: str) -> tuple[str, ...]:
    made = [one for one in found.comparisons if one.measure == name]
    behind = ", ".join(one.rival for one in made if one.verdict == "behind")
    ahead = sum(one.verdict == "ahead" for one in made)
    verdict = "ahead of all" if ahead == len(made) else f"ahead of {ahead} of {len(made)}"
    return name, _mean(_ours(found), name), verdict, behind or "-"


def _table(found: Judged, names: Sequence[str], *, last: bool) -> Table:
    """A line for each map of each network, null explanations last."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found.rows:
        groups.setdefault((row.model, row.explanation), []).append(row)
    lines = []
    for (model, explanation), rows in sorted(groups.items(), key=lambda group: group[0][1] in NULLS):
        counts = "" if all(row.competitive for row in rows) else ", not competitive"
        accuracy = f"{100 * np.mean([row.accuracy for row in rows]):.1f}{counts}"
        first = explanation if explanation in NULLS else f"{explanation} of {model}"
        near = float(np.mean([row.locality for row in rows]))  # not defined for maps that are always the same
        own = ["-" if np.isnan(near) else f"{near:.2f}", f"{np.mean([row.ms for row in rows]):.1f}"]
        cells = [_mean(rows, name) for name in names]
        lines.append((first, rows[0].explains, *([accuracy] if last else []), *cells, *(own if last else [])))
    header = ("map", "explains", *(["accuracy %"] if last else []), *names, *(["locality", "ms"] if last else []))
    return Table(header, tuple(lines))


def _dropped(found: Judged, name: str) -> str:
    rows = [row.values[name] for row in _ours(found) if name in row.values]
    total, dropped = sum(map(len, rows)), sum(int(np.isnan(row).sum()) for row in rows)
    return f" (n = {total - dropped:,}{f', {dropped:,} dropped' if dropped else ''})" if rows else ""


def summary(found: Judged) -> list[str]:
    """Lines for the terminal."""
    weak = sorted({row.model for row in found.rows if not row.competitive})
    lines = [
        f"{found.ours} of {found.model} on {found.data}: {found.images} images, {counted(len(found.seeds), 'seed')}"
    ]
    for name in dict.fromkeys(one.measure for one in found.comparisons):
        _, ours, verdict, behind = _verdict(found, name)
        lines.append(f"{name:<13}{ours:>6}  {verdict}{'' if behind == '-' else f'; behind {behind}'}")
    if weak:
        lines.append(
            f"not competitive, more than {100 * COMPETITIVE:.0f} points below the network without a block: "
            f"{', '.join(weak)}"
        )
    return lines
