"""``check``: verify the checksums of a stored dataset and find images that occur more than once."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tembed.common.arrays import UInt8
from tembed.common.errors import TembedError
from tembed.common.progress import SILENT, Progress
from tembed.lab.data.getting import open_dataset
from tembed.lab.data.readers.reading import SourceFile
from tembed.lab.data.splits import has_own_split, split_indices
from tembed.lab.data.store import Stored
from tembed.lab.data.subsets import CODES, SUBSETS
from tembed.lab.data.verification import verify


@dataclass(frozen=True)
class Duplicates:
    """Images whose pixels are all equal.

    ``indices``: their positions in the pool. ``names``: their files, or else position and class. ``same_file``: whether
    their files are equal, too (None if there are no files). ``across``: what they cross: "classes", and the splits in
    which they are in different subsets.
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    same_file: bool | None
    across: tuple[str, ...]

    def __str__(self) -> str:
        notes = [f"across {', '.join(self.across)}"] if self.across else []
        notes += ["the files differ"] if self.same_file is False else []
        return " = ".join(self.names) + (f" ({'; '.join(notes)})" if notes else "")


@dataclass(frozen=True)
class CheckResult:
    """What ``check`` found. Images are duplicates if every pixel is equal.

    ``groups``: sets of equal images. ``extra``: images beyond the first of each group. ``across_classes``: groups with
    more than one label. ``across_splits``: for each split, the groups in more than one subset, and the test images that
    have a duplicate in another subset. ``duplicates``: the groups by name, those across splits and classes first.
    """

    count: int
    sha256: str
    groups: int
    extra: int
    across_classes: int
    across_splits: dict[str, tuple[int, int]]
    duplicates: tuple[Duplicates, ...] = ()


def check(name: str, seed: int = 0, root: str | Path | None = None, progress: Progress = SILENT) -> CheckResult:
    """Verify a stored dataset and find its exact duplicates, in total and across the subsets of each split."""
    stored = open_dataset(name, root)
    verify(stored, again=True)
    files = stored.files()
    groups = _duplicates(stored, progress)
    subsets: dict[str, UInt8] = {}
    for split in ("paper", "official") if has_own_split(stored.subsets) else ("paper",):
        try:
            subsets[split] = _subsets(stored, split, seed)
        except TembedError as error:  # a class is too small to split; the other checks still hold
            progress.say(str(error))
    named = [_named(stored, files, group, subsets) for group in groups]
    return CheckResult(
        count=len(stored.images),
        sha256=stored.sha256,
        groups=len(groups),
        extra=sum(len(group) - 1 for group in groups),
        across_classes=sum("classes" in group.across for group in named),
        across_splits={split: _across(groups, subset) for split, subset in subsets.items()},
        duplicates=tuple(sorted(named, key=lambda group: (-len(group.across), group.indices))),
    )


def _duplicates(stored: Stored, progress: Progress) -> list[list[int]]:
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for index, image in enumerate(stored.images):
        by_digest[hashlib.sha256(image.tobytes()).digest()].append(index)
        if index % 1000 == 999:
            progress.update("comparing", index + 1, len(stored.images))
    return [members for members in by_digest.values() if len(members) > 1]


def _named(stored: Stored, files: list[SourceFile] | None, group: list[int], subsets: dict[str, UInt8]) -> Duplicates:
    labels = [int(stored.labels[index]) for index in group]
    across = ["classes"] if len(set(labels)) > 1 else []
    across += [f"the {split} split" for split, subset in subsets.items() if len(set(subset[group].tolist())) > 1]
    if files is None:
        shown = (f"image {index} ({stored.classes[label]})" for index, label in zip(group, labels, strict=True))
        return Duplicates(tuple(group), tuple(shown), None, tuple(across))
    same = len({files[index].sha256 for index in group}) == 1
    return Duplicates(tuple(group), tuple(files[index].name for index in group), same, tuple(across))


def _subsets(stored: Stored, split: str, seed: int) -> UInt8:
    """The code of each image's subset: ``(N,)``."""
    subset = np.empty(len(stored.labels), np.uint8)
    for name, indices in zip(SUBSETS, split_indices(stored, split, seed), strict=True):
        subset[indices] = CODES[name]
    return subset


def _across(groups: list[list[int]], subset: UInt8) -> tuple[int, int]:
    """The groups in more than one subset, and the test images in them."""
    mixed = [group for group in groups if len(set(subset[group].tolist())) > 1]
    return len(mixed), sum(int(subset[i]) == CODES["test"] for group in mixed for i in group)
