"""The runs of a report: run folders, and the small files that `tembed runs --save` writes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tembed.common.errors import TembedError
from tembed.common.files import read_json
from tembed.common.plain_values import check_fields
from tembed.common.results import check_result
from tembed.lab.training.evaluation import unpack_correct
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, check_metrics, find_runs, summary


@dataclass(frozen=True)
class Record:
    """A finished run. ``accuracy``: test accuracy in %. ``curve``: the metrics of each epoch."""

    recipe: Recipe
    data_sha256: str
    accuracy: float
    test_images: int
    curve: tuple[dict[str, Any], ...]
    seconds: float
    source: Path
    correct: NDArray[np.bool_] | None = field(default=None, compare=False)
    """whether each test image was classified correctly, if the run recorded it"""


@dataclass
class RunsRead:
    """The finished runs, and one line about each run that is unfinished, a duplicate, or excluded."""

    records: list[Record] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)


def read_runs(sources: list[Path]) -> RunsRead:
    """Read all runs at or below these folders, and in these files; each recipe and seed counts once.

    Raises `TembedError` if a source is missing or there is no run at all.
    """
    read = RunsRead()
    for source in sources:
        if source.is_dir():
            for run in find_runs(source):
                _read_folder(run, read)
            for path in sorted(source.glob("*.json")):
                if not (source / "recipe.json").exists():
                    _read_summary(path, read, named=False)
        elif source.is_file():
            _read_summary(source, read, named=True)
        else:
            raise TembedError(
                f"{source} does not exist; give a folder of runs, or files that `tembed runs --save` wrote"
            )
    _drop_duplicates(read)
    if not (read.records or read.unfinished or read.excluded):
        where = ", ".join(map(str, sources))
        raise TembedError(
            f"no runs in {where}: train some with `tembed grid` or `tembed train`, or give another folder"
        )
    return read


def _read_folder(run: Run, read: RunsRead) -> None:
    try:
        recipe = run.recipe
        if run.result is None:
            read.unfinished.append(f"{run.folder}: {len(run.metrics)} of {recipe.epochs} epochs")
        else:
            read.records.append(_record(summary(run), run.folder))
    except TembedError as error:
        read.excluded.append(f"{run.folder}: {error}")


def _read_summary(path: Path, read: RunsRead, *, named: bool) -> None:
    """Read a summary. Other JSON files are ignored unless the user ``named`` them."""
    try:
        value = read_json(path)
        if isinstance(value, dict) and {"recipe", "result", "curve"} <= set(value):
            read.records.append(_record(value, path))
        elif named:
            read.excluded.append(f"{path} is not the summary of a run")
    except TembedError as error:
        read.excluded.append(f"{path}: {error}")


def _record(value: dict[str, Any], source: Path) -> Record:
    check_fields(value, {"recipe": dict[str, Any], "curve": tuple[Any, ...], "data_sha256": str})
    plain = {key: entry for key, entry in value["recipe"].items() if key != "preset"}
    result, curve = value["result"], tuple(value["curve"])
    check_result(result)
    check_metrics(curve)
    return Record(
        recipe=Recipe.from_json(plain).complete(),
        data_sha256=value["data_sha256"],
        accuracy=100 * float(result["test_accuracy"]),
        test_images=result["test"]["images"],
        curve=curve,
        seconds=float(result["total_seconds"]),
        source=source,
        correct=_correct(result),
    )


def _correct(result: dict[str, Any]) -> NDArray[np.bool_] | None:
    if "correct" not in result["test"]:
        return None
    images = result["test"]["images"]
    correct = unpack_correct(str(result["test"]["correct"]), images)
    if correct.sum() != round(result["test_accuracy"] * images):
        raise TembedError("the test images that it lists as correct do not make its accuracy")
    return correct


def _drop_duplicates(read: RunsRead) -> None:
    """Keep the first record of each recipe and seed: a repetition is not another sample."""
    first: dict[tuple[Recipe, str, int], Record] = {}
    for record in read.records:
        known = first.setdefault((record.recipe, record.data_sha256, record.test_images), record)
        if known is record:
            continue
        line = f"{record.source}: the same recipe and seed as {known.source}"
        if known.accuracy == record.accuracy:
            read.duplicates.append(f"{line}, with the same result")
        else:
            read.excluded.append(f"{line}, with another result ({record.accuracy:.2f}, not {known.accuracy:.2f} %)")
    read.records = list(first.values())
