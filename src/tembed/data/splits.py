"""Which image goes into which subset: the paper's pooled 65 / 15 / 20 % split (§4), and the published one.

No random generator is involved, because its stream might change from version to version. Images are ordered by
``sha256("tembed split:<seed>:<index>")``, so a split is the same on every machine and in every version.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from tembed.arrays import Int64, UInt8
from tembed.data.readers.reading import Origin
from tembed.errors import TembedError

VAL_PERCENT, TEST_PERCENT = 15, 20
FEWEST = 4  # images of a class, so that each subset gets one
OFFICIAL_VAL_PERCENT = 10  # of each class's published training images


class SplitIndices(NamedTuple):
    """The positions of each subset's images in the pool, ascending."""

    train: Int64
    val: Int64
    test: Int64


def paper_split(labels: Int64, classes: tuple[str, ...], seed: int) -> SplitIndices:
    """Pool all images, then take 65 / 15 / 20 % of every class."""
    rank = shuffled(len(labels), seed)
    train, val, test = [], [], []
    for label, name in enumerate(classes):
        members = _ordered(np.flatnonzero(labels == label), rank)
        n_val, n_test = _percent(VAL_PERCENT, len(members)), _percent(TEST_PERCENT, len(members))
        if len(members) < FEWEST:
            raise TembedError(
                f"class {name!r} has {len(members)} images, too few to split into train, validation and "
                f"test: give it at least {FEWEST}, or leave the class out"
            )
        test.append(members[:n_test])
        val.append(members[n_test : n_test + n_val])
        train.append(members[n_test + n_val :])
    return _sorted_indices(train, val, test)


def official_split(labels: Int64, origin: UInt8, classes: tuple[str, ...], seed: int) -> SplitIndices:
    """Train and test as published; validation as published, or else 10 % of every class of the training set."""
    for subset in (Origin.TRAIN, Origin.TEST):
        if not (origin == subset).any():
            raise TembedError(
                f"no image is marked as {subset.name.lower()}, because the source had no such folder or file: set "
                "`split` to 'paper'"
            )
    test = np.flatnonzero(origin == Origin.TEST)
    if (origin == Origin.VAL).any():
        return _sorted_indices([np.flatnonzero(origin == Origin.TRAIN)], [np.flatnonzero(origin == Origin.VAL)], [test])
    rank = shuffled(len(labels), seed)
    train, val = [], []
    for label, name in enumerate(classes):
        members = _ordered(np.flatnonzero((labels == label) & (origin == Origin.TRAIN)), rank)
        n_val = _percent(OFFICIAL_VAL_PERCENT, len(members))
        if not n_val:
            raise TembedError(
                f"class {name!r} has {len(members)} training images, too few to take validation images from them: "
                "give it at least 5, or leave the class out"
            )
        val.append(members[:n_val])
        train.append(members[n_val:])
    return _sorted_indices(train, val, [test])


def shuffled(count: int, seed: int) -> Int64:
    """The rank of each index in the order of the hashes."""
    digests = [hashlib.sha256(f"tembed split:{seed}:{index}".encode()).digest() for index in range(count)]
    rank = np.empty(count, np.int64)
    rank[sorted(range(count), key=digests.__getitem__)] = np.arange(count)
    return rank


def _ordered(members: Int64, rank: Int64) -> Int64:
    return members[np.argsort(rank[members], kind="stable")]


def _percent(percent: int, count: int) -> int:
    """Rounded half up, in integers."""
    return (percent * count + 50) // 100


def _sorted_indices(train: list[Int64], val: list[Int64], test: list[Int64]) -> SplitIndices:
    return SplitIndices(*(np.sort(np.concatenate(subset)) for subset in (train, val, test)))
