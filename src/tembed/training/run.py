"""A run folder: what was asked for, where, what came of it.

::

    recipe.json        the complete recipe
    environment.json   data hash; versions, machine, hardware, threads and commit of each start
    metrics.jsonl      a line for each epoch
    best.safetensors   the weights of the best epoch so far
    checkpoints/       the state to go on from, and the one before
    result.json        at the end: the best epoch, and its test accuracy
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tembed.errors import TembedError
from tembed.files import explained, read_json, write_file, write_json
from tembed.training.checkpoints import Checkpoints
from tembed.training.recipe import Recipe

CLOCK_FIELDS = ("seconds", "total_seconds", "images_per_second")
"""What of metrics and results is measured by a clock, and so differs from run to run."""


@dataclass(frozen=True)
class Run:
    """A run by its folder."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """A run that exists."""
        run = cls(Path(folder))
        if not run.recipe_path.is_file():
            raise TembedError(f"{folder} is not a run folder: it has no recipe.json")
        return run

    @property
    def recipe_path(self) -> Path:
        return self.folder / "recipe.json"

    @property
    def metrics_path(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def best_path(self) -> Path:
        return self.folder / "best.safetensors"

    @property
    def result_path(self) -> Path:
        return self.folder / "result.json"

    @property
    def environment_path(self) -> Path:
        return self.folder / "environment.json"

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / "checkpoints")

    @property
    def recipe(self) -> Recipe:
        try:
            return Recipe.from_plain(read_json(self.recipe_path))
        except TembedError as error:
            raise TembedError(f"{self.recipe_path}: {error}") from None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The epochs done so far, one record each."""
        if not self.metrics_path.exists():
            return []
        try:
            return [json.loads(line) for line in self.metrics_path.read_text("utf-8").splitlines()]
        except ValueError as error:
            raise TembedError(
                f"{self.metrics_path} is damaged ({error}): run the same command to write it anew"
            ) from None

    @property
    def result(self) -> dict[str, Any] | None:
        """The end of the run, or None before it."""
        return read_json(self.result_path) if self.result_path.exists() else None

    def claim(self, recipe: Recipe) -> None:
        """Make this the folder of ``recipe``, or check that it is; `TembedError` says what differs."""
        if self.recipe_path.exists():
            differing = recipe.differences(self.recipe)
            if differing:
                raise TembedError(
                    f"{self.folder} holds a run of another recipe; asked for is {'; '.join(differing)} there: give "
                    "another --out, or the recipe of that run"
                )
        elif others := [path.name for path in self.folder.iterdir() if path.name not in ("lock", "recipe.json.part")]:
            raise TembedError(f"{self.folder} is not empty ({', '.join(sorted(others)[:3])}): give another --out")
        else:
            write_json(self.recipe_path, recipe.plain())
        with explained(self.checkpoints.folder):
            self.checkpoints.folder.mkdir(exist_ok=True)

    def record_start(self, data_sha256: str, epoch: int, step: int, hardware: dict[str, Any]) -> list[str]:
        """Write down where the run is taken up, and say what has changed since the last time that can change bits."""
        from tembed.training.environment import changes, environment  # needs torch, which a table of runs does not

        path, now = self.environment_path, environment(hardware)
        record: dict[str, Any] = read_json(path) if path.exists() else {"data_sha256": data_sha256, "starts": []}
        try:
            differing = changes(record["starts"][-1], now) if record["starts"] else []
            record["starts"].append(now | {"epoch": epoch, "step": step})
        except (AttributeError, LookupError, TypeError):
            raise TembedError(f"{path} is not what tembed wrote: restore it, or remove it to go on") from None
        write_json(path, record)
        return differing

    def write_metrics(self, metrics: list[dict[str, Any]]) -> None:
        """All epochs anew, so that no line is ever torn or there twice."""
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in metrics)
        write_file(self.metrics_path, lines.encode())


def default_folder(recipe: Recipe) -> Path:
    """``runs/<model>-<data>-<preset>-<seed>``."""
    return Path("runs") / f"{recipe.model}-{recipe.data}-{recipe.preset}-{recipe.seed}"


def without_clock(record: dict[str, Any]) -> dict[str, Any]:
    """A record of metrics or a result without what a clock measured."""
    return {key: value for key, value in record.items() if key not in CLOCK_FIELDS}


def find_runs(folder: Path) -> list[Run]:
    """The runs at or below a folder, by name."""
    return [Run(path.parent) for path in sorted(folder.rglob("recipe.json"))]


def summary(run: Run) -> dict[str, Any]:
    """All that is worth keeping of a run but its weights."""
    result = run.result
    if result is None:
        raise TembedError(f"{run.folder} is not finished: run its command again to finish it")
    environment = read_json(run.environment_path)
    last = environment["starts"][-1]
    return {
        "recipe": run.recipe.plain() | {"preset": run.recipe.preset},
        "data_sha256": environment["data_sha256"],
        "environment": {key: value for key, value in last.items() if key not in ("started", "epoch", "step")},
        "starts": len(environment["starts"]),
        "wall_seconds": result["total_seconds"],
        "curve": run.metrics,
        "result": result,
    }


def save_summary(run: Run, folder: str | Path) -> Path:
    """Write the summary as ``<model>-<data>-<preset>-<seed>.json`` and return its path."""
    record = summary(run)
    recipe = record["recipe"]
    path = Path(folder) / f"{recipe['model']}-{recipe['data']}-{recipe['preset']}-{recipe['seed']}.json"
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    return path
