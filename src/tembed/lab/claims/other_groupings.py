"""Other groupings and pairs of the classes: the paper's must exceed most of them."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tembed.common.arrays import Int64

MOST = 1000
"""Up to this many other groupings or sets of pairs, all of them are ranked; of more, this many random ones."""
MOST_PAIRS = 200
"""The same for single pairs of classes."""


def other_groupings(group_of: Int64, seed: int) -> Int64:
    """Other ways to put the classes into groups of the same sizes: ``(G, C)``. Names of the groups do not matter."""
    sizes = np.bincount(group_of)
    ways = math.factorial(len(group_of))
    for size in sizes:
        ways //= math.factorial(int(size))
    for same in np.bincount(sizes):
        ways //= math.factorial(int(same))
    own = _canonical(group_of)
    if ways - 1 <= MOST:
        found = [grouping for grouping in _groupings(sizes.tolist(), len(group_of)) if grouping != own]
    else:
        rng, drawn = np.random.default_rng(seed), set[tuple[int, ...]]()
        while len(drawn) < MOST:
            grouping = _canonical(rng.permutation(group_of))
            if grouping != own:
                drawn.add(grouping)
        found = sorted(drawn)
    return np.array(found, np.int64).reshape(-1, len(group_of))


def _canonical(group_of: Int64) -> tuple[int, ...]:
    """The same grouping with its groups numbered in the order of their first class."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(int(group), len(numbers)) for group in group_of)


def _groupings(sizes: list[int], classes: int) -> list[tuple[int, ...]]:
    """All canonical groupings into groups of these sizes: the first free class chooses its group's size and members."""
    found: list[tuple[int, ...]] = []

    def fill(grouping: list[int], left: list[int], number: int) -> None:
        free = [k for k in range(classes) if grouping[k] < 0]
        if not free:
            found.append(tuple(grouping))
            return
        for size in sorted(set(left)):
            rest = left.copy()
            rest.remove(size)
            for members in itertools.combinations(free[1:], size - 1):
                chosen = grouping.copy()
                for k in (free[0], *members):
                    chosen[k] = number
                fill(chosen, rest, number + 1)

    fill([-1] * classes, list(sizes), 0)
    return found


def other_pairs(named: Sequence[tuple[int, int]], classes: int, seed: int) -> list[tuple[int, int]]:
    """All pairs of classes that are not named, or `MOST_PAIRS` random ones of many."""
    taken = {frozenset(pair) for pair in named}
    pairs = [pair for pair in itertools.combinations(range(classes), 2) if frozenset(pair) not in taken]
    if len(pairs) > MOST_PAIRS:
        chosen = np.random.default_rng(seed).permutation(len(pairs))[:MOST_PAIRS]
        pairs = [pairs[i] for i in sorted(chosen)]
    return pairs


def pair_sets(count: int, size: int, seed: int) -> Int64:
    """Sets of ``size`` out of ``count`` pairs, all or `MOST` random ones: ``(G, size)``."""
    if math.comb(count, size) <= MOST:
        return np.array(list(itertools.combinations(range(count), size)), np.int64).reshape(-1, size)
    rng = np.random.default_rng(seed)
    return np.stack([np.sort(rng.permutation(count)[:size]) for _ in range(MOST)])
