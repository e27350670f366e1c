"""The runs of a grid: their folders, and how far each one is.

Several grids may share one folder of runs. A run is found by its recipe, so a run that another grid or `tembed train`
started or finished counts too. A grid keeps its own notes about a run (recipe, log, last error, progress) beside the
runs in ``.grid``, so run folders look the same no matter what started them.
"""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tembed.common.errors import TembedError
from tembed.common.files import below, is_locked, make_folder, parse_json, read_file, read_json, write_file, write_json
from tembed.common.progress import Progress, Rate
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
        return self._note("log")

    @property
    def progress_path(self) -> Path:
        """Progress of the worker: see `ProgressFile`."""
        return self._note("progress")

    @property
    def error(self) -> Path:
        """The last error, until the run is tried again."""
        return self._note("error")

    def _note(self, kind: str) -> Path:
        return below(self.runs, ".grid") / f"{self.name}.{kind}"

    def prepare(self, checkpoint_seconds: float) -> list[str]:
        """Write the recipe to a file, and return the arguments of `tembed` that train it."""
        path = self._note("recipe.json")
        make_folder(path.parent)
        write_json(path, self.recipe.to_json())
        folder, seconds = str(self.run.folder), f"{checkpoint_seconds:g}"
        return ["train", "--recipe", str(path), "--out", folder, "--checkpoint-seconds", seconds]

    def state(self) -> State:
        """Read from disk on every call. A damaged folder counts as failed."""
        if self.failure() is not None:
            return "failed"
        if self.run.result is not None:
            return "finished"
        return "started" if self.run.recipe_path.exists() else "new"

    def failure(self) -> str | None:
        """The error of a failed run, in one line."""
        try:
            if self.run.result is not None:
                return None
        except TembedError as error:
            return str(error)
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
        """What `ProgressFile` wrote last: ``share`` (0 to 1) and numbers to show; empty if there is nothing."""
        try:
            note = parse_json(read_file(self.progress_path))
        except (OSError, ValueError, RecursionError):
            return {}
        return note if isinstance(note, dict) and isinstance(note.get("share"), float) else {}


class ProgressFile(Progress):
    """Writes how far the training is to a file once a second, and removes the file at the end."""

    VARIABLE = "TEMBED_PROGRESS"
    """The environment variable in which a grid names the file to its workers."""

    def __init__(self, path: Path):
        self.path, self.written = path, 0.0
        self.rate: Rate | None = None

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        now = time.monotonic()
        if task != "training" or now - self.written < 1:
            return
        self.written, self.rate = now, self.rate or Rate(done, now)
        note = {"share": done / total, **numbers, "images_per_second": self.rate.per_second(done, now)}
        with suppress(TembedError):  # such as a full disk
            write_file(self.path, json.dumps(note).encode(), sync=False)

    def close(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


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
