"""A stored dataset as train, validation and test tensors."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

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
    train = _take(stored, indices.train, names)
    mean, std = statistics(train.images)
    return Splits(
        name=name,
        split=split,
        seed=seed,
        sha256=stored.sha256,
        train=train,
        val=_take(stored, indices.val, names),
        test=_take(stored, indices.test, names),
        mean=mean,
        std=std,
        fit=stored.fit,
    )


def statistics(images: Tensor) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation of each channel of ``(N, 3, H, W)``, from exact integer sums."""
    rows = images.permute(0, 2, 3, 1).flatten(1).numpy()
    total = np.zeros(rows.shape[1], np.int64)
    squares = np.zeros(rows.shape[1], np.int64)
    for start in range(0, len(rows), 64):  # few enough images to stay in the cache
        chunk = rows[start : start + 64].astype(np.int32)
        total += chunk.sum(0, dtype=np.int32)
        squares += np.square(chunk, out=chunk).sum(0, dtype=np.int32)
    count = rows.size / 3
    mean = total.reshape(-1, 3).sum(0) / count
    variance = squares.reshape(-1, 3).sum(0) / count - mean**2
    red, green, blue = (mean / 255).tolist()
    red_std, green_std, blue_std = (np.sqrt(np.maximum(variance, 0)) / 255).tolist()
    return (red, green, blue), (red_std, green_std, blue_std)


def _take(stored: Stored, which: Int64, files: list[str] | None) -> ImageSet:
    return ImageSet(
        images=torch.from_numpy(stored.images[which]).permute(0, 3, 1, 2),
        labels=torch.from_numpy(stored.labels[which]),
        classes=stored.classes,
        indices=torch.from_numpy(which),
        part_map=None if stored.part_map is None else torch.from_numpy(stored.part_map[which]),
        parts=tuple(stored.manifest["parts"]),
        files=None if files is None else tuple(files[index] for index in which.tolist()),
    )
