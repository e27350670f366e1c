"""Which networks an analysis compares: further runs, sorted by their recipes into seeds of each kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tembed.common.errors import TembedError
from tembed.lab.training.recipe import Recipe, recipe_of
from tembed.models.foreign import is_foreign, with_block
from tembed.models.registry import canonical_name, list_models, model_info
from tembed.trained.weights_file import AnyNetwork
from tembed.trained.weights_file import load as load_network

RUN, BASELINE, UNTRAINED, MANY_UNTRAINED = "run", "baseline", "untrained", "many untrained"
KINDS = {RUN: "run", BASELINE: "baseline", "-aux": "aux", "-1x1": "one_by_one"}
"""The kinds of trained networks, with their names in ``claims.json``: seeds of the analysed run, of the network without
a block, and of networks that are named like it with a suffix. Untrained networks are two more kinds: a few for costly
measures, and many for others."""

T = TypeVar("T")
ByKind = Mapping[str, Sequence[T]]
"""What there is of each network, by kind; the first of each kind first. A kind may be missing."""
Source = str | Path
Named = tuple[str, AnyNetwork]
"""Where a network comes from, and the network."""


class OnDemand(Sequence[T]):
    """A sequence whose elements are made whenever they are asked for."""

    def __init__(self, count: int, make: Callable[[int], T]):
        self.places, self.make = range(count), make

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        places = self.places[index]
        return self.make(places) if isinstance(places, int) else [self.make(place) for place in places]


def add_kind(suffix: str) -> None:
    """Let analyses compare the networks with this suffix, such as ``-wide`` for ``rn26-wide``."""
    if not suffix.startswith("-"):
        raise TembedError(
            f"{suffix!r} is no kind of network: give one of {', '.join(KINDS)}, or a suffix such as -wide"
        )
    KINDS.setdefault(suffix, suffix.removeprefix("-"))


def seed_counts(networks: ByKind[object]) -> str:
    """The number of seeds of each kind, as text."""
    named = {kind: kind if kind.startswith("-") else f"of the {kind}" for kind in networks}
    return ", ".join(f"{len(found)} {named[kind]}" for kind, found in networks.items() if found)


def sort_runs(source: Source, network: AnyNetwork, baseline: Source | None, also: Sequence[Source]) -> ByKind[Named]:
    """The analysed run, its baseline, and each of ``also`` as a further seed of one of the `KINDS`.

    The first network without a block in ``also`` is the baseline if no other one is given.
    """
    found: dict[str, list[Named]] = {kind: [] for kind in KINDS}
    found[RUN].append((str(source), network))
    models = compared_models(network.description.model)
    if baseline is not None:
        first = load_network(baseline)
        _add(found[BASELINE], str(baseline), first, found[RUN][0], "the baseline")
        models[BASELINE] = canonical_name(first.description.model)
    kinds = {model: kind for kind, model in models.items()} | {models[RUN]: RUN}
    for one in also:
        other = load_network(one)
        model = canonical_name(other.description.model)
        kind = kinds.get(model)
        if kind is None:
            known = ", ".join(dict.fromkeys(models.values()))
            raise TembedError(f"`also` names {one}, a run of {model}: it can name seeds of {known}")
        _add(found[kind], str(one), other, found[RUN][0], "`also`:")
    return found


def compared_models(model: str) -> dict[str, str]:
    """The name of the network of each kind, for an analysed network."""
    own = canonical_name(model)
    if is_foreign(own):
        return {RUN: own, BASELINE: with_block(own, "none"), "-aux": with_block(own, "aux")}
    stem = baseline_of(own)
    return {RUN: own, BASELINE: stem} | {kind: stem + kind for kind in KINDS if kind.startswith("-")}


def baseline_of(model: str) -> str:
    """The registered network without a block that a network extends: the longest name that its own starts with.

    Names are compared up to a hyphen: ``my-net-embed`` extends ``my-net``, or else ``my``. Without such a network, the
    name up to the first hyphen.
    """
    parts = model.split("-")
    stems = ["-".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    registered = set(list_models())
    return next((stem for stem in stems if stem in registered and not model_info(stem).has_scores), parts[0])


def _add(kind: list[Named], source: str, other: AnyNetwork, run: Named, what: str) -> None:
    """Add a network to the ones of its kind, if it can be compared with the run and is a seed of its own."""
    first, network = run
    ours, theirs = recipe_of(network), recipe_of(other)
    if theirs.data != ours.data or other.description.classes != network.description.classes:
        raise TembedError(
            f"{what} {source} was trained on {theirs.data}, {first} on {ours.data}: compare runs on one dataset"
        )
    if (theirs.split, theirs.split_seed) != (ours.split, ours.split_seed):
        raise TembedError(f"{what} {source} was trained on a different split than {first}")
    for known, earlier in kind:
        seed = recipe_of(earlier)
        if different := _differences(seed, theirs):
            raise TembedError(
                f"{what} {source} is not a seed of {known}, because their recipes differ in more than the seed "
                f"({different}): compare seeds of one recipe"
            )
        if seed.seed == theirs.seed:
            raise TembedError(f"{what} {source} has the same recipe and seed as {known}: leave one of them out")
    kind.append((source, other))


def _differences(first: Recipe, second: Recipe) -> str:
    return ", ".join(replace(first, seed=0).differences(replace(second, seed=0)))
