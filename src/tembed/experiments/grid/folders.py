"""Where the runs of a grid lie, and how far each is.

All grids may share one folder of runs. A run's folder is found by its recipe, so one that another grid, or `tembed
train`, has begun or finished is taken as it is. What a grid notes about a run (its log, its last error, how far it is)
lies beside the runs in ``.grid``, so that run folders stay ordinary ones.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tembed.errors import TembedError
from tembed.files import read_json, write_json
from tembed.training.recipe import WEIGHT, Recipe
from tembed.training.run import Run

State = Literal["finished", "failed", "begun", "new"]


@dataclass(frozen=True)
class Place:
    """One run of a grid: its recipe and its folder in ``runs``."""

    recipe: Recipe
    runs: Path
    name: str

    @property
    def run(self) -> Run:
        return Run(self.runs / self.name)

    @property
    def log(self) -> Path:
        """What the run says."""
        return self._note("log")

    @property
    def progress(self) -> Path:
        """How far it is, while it goes on."""
        return self._note("progress")

    @property
    def error(self) -> Path:
        """Why it failed, until it is tried again."""
        return self._note("error")

    def _note(self, kind: str) -> Path:
        return self.runs / ".grid" / f"{self.name}.{kind}"

    def state(self) -> State:
        """Read from the disk each time. A damaged folder counts as failed."""
        if self.failure() is not None:
            return "failed"
        if self.run.result_path.exists():
            return "finished"
        return "begun" if self.run.recipe_path.exists() else "new"

    def failure(self) -> str | None:
        """The error of a run that failed, in one line."""
        try:
            result = self.run.result
            if result is not None:
                float(result["test_accuracy"])
                return None
        except TembedError as error:
            return str(error)
        except (LookupError, TypeError, ValueError):
            return f"{self.run.result_path} is not what tembed wrote: remove it and run the same command again"
        if not self.error.exists():
            return None
        try:
            return str(read_json(self.error)["error"])
        except (TembedError, LookupError, TypeError):
            return f"failed, and {self.error} cannot be read"

    def fail(self, error: str) -> None:
        """Note why the run failed."""
        write_json(self.error, {"error": error})

    def forget_failure(self) -> None:
        """Let the run be tried again."""
        self.error.unlink(missing_ok=True)

    def in_use(self) -> bool:
        """Whether some process trains in the folder now."""
        try:
            descriptor = os.open(self.run.folder / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def epochs_done(self) -> int:
        try:
            return len(self.run.metrics)
        except TembedError:
            return 0

    def heard(self) -> dict[str, Any]:
        """What the run last told of its progress; empty if nothing."""
        try:
            told = json.loads(self.progress.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) and isinstance(told.get("share"), float) else {}


def find_places(recipes: tuple[Recipe, ...], runs: Path) -> list[Place]:
    """A place for each complete recipe: the folder in ``runs`` that holds a run of it, else a new one."""
    there: dict[Recipe, list[Run]] = {}
    for path in sorted(runs.glob("*/recipe.json")):
        try:
            there.setdefault(Run(path.parent).recipe, []).append(Run(path.parent))
        except TembedError:
            continue  # met again when its own name is asked for
    places = []
    for recipe in recipes:
        name, found = folder_name(recipe), there.get(recipe, [])
        best = min(found, key=lambda run: (run.result_path.exists() is False, run.folder.name != name), default=None)
        places.append(Place(recipe, runs, best.folder.name if best else name))
    return places


def folder_name(recipe: Recipe) -> str:
    """``<model>-<data>-<preset><epochs>-s<seed>-<hash>`` of a complete recipe, and between them what is unusual in it.

    The hash is of all fields that are not at their defaults. So a field that a later version adds changes no name.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe)}
    told = {key: value for key, value in dataclasses.asdict(recipe).items() if value != defaults[key]}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]
    unusual = [str(recipe.maximizer)] if recipe.maximizer not in (None, "bn-relu") else []
    unusual += [f"lambda{recipe.weight:g}"] if recipe.weight not in (None, WEIGHT) else []
    unusual += [f"b{recipe.batch_size}"] if recipe.preset == "own" else []
    marks = "-".join([recipe.model, *unusual])
    return f"{marks}-{recipe.data}-{recipe.preset}{recipe.epochs}-s{recipe.seed}-{digest}"
