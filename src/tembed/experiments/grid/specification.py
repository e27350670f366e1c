"""A grid: a small TOML file that names a set of runs.

::

    about = "Does a smaller lambda do?"
    recipe = "fast"                       # where all other settings come from: paper or fast
    seeds = 3                             # 0, 1 and 2; or seed = [3, 7]
    data = "cifar10"
    model = ["rn26", "rn26-embed"]        # a list: a run for each
    epochs = 8

Every other key is a field of `Recipe`. Several lists make every combination. A setting that a model does not have, such
as ``weight`` for a network without patch scores, is an error, as it is for a single run.
"""

import dataclasses
import difflib
import itertools
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tembed.errors import TembedError
from tembed.training.recipe import Recipe

FIELDS = {field.name: field for field in dataclasses.fields(Recipe)}
OWN = ("about", "recipe", "seeds")
PAIR = "betas"  # the one field whose value is itself a list


@dataclass(frozen=True)
class Grid:
    """A set of recipes. ``name`` is for the user's eyes."""

    name: str
    about: str
    recipes: tuple[Recipe, ...]


def builtin_names() -> list[str]:
    """The grids of the paper."""
    return sorted(path.name.removesuffix(".toml") for path in _builtin().iterdir() if path.name.endswith(".toml"))


def load_grid(source: str, changes: dict[str, Any] | None = None) -> Grid:
    """The grid of this name, or in this file, with these keys in place of its own. All its recipes are complete.

    Raises `TembedError` that names the file, the key and what is near it.
    """
    if source in builtin_names():
        text, where, name = (_builtin() / f"{source}.toml").read_text("utf-8"), f"the grid {source}", source
    else:
        path = Path(source)
        text, where, name = _read(path), str(path), path.stem
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TembedError(f"{where} is not TOML: {error}") from None
    given = {key: value for key, value in (changes or {}).items() if value is not None}
    for ours, other in (("seeds", "seed"), ("seed", "seeds")):
        if ours in given:
            values.pop(other, None)
    try:
        return Grid(name, str(values.get("about", "")), expand({**values, **given}))
    except TembedError as error:
        raise TembedError(f"{where}: {error}") from None


def expand(values: dict[str, Any]) -> tuple[Recipe, ...]:
    """The complete recipes that the keys of a grid ask for, each once, the seeds of a setting together."""
    _check_keys(values)
    preset = values.get("recipe", "paper")
    if preset not in ("paper", "fast"):
        raise TembedError(f"recipe is {preset!r}; it must be 'paper' or 'fast'")
    make = Recipe.fast if preset == "fast" else Recipe.paper
    choices = {key: _choices(key, value) for key, value in values.items() if key in FIELDS}
    choices.setdefault("seed", list(range(_count(values.get("seeds", 1)))))
    order = ["data", "model", *(key for key in choices if key not in ("data", "model", "seed")), "seed"]
    recipes: dict[Recipe, None] = {}
    for chosen in itertools.product(*(choices[key] for key in order)):
        plain = make("", "").plain() | dict(zip(order, chosen, strict=True))
        recipes[Recipe.from_plain(plain).complete()] = None
    return tuple(recipes)


def _check_keys(values: dict[str, Any]) -> None:
    for key in values:
        if key not in FIELDS and key not in OWN:
            near = difflib.get_close_matches(key, [*FIELDS, *OWN, "models"], n=1, cutoff=0.5)
            hint = (
                f"did you mean {near[0].replace('models', 'model')!r}?" if near else f"there are: {', '.join(FIELDS)}"
            )
            raise TembedError(f"unknown key {key!r}; {hint}")
    for key in ("model", "data"):
        if key not in values:
            raise TembedError(
                f"it has no {key!r}; add a line such as {key} = {'rn26' if key == 'model' else 'cifar10'!r}"
            )
    if "seed" in values and "seeds" in values:
        raise TembedError("it has both seed and seeds; keep one: seeds = 3 is short for seed = [0, 1, 2]")


def _choices(key: str, value: Any) -> list[Any]:
    if key == PAIR and isinstance(value, list) and value and not isinstance(value[0], list):
        return [value]
    choices = value if isinstance(value, list) else [value]
    if not choices:
        raise TembedError(f"{key} is an empty list; give at least one value, or leave it out")
    floats = "float" in str(FIELDS[key].type)
    return [float(v) if floats and type(v) is int else v for v in choices]


def _count(seeds: Any) -> int:
    if type(seeds) is not int or seeds < 1:
        raise TembedError(f"seeds is {seeds!r}; it must be a number of seeds, at least 1")
    return seeds


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if path.suffix or "/" in str(path):
            why = getattr(error, "strerror", None) or error
            raise TembedError(f"{path} cannot be read as a grid ({why})") from None
        near = difflib.get_close_matches(str(path), builtin_names(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(builtin_names())}"
        raise TembedError(f"no grid and no file is called {str(path)!r}; {hint}") from None


def _builtin() -> Any:
    return resources.files("tembed.experiments.grid") / "builtin"
