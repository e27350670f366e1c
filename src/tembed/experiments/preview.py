"""The runs of a grid before they are run: how far each is, and how long the rest will take."""

import difflib
import itertools
from collections.abc import Sequence
from pathlib import Path

from tembed.data.catalogue import KNOWN
from tembed.data.storage import is_stored, stored_names
from tembed.errors import TembedError
from tembed.experiments.grids import Grid
from tembed.experiments.places import Place
from tembed.training.recipe import Recipe

DAY = 86400.0


def check_data(grid: Grid, root: str, *, stored: bool) -> None:
    """`TembedError` for a dataset that nobody knows, and if asked for, for one that is not there yet."""
    here = Path(root)
    for name in dict.fromkeys(recipe.data for recipe in grid.recipes):
        if name == "parts" or is_stored(here, name):
            continue
        if name in KNOWN:
            if stored:
                raise TembedError(f"{name} is not in {root}: run `tembed data get {name}`")
            continue
        names = sorted({*KNOWN, *stored_names(here)})
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        raise TembedError(f"{grid.name}: unknown dataset {name!r}; {hint}")


def preview(grid: Grid, places: list[Place], root: str, threads: int, jobs: int | None) -> str:
    """A table of the runs with an estimate of time. ``jobs`` is how many go on at once, if that is known."""
    import torch

    from tembed.experiments.estimate import measure_speed, run_seconds, same_speed, shape_of

    torch.set_num_threads(threads)
    speeds, rows, slow = {}, [("run", "state", "epochs", "left, about")], {}
    left = []
    for place in places:
        recipe, state, done = place.recipe, place.state(), place.epochs_done()
        if state == "finished":
            rows.append((place.name, state, f"{done}/{recipe.epochs}", "-"))
            continue
        key, shape = same_speed(recipe), shape_of(recipe, root)
        if key not in speeds:
            speeds[key] = measure_speed(recipe, shape)
        seconds = run_seconds(recipe, shape, speeds[key], done)
        left.append(seconds)
        rows.append((place.name, state, f"{done}/{recipe.epochs}", duration(seconds)))
        if seconds > DAY:
            slow[key] = (recipe, seconds)
    lines = [f"{grid.name}: {grid.about}" if grid.about else grid.name, "", *aligned(rows), ""]
    lines.append(
        f"{len(places)} runs, {len(places) - len(left)} of them finished; left: about {duration(sum(left))} of work"
    )
    if jobs is not None and jobs > 1 and left:
        lines[-1] += f", {duration(max(sum(left) / jobs, max(left)))} with {jobs} runs at a time"
    if left:
        lines.append(
            f"estimated from a few steps each on this machine, just now, with {threads} threads a run: a rough guess"
        )
    lines += [f"warning: {described(recipe)} needs about {duration(time)} a run" for recipe, time in slow.values()]
    failed = [(place.name, why) for place in places if (why := place.failure())]
    return "\n".join([*lines, *(f"failed before: {name}: {why}" for name, why in failed)])


def described(recipe: Recipe) -> str:
    """Enough of a recipe to know which it is."""
    swapped = "" if recipe.maximizer in (None, "bn-relu") else f" with {recipe.maximizer}"
    draws = " (600 draws at each pixel)" if recipe.maximizer == "perturbed-sampled" else ""
    return f"{recipe.model}{swapped}{draws} on {recipe.data}, batch {recipe.batch_size}, {recipe.epochs} epochs,"


def duration(seconds: float) -> str:
    """Two units at most: ``3 d 4 h``, ``2 h 5 min``, ``40 s``."""
    units = [("d", DAY), ("h", 3600.0), ("min", 60.0), ("s", 1.0)]
    for (name, size), (smaller, part) in itertools.pairwise(units):
        if seconds >= size:
            whole, rest = divmod(round(seconds / part), round(size / part))
            return f"{whole} {name} {rest} {smaller}" if rest and whole < 100 else f"{whole} {name}"
    return f"{max(1, round(seconds))} s"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines with columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
