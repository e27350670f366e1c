"""A stored dataset as its train, validation and test subsets."""

from pathlib import Path

import torch

from tembed.common.arrays import Int64
from tembed.lab.data.getting import open_dataset
from tembed.lab.data.image_set import ImageSet, Splits
from tembed.lab.data.splits import Split, split_indices, usual_split
from tembed.lab.data.store import Stored
from tembed.lab.data.verification import verify


def load(name: str, split: Split | None = None, seed: int = 0, root: str | Path | None = None) -> Splits:
    """The dataset ``name`` from ``root`` (default: ``$TEMBED_DATA``, else the user's cache folder).

    ``split="paper"`` pools all images and takes 65 / 15 / 20 % of every class by ``seed`` (§4); ``"official"`` keeps
    the published train and test subsets, or those of the imported folders. By default a dataset with a split of its own
    keeps it, and all others, the paper's included, are split as in the paper. ``mean`` and ``std`` are those of the
    training images, with pixels from 0 to 1. A generated dataset is made on first use; others must be stored with `get`
    or `import_images` first. Stored pixels that have changed are refused.
    """
    stored = open_dataset(name, root)
    verify(stored)
    split = split or usual_split(stored)
    indices = split_indices(stored, split, seed)
    files = stored.files()
    names = None if files is None else [file.name for file in files]
    return Splits(
        name=name,
        split=split,
        seed=seed,
        sha256=stored.sha256,
        train=_take(stored, indices.train, names),
        val=_take(stored, indices.val, names),
        test=_take(stored, indices.test, names),
        fit=stored.fit,
    )


def _take(stored: Stored, which: Int64, files: list[str] | None) -> ImageSet:
    return ImageSet(
        pool=stored.images,
        labels=torch.from_numpy(stored.labels[which]),
        classes=stored.classes,
        indices=torch.from_numpy(which),
        pool_part_map=stored.part_map,
        parts=tuple(stored.manifest["parts"]),
        files=None if files is None else tuple(files[index] for index in which.tolist()),
    )
