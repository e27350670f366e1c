"""The runs that a report is about: run folders, and the small files that `tembed runs --save` writes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tembed.errors import TembedError
from tembed.files import read_json
from tembed.training.recipe import Recipe
from tembed.training.run import Run, find_runs, summary


@dataclass(frozen=True)
class Record:
    """A finished run. ``accuracy`` is that of the test, in %; ``curve`` has a record for each epoch."""

    recipe: Recipe
    data_sha256: str
    accuracy: float
    test_images: int
    curve: tuple[dict[str, Any], ...]
    seconds: float
    source: Path


@dataclass
class Collected:
    """``unfinished``, ``repeated`` and ``left_out`` say in a line each what is not among the records."""

    records: list[Record] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def collect(sources: list[Path]) -> Collected:
    """All runs at or below these folders, and in these files; each recipe and seed once.

    Raises `TembedError` if a source is missing or there is no run at all.
    """
    found = Collected()
    for source in sources:
        if source.is_dir():
            for run in find_runs(source):
                _take_folder(run, found)
            for path in sorted(source.glob("*.json")):
                if not (source / "recipe.json").exists():
                    _take_file(path, found, alone=False)
        elif source.is_file():
            _take_file(source, found, alone=True)
        else:
            raise TembedError(f"{source} is not there; give a folder of runs, or files that `tembed runs --save` wrote")
    _count_once(found)
    if not (found.records or found.unfinished or found.left_out):
        where = ", ".join(map(str, sources))
        raise TembedError(f"no runs in {where}: train some with `tembed grid` or `tembed train`, or name their folder")
    return found


def _take_folder(run: Run, found: Collected) -> None:
    try:
        recipe = run.recipe
        if run.result is None:
            found.unfinished.append(f"{run.folder}: {len(run.metrics)} of {recipe.epochs} epochs")
        else:
            found.records.append(_record(summary(run), run.folder))
    except TembedError as error:
        found.left_out.append(f"{run.folder}: {error}")
    except (LookupError, TypeError, ValueError) as error:
        found.left_out.append(f"{run.folder} is not what tembed wrote ({error!r})")


def _take_file(path: Path, found: Collected, *, alone: bool) -> None:
    """A summary. Files of other kinds in a folder of them are passed over."""
    try:
        value = read_json(path)
        if isinstance(value, dict) and {"recipe", "result", "curve"} <= set(value):
            found.records.append(_record(value, path))
        elif alone:
            found.left_out.append(f"{path} is no summary of a run")
    except TembedError as error:
        found.left_out.append(f"{path}: {error}")
    except (LookupError, TypeError, ValueError) as error:
        found.left_out.append(f"{path} is not what tembed wrote ({error!r})")


def _record(value: dict[str, Any], source: Path) -> Record:
    plain = {key: entry for key, entry in value["recipe"].items() if key != "preset"}
    result, curve = value["result"], tuple(value["curve"])
    for epoch in curve:
        float(epoch["val_accuracy"])
    return Record(
        recipe=Recipe.from_plain(plain).complete(),
        data_sha256=str(value["data_sha256"]),
        accuracy=100 * float(result["test_accuracy"]),
        test_images=int(result["test"]["images"]),
        curve=curve,
        seconds=float(result["total_seconds"]),
        source=source,
    )


def _count_once(found: Collected) -> None:
    """Keep the first record of each recipe and seed: a second one is no second sample."""
    first: dict[tuple[Recipe, str, int], Record] = {}
    for record in found.records:
        known = first.setdefault((record.recipe, record.data_sha256, record.test_images), record)
        if known is record:
            continue
        line = f"{record.source}: the same recipe and seed as {known.source}"
        if known.accuracy == record.accuracy:
            found.repeated.append(f"{line}, with the same result")
        else:
            found.left_out.append(f"{line}, with another result ({record.accuracy:.2f}, not {known.accuracy:.2f} %)")
    found.records = list(first.values())
