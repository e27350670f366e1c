"""A grid: a small TOML file that names a set of runs.

::

    about = "Is a smaller lambda enough?"
    preset = "fast"                       # the defaults of all other settings: paper, fast or frozen
    seeds = 3                             # 0, 1 and 2; or seed = [3, 7]
    data = "cifar10"
    model = ["rn26", "rn26-embed"]        # a list: one run for each value
    epochs = 8

Every other key is a field of `Recipe`; ``constants`` is a table, such as ``constants = {temperature = 0.5}``. Several
lists make every combination. A setting that a model does not have, such as ``weight`` for a network without patch
scores, is an error, as it is for a single run.
"""

import dataclasses
import difflib
import itertools
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tembed.common.errors import TembedError, first_line
from tembed.common.files import read_file
from tembed.lab.training.recipe import PRESETS, Recipe

FIELDS = {field.name: field for field in dataclasses.fields(Recipe)}
GRID_KEYS = ("about", "preset", "seeds")
"""Keys of a grid that are not fields of a recipe."""
MAX_RUNS = 10_000
MAX_BYTES = 1 << 14
"""Size of the largest grid file. Keys with many dots take quadratic memory: 5.7 GB for 100 kB."""
LIST_FIELD = "betas"
"""The one field whose value is itself a list."""


@dataclass(frozen=True)
class Grid:
    """A set of complete recipes, with a name and a sentence for the user."""

    name: str
    about: str
    recipes: tuple[Recipe, ...]


def builtin_names() -> list[str]:
    """The grids of the paper."""
    return sorted(path.name.removesuffix(".toml") for path in _builtin().iterdir() if path.name.endswith(".toml"))


def load_grid(source: str, changes: dict[str, Any] | None = None) -> Grid:
    """The built-in grid of this name, or the grid in this file, with ``changes`` in place of its own keys.

    `TembedError` names the file, the key and the nearest valid one.
    """
    if source in builtin_names():
        text, where, name = (_builtin() / f"{source}.toml").read_text("utf-8"), f"the grid {source}", source
    else:
        path = Path(source)
        text, where, name = _read(path), str(path), path.stem
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for a number with thousands of digits
        raise TembedError(f"{where} is not TOML: {first_line(error)}") from None
    given = {key: value for key, value in (changes or {}).items() if value is not None}
    for key, other in (("seeds", "seed"), ("seed", "seeds")):
        if key in given:
            values.pop(other, None)
    try:
        return Grid(name, str(values.get("about", "")), expand({**values, **given}))
    except (ValueError, OverflowError) as error:  # a number that no float holds, or too long to print
        # Recipes name arguments in backticks, which the command line shows as flags; here they are keys of the file.
        message = re.sub(r"`([a-z][a-z0-9_]*)`", r"'\1'", str(error))
        raise TembedError(f"{where}: {message}") from None


def expand(values: dict[str, Any]) -> tuple[Recipe, ...]:
    """The complete recipes for the keys of a grid, without duplicates; the seeds of a setting are adjacent."""
    _check_keys(values)
    preset = values.get("preset", "paper")
    if not isinstance(preset, str) or preset not in PRESETS:
        raise TembedError(f"preset is {preset!r}; it must be one of {', '.join(PRESETS)}")
    choices: dict[str, Sequence[Any]] = {key: _choices(key, value) for key, value in values.items() if key in FIELDS}
    seeds = _count(values.get("seeds", 1))
    if (runs := seeds * math.prod(map(len, choices.values()))) > MAX_RUNS:
        raise TembedError(f"it has {runs:,} runs; the most are {MAX_RUNS:,}: give shorter lists, or fewer seeds")
    choices.setdefault("seed", range(seeds))
    order = ["data", "model", *(key for key in choices if key not in ("data", "model", "seed")), "seed"]
    recipes: dict[Recipe, None] = {}
    for chosen in itertools.product(*(choices[key] for key in order)):
        plain = Recipe("", "", **PRESETS[preset]).to_json() | dict(zip(order, chosen, strict=True))
        recipes[Recipe.from_json(plain).complete()] = None
    return tuple(recipes)


def check_datasets(grid: Grid, root: str, *, stored: bool) -> None:
    """Raise `TembedError` for an unknown dataset, and with ``stored`` also for one that is not in ``root`` yet."""
    from tembed.lab.data.catalogue import dataset, list_datasets
    from tembed.lab.data.store import is_stored, stored_names

    for name in dict.fromkeys(recipe.data for recipe in grid.recipes):
        if is_stored(Path(root), name):
            continue
        if name in list_datasets():
            if stored and dataset(name).generate is None:
                raise TembedError(f"{name} is not in {root}: run `tembed data get {name}`")
            continue
        names = sorted({*list_datasets(), *stored_names(Path(root))})
        raise TembedError(f"{grid.name}: unknown dataset {name!r}; {_nearest(name, names)}")


def _check_keys(values: dict[str, Any]) -> None:
    for key in values:
        if key not in FIELDS and key not in GRID_KEYS:
            plural = key.removesuffix("s")
            hint = f"did you mean {plural!r}?" if plural in FIELDS else _nearest(key, [*FIELDS, *GRID_KEYS])
            raise TembedError(f"unknown key {key!r}; {hint}")
    for key, example in (("model", "rn26"), ("data", "cifar10")):
        if key not in values:
            raise TembedError(f"it has no {key!r}; add a line such as {key} = {example!r}")
    if "seed" in values and "seeds" in values:
        raise TembedError("it has both seed and seeds; keep one: seeds = 3 is short for seed = [0, 1, 2]")


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"


def _choices(key: str, value: Any) -> list[Any]:
    if key == LIST_FIELD and isinstance(value, list) and value and not isinstance(value[0], list):
        return [value]
    choices = value if isinstance(value, list) else [value]
    if not choices:
        raise TembedError(f"{key} is an empty list; give at least one value, or leave it out")
    return [_as_floats(choice) for choice in choices] if "float" in str(FIELDS[key].type) else choices


def _as_floats(value: Any) -> Any:
    """TOML files may have 1 for 1.0; both must give the same recipe."""
    if isinstance(value, dict):
        return {name: _as_floats(entry) for name, entry in value.items()}
    return float(value) if type(value) is int else value


def _count(seeds: Any) -> int:
    if type(seeds) is not int or seeds < 1:
        raise TembedError(f"seeds is {seeds!r}; it must be a number of seeds, at least 1")
    return seeds


def _read(path: Path) -> str:
    try:
        return read_file(path, MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        if path.suffix or "/" in str(path):
            reason = getattr(error, "strerror", None) or error
            raise TembedError(f"{path} cannot be read as a grid ({reason})") from None
        raise TembedError(
            f"no grid and no file is called {str(path)!r}; {_nearest(str(path), builtin_names())}"
        ) from None


def _builtin() -> Any:
    return resources.files("tembed.lab.grid") / "builtin"
