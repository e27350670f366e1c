"""Which networks an analysis compares: further runs, sorted by their recipes into seeds of each kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tembed.common.errors import TembedError
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.trained_networks import Trained, load_trained
from tembed.models.foreign import is_foreign, with_block
from tembed.models.registry import canonical_name

Source = str | Path


@dataclass(frozen=True)
class Sorted:
    """Trained networks by kind, the first of each kind first: ``(source, network)``."""

    run: list[tuple[str, Trained]] = field(default_factory=list)
    baseline: list[tuple[str, Trained]] = field(default_factory=list)
    aux: list[tuple[str, Trained]] = field(default_factory=list)
    one_by_one: list[tuple[str, Trained]] = field(default_factory=list)

    def counts(self) -> str:
        """The number of seeds of each kind, as text."""
        kinds = {"of the run": self.run, "of the baseline": self.baseline, "-aux": self.aux, "-1x1": self.one_by_one}
        return ", ".join(f"{len(found)} {name}" for name, found in kinds.items() if found)


def sort_runs(source: Source, trained: Trained, baseline: Source | None, also: Sequence[Source]) -> Sorted:
    """The analysed run, its baseline, and each of ``also`` as a further seed of one of the four kinds.

    The first network without a block in ``also`` is the baseline if no other one is given.
    """
    found = Sorted([(str(source), trained)])
    if baseline is not None:
        _add(found.baseline, str(baseline), load_trained(baseline), found, "the baseline")
    own = canonical_name(trained.recipe.model)
    if is_foreign(own):
        stem, others = with_block(own, "none"), {with_block(own, "aux"): found.aux}
    else:
        stem = own.split("-")[0]
        others = {f"{stem}-aux": found.aux, f"{stem}-1x1": found.one_by_one}
    base = found.baseline[0][1].recipe.model if found.baseline else stem
    for one in also:
        other = load_trained(one)
        model = canonical_name(other.recipe.model)
        kinds = {own: found.run, base: found.baseline, **others}
        if model not in kinds:
            raise TembedError(
                f"`also` names {one}, a run of {other.recipe.model}: it can name seeds of {', '.join(kinds)}"
            )
        _add(kinds[model], str(one), other, found, "`also`:")
    return found


def _add(kind: list[tuple[str, Trained]], source: str, other: Trained, found: Sorted, what: str) -> None:
    """Add a network to the ones of its kind, if it can be compared with the run and is a seed of its own."""
    first, trained = found.run[0]
    ours, theirs = trained.recipe, other.recipe
    if theirs.data != ours.data or other.classes != trained.classes:
        raise TembedError(
            f"{what} {source} was trained on {theirs.data}, {first} on {ours.data}: compare runs on one dataset"
        )
    if (theirs.split, theirs.split_seed) != (ours.split, ours.split_seed):
        raise TembedError(f"{what} {source} was trained on a different split than {first}")
    for known, earlier in kind:
        if different := _differences(earlier.recipe, theirs):
            raise TembedError(
                f"{what} {source} is not a seed of {known}, because their recipes differ in more than the seed "
                f"({different}): compare seeds of one recipe"
            )
        if earlier.recipe.seed == theirs.seed:
            raise TembedError(f"{what} {source} has the same recipe and seed as {known}: leave one of them out")
    kind.append((source, other))


def _differences(first: Recipe, second: Recipe) -> str:
    return ", ".join(replace(first, seed=0).differences(replace(second, seed=0)))
