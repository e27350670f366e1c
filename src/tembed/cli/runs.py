"""``tembed runs``: a table of runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Runs:
    """List the runs at or below a folder."""

    folder: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """where to look"""
    save: Path | None = None
    """write each finished run into this folder, as one small JSON file without the weights"""


def main(arguments: list[str]) -> int:
    command = tyro.cli(Runs, prog="tembed runs", args=arguments)
    from tembed.errors import TembedError
    from tembed.training.run import find_runs

    if not command.folder.is_dir():
        raise TembedError(f"{command.folder} is not a folder; give the one that holds the runs")
    rows = [("run", "model", "data", "recipe", "seed", "images", "epochs", "val %", "test %")]
    broken, finished = [], []
    for run in find_runs(command.folder):
        try:
            recipe, metrics, result = run.recipe, run.metrics, run.result
            best = max((record["val_accuracy"] for record in metrics), default=None)
            test = result["test_accuracy"] if result else None
        except (TembedError, LookupError, TypeError) as error:
            broken.append(f"{run.folder}: {error}")
            continue
        finished += [run] if result else []
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
                _percent(test),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if command.save is not None:
        from tembed.training.run import save_summary

        for run in finished:
            print(f"wrote {save_summary(run, command.save)}")
    for line in broken:
        print(f"cannot be read: {line}")
    return 1 if broken else 0


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
