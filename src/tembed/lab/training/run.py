"""A run folder: its files, its name, and its summary in one small file.

::

    recipe.json        the complete recipe
    environment.json   data hash; versions, machine, hardware, threads and commit of each start
    metrics.jsonl      one line per epoch
    best.safetensors   the weights of the best epoch so far
    checkpoints/       the newest state to resume from, and the one before
    result.json        at the end: the best epoch, and its test accuracy
"""

import dataclasses
import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tembed.common.errors import TembedError
from tembed.common.files import (
    below,
    explained,
    is_part,
    make_folder,
    parse_json,
    read_file,
    read_json,
    remove_file,
    write_file,
    write_json,
)
from tembed.common.plain_values import check_fields, fits, is_finite, wrong_field
from tembed.common.results import check_result
from tembed.lab.training.recipe import PRESETS, Recipe
from tembed.lab.training.schedule import ends_early

if TYPE_CHECKING:  # needs torch; a table of runs does not
    from tembed.lab.training.checkpoint_files import Checkpoints

USUAL_SPLIT = "paper"  # the split that a run's name leaves out, whatever the data's default is


@dataclass(frozen=True)
class Run:
    """A run, identified by its folder."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Open an existing run."""
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
    def checkpoints(self) -> "Checkpoints":
        from tembed.lab.training.checkpoint_files import Checkpoints

        return Checkpoints(self.folder / "checkpoints")

    @property
    def recipe(self) -> Recipe:
        try:
            return Recipe.from_json(read_json(self.recipe_path))
        except TembedError as error:
            raise TembedError(f"{self.recipe_path}: {error}") from None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One record per finished epoch."""
        if not self.metrics_path.exists():
            return []
        try:
            metrics = [parse_json(line) for line in read_file(self.metrics_path).decode().splitlines()]
            check_metrics(metrics)
            return metrics
        except (OSError, ValueError, RecursionError) as error:
            raise TembedError(
                f"{self.metrics_path} is missing or damaged ({error}): run the same command again to rewrite it (if "
                f"the run is finished, remove {self.result_path.name} first)"
            ) from None

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of a finished run, or None. One of fewer epochs is of the run that this one continues."""
        if not self.result_path.exists():
            return None
        result, recipe = read_json(self.result_path), self.recipe
        try:
            check_result(result)
            if result["epochs"] > recipe.epochs:
                raise TembedError(f"it has {result['epochs']} epochs, and the recipe {recipe.epochs}")
        except TembedError as error:
            raise TembedError(
                f"{self.result_path} was not written by tembed ({error}): remove it, and run the same command again to "
                "write a new one"
            ) from None
        return result if result["epochs"] == recipe.epochs or self._ended_early(recipe) else None

    def _ended_early(self, recipe: Recipe) -> bool:
        return ends_early(recipe, [record["val_accuracy"] for record in self.metrics])

    @property
    def environment(self) -> dict[str, Any]:
        """The hash of the data, and a record of each start."""
        record = read_json(self.environment_path)
        try:
            check_fields(record, {"data_sha256": str, "starts": tuple[dict[str, Any], ...]})
            if not record["starts"]:
                raise wrong_field(record, "starts")
        except TembedError as error:
            raise TembedError(
                f"{self.environment_path} was not written by tembed ({error}): restore it, or remove it to continue"
            ) from None
        return record

    def assign(self, recipe: Recipe) -> None:
        """Make this the folder of ``recipe``, or check that it already is. Raises `TembedError` with what differs.

        A run that more epochs can continue stays as it is; `continue_as` changes its recipe.
        """
        if self.recipe_path.exists():
            before = self.recipe
            differing = recipe.differences(before)
            if differing and can_continue(before, recipe):
                if self.result_path.exists() and not self.checkpoints.any:
                    raise TembedError(
                        f"{self.folder} cannot be continued to {recipe.epochs} epochs: its checkpoints are gone; give "
                        "another `out` to train it from the beginning"
                    )
            elif differing:
                raise TembedError(
                    f"{self.folder} holds a run of another recipe (asked for {'; '.join(differing)}): give another "
                    "`out`, or the recipe of that run"
                )
        elif others := sorted(path.name for path in self.folder.iterdir() if not _may_be_in_a_new_run(path.name)):
            raise TembedError(f"{self.folder} is not empty ({', '.join(others[:3])}): give another `out`")
        else:
            write_json(self.recipe_path, recipe.to_json())
        make_folder(below(self.folder, self.checkpoints.folder.name))

    def withdraw(self) -> None:
        """Undo `assign` for a run that could not start, so that another recipe can have the folder."""
        if self.environment_path.exists():  # it has started before
            return
        for path in (self.recipe_path, self.folder / "network.json"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self.checkpoints.folder.rmdir()

    def continue_as(self, recipe: Recipe) -> None:
        """Make ``recipe``, which has more epochs than the run so far, the recipe of this run."""
        with explained(self.result_path):
            remove_file(self.result_path)  # a power cut must not leave the old result beside the longer recipe
        write_json(self.recipe_path, recipe.to_json())

    def record_start(self, data_sha256: str, epoch: int, step: int, hardware: dict[str, Any]) -> list[str]:
        """Record this start of the run. Returns the changes since its last start that can affect the last bits."""
        from tembed.lab.training.environment import (
            changes,  # needs torch
            environment,
        )

        path, now = self.environment_path, environment(hardware)
        record: dict[str, Any] = self.environment if path.exists() else {"data_sha256": data_sha256, "starts": []}
        differing = changes(record["starts"][-1], now) if record["starts"] else []
        record["starts"].append(now | {"epoch": epoch, "step": step})
        write_json(path, record)
        return differing

    def write_metrics(self, metrics: list[dict[str, Any]]) -> None:
        """Write all epochs again, so that no line is ever torn or repeated."""
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in metrics)
        write_file(self.metrics_path, lines.encode())


def check_metrics(metrics: Any) -> None:
    """Raise `TembedError` unless these are records of epochs: finite numbers, and None for what does not apply."""
    for record in metrics:
        check_fields(record, {"epoch": int, "val_accuracy": float})
        for name, value in record.items():
            if not fits(value, float | None) or not (value is None or is_finite(value)):
                raise wrong_field(record, name)
        if not 0 <= record["val_accuracy"] <= 1:
            raise wrong_field(record, "val_accuracy")


def _may_be_in_a_new_run(file: str) -> bool:
    return file == "lock" or is_part(file, ["recipe.json"])


def find_runs(folder: Path) -> list[Run]:
    """The runs in or below a folder, sorted by name."""
    return [Run(path.parent) for path in sorted(folder.rglob("recipe.json"))]


def run_name(recipe: Recipe) -> str:
    """The name of a recipe's run. No other recipe has the same name.

    ``<model>-<data>-<preset>-<seed>`` if everything else is the preset's default. Otherwise the most telling
    differences come before the seed, and a hash of all fields that are not at the default of `Recipe` comes at the end:
    ``rn26-embed-cifar10-fast-lambda0.25-0-1b2c3d4e``. A field that a later version adds changes no existing name.
    """
    from tembed.models.registry import list_models

    recipe = recipe.complete()
    preset = recipe.preset
    like = preset if preset in PRESETS else "paper"
    usual = Recipe.from_preset(like, recipe.model, recipe.data, split=USUAL_SPLIT).complete()
    start = f"{safe_name(recipe.model)}-{recipe.data}-"
    owner = max((name for name in list_models() if start.startswith(f"{name}-")), key=len, default="")
    if owner == recipe.model and recipe == dataclasses.replace(usual, seed=recipe.seed):
        return f"{start}{preset}-{recipe.seed}"
    marks = [
        mark
        for name, mark in (
            ("conventions", recipe.conventions),
            ("maximizer", str(recipe.maximizer)),
            ("weight", f"lambda{recipe.weight:g}" if recipe.weight is not None else ""),
            ("batch_size", f"batch{recipe.batch_size}"),
            ("epochs", f"{recipe.epochs}epochs"),
            ("train_images", f"{recipe.train_images}images"),
        )
        if getattr(recipe, name) != getattr(usual, name)
    ]
    return "-".join([f"{start}{preset}", *marks, str(recipe.seed), _digest(recipe)[:8]])


def checkpoint_digest(recipe: Recipe) -> str:
    """Identifies what a complete recipe computes in its steps: checkpoints of recipes with the same digest fit both."""
    return _digest(recipe, without=() if epochs_matter(recipe) else ("epochs",))


def epochs_matter(recipe: Recipe) -> bool:
    """Whether the steps of an epoch depend on how many epochs there are."""
    return recipe.schedule == "one-cycle" or recipe.start_scale != 1 or recipe.averaging > 0


def can_continue(before: Recipe, now: Recipe) -> bool:
    """Whether ``now`` is ``before`` with more epochs, and trains the first ones in the same way."""
    return now.epochs > before.epochs and checkpoint_digest(now) == checkpoint_digest(before)


def _digest(recipe: Recipe, without: tuple[str, ...] = ()) -> str:
    """Hash of all fields that are not at the default of `Recipe`, so that a new field changes no existing hash."""
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe)} | {"split": USUAL_SPLIT}
    values = dataclasses.asdict(recipe)
    unusual = {key: value for key, value in values.items() if value != defaults[key] and key not in without}
    return hashlib.sha256(json.dumps(unusual, sort_keys=True).encode()).hexdigest()


def safe_name(model: str) -> str:
    """A network's name as part of a folder's name: ``timm-resnet18-layer3`` for ``timm:resnet18@layer3``."""
    return re.sub(r"[^\w.-]", "-", model)


def default_folder(recipe: Recipe) -> Path:
    """``runs/<run_name>`` for a complete recipe."""
    return Path("runs") / run_name(recipe)


def summary(run: Run) -> dict[str, Any]:
    """Everything worth keeping about a finished run, except its weights."""
    result = run.result
    if result is None:
        raise TembedError(f"{run.folder} is not finished: run its command again to finish it")
    environment = run.environment
    last = environment["starts"][-1]
    return {
        "recipe": run.recipe.to_json() | {"preset": run.recipe.preset},
        "data_sha256": environment["data_sha256"],
        "environment": {key: value for key, value in last.items() if key not in ("started", "epoch", "step")},
        "starts": len(environment["starts"]),
        "wall_seconds": result["total_seconds"],
        "curve": run.metrics,
        "result": result,
    }


def save_summary(run: Run, folder: str | Path) -> Path:
    """Write the summary as ``<run_name>.json`` and return its path."""
    record = summary(run)
    path = Path(folder) / f"{run_name(run.recipe)}.json"
    make_folder(path.parent)
    write_json(path, record)
    return path
