"""``tembed runs``: a table of runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tembed.cli.options import read_options

if TYPE_CHECKING:
    from tembed.lab.training.run import Run


@dataclass(frozen=True)
class Runs:
    """List the runs at or below a folder."""

    folder: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """where to look"""
    save: Path | None = None
    """write each finished run into this folder, as one small JSON file without the weights (default: only list them)"""


def main(arguments: list[str]) -> int:
    command = read_options(Runs, "tembed runs", arguments)
    from tembed.common.errors import TembedError, one_line
    from tembed.lab.training.run import find_runs

    if not command.folder.is_dir():
        raise TembedError(f"{command.folder} is not a folder; give the folder that holds the runs")
    rows: list[tuple[str, ...]] = [("run", "model", "data", "preset", "seed", "images", "epochs", "val %", "test %")]
    problems, finished = [], []
    for run in find_runs(command.folder):
        try:
            recipe, metrics, result = run.recipe, run.metrics, run.result
        except TembedError as error:
            problems.append(f"cannot be read: {run.folder}: {error}")
            continue
        finished += [run] if result else []
        best = max((record["val_accuracy"] for record in metrics), default=None)
        rows.append(
            (
                str(run.folder),
                recipe.model,
                recipe.data,
                recipe.preset,
                str(recipe.seed),
                str(recipe.train_images or "all"),
                f"{len(metrics)}/{recipe.epochs}",
                _percent(best),
                _percent(result["test_accuracy"] if result else None),
            )
        )
    rows = [tuple(map(one_line, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if command.save is not None:
        problems += _save(finished, command.save)
    for line in problems:
        print(line)
    return 1 if problems else 0


def _save(runs: "list[Run]", folder: Path) -> list[str]:
    """Write the summaries, and return a line for each run that could not be saved."""
    from tembed.common.errors import TembedError
    from tembed.lab.training.run import run_name, save_summary

    problems: list[str] = []
    names: dict[str, Run] = {}
    for run in runs:
        try:
            first = names.setdefault(run_name(run.recipe), run)
            if first is not run:
                raise TembedError(f"it has the same recipe as {first.folder}, which was saved instead")
            print(f"wrote {save_summary(run, folder)}")
        except TembedError as error:
            problems.append(f"not saved: {run.folder}: {error}")
    return problems


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
