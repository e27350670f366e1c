"""``check``: do the stored bytes still have their checksums, and which images occur twice?"""

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tembed.data.loading import places_of
from tembed.data.npy import array_sha256
from tembed.data.readers.reading import Origin
from tembed.data.sources import opened
from tembed.errors import TembedError
from tembed.reporting.progress import SILENT, Progress


@dataclass(frozen=True)
class Report:
    """What ``check`` found. Images count as duplicates if every pixel is equal.

    ``groups``: sets of equal images; ``extra``: images beyond the first of each; ``across_classes``: groups
    with more than one label; ``across_splits``: for each split, groups that lie in more than one of train,
    val and test, and how many test images have an equal in train or val.
    """

    count: int
    sha256: str
    groups: int
    extra: int
    across_classes: int
    across_splits: dict[str, tuple[int, int]]


def check(name: str, seed: int = 0, root: str | Path | None = None, progress: Progress = SILENT) -> Report:
    """Re-hashes a stored dataset and counts its exact duplicates, over the splits of ``seed``."""
    stored = opened(name, root)
    arrays: dict[str, np.ndarray] = {
        "labels": stored.labels,
        "origin": stored.origin,
        "images": stored.images,
    }
    if stored.part_map is not None:
        arrays["part_map"] = stored.part_map
    files = stored.manifest["files"]
    for key, array in arrays.items():
        if array_sha256(array) != files.get(key):
            raise TembedError(
                f"{stored.folder / key}.npy has changed since it was stored (sha256 differs): remove "
                f"{stored.folder} and get or import {name} again"
            )
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for index, image in enumerate(stored.images):
        by_digest[hashlib.sha256(image.tobytes()).digest()].append(index)
        if index % 1000 == 999:
            progress.update("comparing", index + 1, len(stored.images))
    groups = [members for members in by_digest.values() if len(members) > 1]
    splits = ["paper"]
    if (stored.origin == Origin.TEST).any() and (stored.origin == Origin.TRAIN).any():
        splits.append("official")
    across = {}
    for split in splits:
        part = np.zeros(len(stored.labels), np.uint8)
        try:
            parts = places_of(stored, split, seed)
        except TembedError as error:  # a class too small to split: said, and the rest is still checked
            progress.say(str(error))
            continue
        for number, places in enumerate(parts):
            part[places] = number
        mixed = [group for group in groups if len({int(part[i]) for i in group}) > 1]
        across[split] = (len(mixed), sum(int(part[i]) == 2 for group in mixed for i in group))
    return Report(
        count=len(stored.images),
        sha256=stored.sha256,
        groups=len(groups),
        extra=sum(len(group) - 1 for group in groups),
        across_classes=sum(len({int(stored.labels[i]) for i in group}) > 1 for group in groups),
        across_splits=across,
    )
