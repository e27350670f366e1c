"""Which image goes into which subset: the paper's pooled 65 / 15 / 20 % split (§4), and the published one.

No random generator is involved, because its stream might change from version to version. Images are ordered by
``sha256("tembed split:<seed>:<index>")``, so a split is the same on every machine and in every version.
"""

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from tembed.common.arrays import Int64, UInt8
from tembed.common.errors import TembedError
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.store import Stored, default_root, is_stored, open_stored
from tembed.lab.data.subsets import CODES, SUBSETS

VAL_PERCENT, TEST_PERCENT = 15, 20
FEWEST = 4  # images of a class, so that each subset gets one
OFFICIAL_VAL_PERCENT = 10  # of each class's published training images


Split = Literal["paper", "official"]


class SplitIndices(NamedTuple):
    """The positions of each subset's images in the pool, ascending."""

    train: Int64
    val: Int64
    test: Int64


def split_indices(stored: Stored, split: str | None, seed: int) -> SplitIndices:
    """The split of a stored dataset, as positions in its pool; None stands for its usual one."""
    split = split or usual_split(stored)
    if split == "paper":
        return paper_split(stored.labels, stored.classes, seed)
    if split == "official":
        return official_split(stored.labels, stored.subsets, stored.classes, seed)
    raise TembedError(f"`split` is {split!r}; it must be 'paper' or 'official'")


def default_split(name: str, root: str | Path | None = None) -> Split:
    """The split that a dataset is used with unless told otherwise; ``paper`` if it is not stored yet."""
    root = Path(root) if root is not None else default_root()
    if dataset(name).in_paper or not is_stored(root, name):
        return "paper"
    return usual_split(open_stored(root, name))


def usual_split(stored: Stored) -> Split:
    """The dataset's own split if it has one, except that the paper's datasets are pooled as in the paper (§4)."""
    return "official" if has_own_split(stored.subsets) and not dataset(stored.name).in_paper else "paper"


def has_own_split(subsets: UInt8) -> bool:
    """Whether the source said which images are for training and which are held out."""
    return bool((subsets == CODES["train"]).any() and (subsets > CODES["train"]).any())


def paper_split(labels: Int64, classes: tuple[str, ...], seed: int) -> SplitIndices:
    """Pool all images, then take 65 / 15 / 20 % of every class."""
    rank = shuffled(len(labels), seed)
    train, val, test = [], [], []
    _check_counts(labels, classes, FEWEST, "images, too few to split into train, validation and test")
    for label in range(len(classes)):
        members = _ordered(np.flatnonzero(labels == label), rank)
        n_val, n_test = _percent(VAL_PERCENT, len(members)), _percent(TEST_PERCENT, len(members))
        test.append(members[:n_test])
        val.append(members[n_test : n_test + n_val])
        train.append(members[n_test + n_val :])
    return _sorted_indices(train, val, test)


def official_split(labels: Int64, subsets: UInt8, classes: tuple[str, ...], seed: int) -> SplitIndices:
    """Train, validation and test as published.

    If only two subsets were published, the one that is not for training is the test set, whatever its name (ImageNet
    calls it val), and 10 % of every class of the training set, at least one image, are for validation.
    """
    if not has_own_split(subsets):
        missing = "train" if not (subsets == CODES["train"]).any() else "test"
        raise TembedError(
            f"no image is marked as {missing}, because the source had no such folder or file: set `split` to 'paper'"
        )
    given, val, test = (np.flatnonzero(subsets == CODES[name]) for name in SUBSETS)
    if len(val) and len(test):
        _check_counts(labels[given], classes, 1, "training images")
        return _sorted_indices([given], [val], [test])
    _check_counts(labels[given], classes, 2, "training images, too few to take validation images from them")
    rank = shuffled(len(labels), seed)
    train, taken = [], []
    for label in range(len(classes)):
        members = _ordered(given[labels[given] == label], rank)
        n_val = max(1, _percent(OFFICIAL_VAL_PERCENT, len(members)))
        taken.append(members[:n_val])
        train.append(members[n_val:])
    return _sorted_indices(train, taken, [test if len(test) else val])


def _check_counts(labels: Int64, classes: tuple[str, ...], fewest: int, what: str) -> None:
    counts = np.bincount(labels, minlength=len(classes))
    few = np.flatnonzero(counts < fewest)
    if len(few):
        others = f" ({len(few)} such classes)" if len(few) > 1 else ""
        what = what.replace("images", "image", 1) if counts[few[0]] == 1 else what
        raise TembedError(
            f"class {classes[few[0]]!r} has {counts[few[0]]} {what}{others}: give it at least {fewest}, or leave the "
            "class out"
        )


def shuffled(count: int, seed: int) -> Int64:
    """The rank of each index in the order of the hashes."""
    digests = bytearray()
    for index in range(count):
        digests += hashlib.sha256(f"tembed split:{seed}:{index}".encode()).digest()
    words = np.frombuffer(digests, ">u8").reshape(count, 4)
    rank = np.empty(count, np.int64)
    rank[np.lexsort(words.T[::-1])] = np.arange(count)  # its last key counts most
    return rank


def _ordered(members: Int64, rank: Int64) -> Int64:
    return members[np.argsort(rank[members], kind="stable")]


def _percent(percent: int, count: int) -> int:
    """Rounded half up, in integers."""
    return (percent * count + 50) // 100


def _sorted_indices(train: list[Int64], val: list[Int64], test: list[Int64]) -> SplitIndices:
    return SplitIndices(*(np.sort(np.concatenate(subset)) for subset in (train, val, test)))
