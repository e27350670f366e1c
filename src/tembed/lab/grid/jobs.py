"""The runs of a grid: their folders, and how far each one is.

Several grids may share one folder of runs. A run is found by its recipe, so a run that another grid or `tembed train`
started or finished counts too. A grid keeps its own notes about a run (log, last error, progress) beside the runs in
``.grid``, so run folders look the same no matter what started them.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tembed.common.errors import TembedError
from tembed.common.files import is_locked, read_json, write_json
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, run_name

State = Literal["finished", "failed", "started", "new"]


@dataclass(frozen=True)
class GridRun:
    """One run of a grid: a complete recipe, and the folder ``runs / name``."""

    recipe: Recipe
    runs: Path
    name: str

    @property
    def run(self) -> Run:
        return Run(self.runs / self.name)

    @property
    def log(self) -> Path:
        """Output of the worker."""
        return note_path(self.runs, self.name, "log")

    @property
    def progress_path(self) -> Path:
        """Progress of the worker, as JSON; removed when it exits."""
        return note_path(self.runs, self.name, "progress")

    @property
    def error(self) -> Path:
        """The last error, until the run is tried again."""
        return note_path(self.runs, self.name, "error")

    def state(self) -> State:
        """Read from disk on every call. A damaged folder counts as failed."""
        if self.failure() is not None:
            return "failed"
        if self.run.result_path.exists():
            return "finished"
        return "started" if self.run.recipe_path.exists() else "new"

    def failure(self) -> str | None:
        """The error of a failed run, in one line."""
        try:
            result = self.run.result
            if result is not None:
                float(result["test_accuracy"])
                return None
        except TembedError as error:
            return str(error)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return f"{self.run.result_path} was not written by tembed: remove it and run the same command again"
        if not self.error.exists():
            return None
        try:
            return str(read_json(self.error)["error"])
        except (TembedError, LookupError, TypeError):
            return f"failed, but {self.error} cannot be read"

    def record_failure(self, error: str) -> None:
        """Save the error that ended the run. On a full disk it is only shown."""
        with suppress(TembedError):
            write_json(self.error, {"error": error})

    def clear_failure(self) -> None:
        """Allow the run to be tried again."""
        self.error.unlink(missing_ok=True)

    def in_use(self) -> bool:
        """Whether a process is training in the folder."""
        return is_locked(self.run.folder / "lock")

    def epochs_done(self) -> int:
        try:
            return len(self.run.metrics)
        except TembedError:
            return 0

    def read_progress(self) -> dict[str, Any]:
        """The worker's last progress note: ``share`` (0 to 1) and numbers to show; empty if there is none."""
        try:
            note = json.loads(self.progress_path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return note if isinstance(note, dict) and isinstance(note.get("share"), float) else {}


def note_path(runs: Path, name: str, kind: str) -> Path:
    """The file of one kind of note (log, progress, error) about the run ``name``."""
    return runs / ".grid" / f"{name}.{kind}"


def locate_runs(recipes: tuple[Recipe, ...], runs: Path) -> list[GridRun]:
    """One `GridRun` for each complete recipe: the folder in ``runs`` with a run of this recipe, or a new folder.

    A finished run wins over an unfinished one. A new folder is called `run_name`, with a number appended if that folder
    holds a run of another recipe, which older versions of `tembed train` could leave there.
    """
    existing: dict[Recipe, list[Run]] = {}
    for path in sorted(runs.glob("*/recipe.json")):
        try:
            existing.setdefault(Run(path.parent).recipe, []).append(Run(path.parent))
        except TembedError:
            continue  # if it is the folder of one of the recipes, that run fails with this error
    taken = {run.folder.name for found in existing.values() for run in found}
    located = []
    for recipe in recipes:
        name, found = run_name(recipe), existing.get(recipe, [])
        best = min(found, key=lambda run: (not run.result_path.exists(), run.folder.name != name), default=None)
        located.append(GridRun(recipe, runs, best.folder.name if best else _free_name(name, taken)))
    return located


def _free_name(name: str, taken: set[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free
