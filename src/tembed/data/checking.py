"""``check``: verify the checksums of a stored dataset and find images that occur more than once."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tembed.data.sources import open_dataset
from tembed.data.splits import has_own_split, split_indices
from tembed.data.storage import Stored
from tembed.data.verification import verify
from tembed.errors import TembedError
from tembed.reporting.progress import SILENT, Progress


@dataclass(frozen=True)
class CheckResult:
    """What ``check`` found. Images are duplicates if every pixel is equal.

    ``groups``: sets of equal images. ``extra``: images beyond the first of each group. ``across_classes``: groups with
    more than one label. ``across_splits``: for each split, the groups in more than one subset, and the test images that
    have a duplicate in another subset.
    """

    count: int
    sha256: str
    groups: int
    extra: int
    across_classes: int
    across_splits: dict[str, tuple[int, int]]


def check(name: str, seed: int = 0, root: str | Path | None = None, progress: Progress = SILENT) -> CheckResult:
    """Verify a stored dataset and count its exact duplicates, in total and across the subsets of each split."""
    stored = open_dataset(name, root)
    verify(stored, again=True)
    groups = _duplicates(stored, progress)
    splits = ["paper"]
    if has_own_split(stored.origin):
        splits.append("official")
    across = {}
    for split in splits:
        try:
            across[split] = _across(stored, groups, split, seed)
        except TembedError as error:  # a class is too small to split; the other checks still hold
            progress.say(str(error))
    return CheckResult(
        count=len(stored.images),
        sha256=stored.sha256,
        groups=len(groups),
        extra=sum(len(group) - 1 for group in groups),
        across_classes=sum(len({int(stored.labels[i]) for i in group}) > 1 for group in groups),
        across_splits=across,
    )


def _duplicates(stored: Stored, progress: Progress) -> list[list[int]]:
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for index, image in enumerate(stored.images):
        by_digest[hashlib.sha256(image.tobytes()).digest()].append(index)
        if index % 1000 == 999:
            progress.update("comparing", index + 1, len(stored.images))
    return [members for members in by_digest.values() if len(members) > 1]


def _across(stored: Stored, groups: list[list[int]], split: str, seed: int) -> tuple[int, int]:
    """The groups in more than one subset, and the test images in them."""
    indices = split_indices(stored, split, seed)
    train, val, test = range(3)
    subset = np.full(len(stored.labels), train, np.uint8)
    subset[indices.val], subset[indices.test] = val, test
    mixed = [group for group in groups if len({int(subset[i]) for i in group}) > 1]
    return len(mixed), sum(int(subset[i]) == test for group in mixed for i in group)
