"""A stored dataset as its train, validation and test subsets."""

from pathlib import Path

import torch

from tembed.common.progress import SILENT, Progress
from tembed.lab.data.getting import open_dataset
from tembed.lab.data.image_set import ImageSet, Splits
from tembed.lab.data.splits import Split, split_indices, usual_split
from tembed.lab.data.verification import verify


def load(
    name: str,
    split: Split | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    progress: Progress = SILENT,
) -> Splits:
    """The dataset ``name`` from ``root`` (default: ``$TEMBED_DATA``, else the user's cache folder).

    ``split="paper"`` pools all images and takes 65 / 15 / 20 % of every class by ``seed`` (§4); ``"official"`` keeps
    the published train and test subsets, or those of the imported folders. By default a dataset with a split of its own
    keeps it, and all others, the paper's included, are split as in the paper. ``mean`` and ``std`` are those of the
    training images, with pixels from 0 to 1. A generated dataset is made on first use; others must be stored with `get`
    or `import_images` first. Stored pixels that have changed are refused; ``progress`` gets a line about files that are
    too large to be compared as a whole.
    """
    stored = open_dataset(name, root)
    for path in verify(stored):
        progress.say(
            f"note: {path} ({path.stat().st_size / 1e9:,.0f} GB) is not the file that was written by the import on "
            f"this machine, and too large to be hashed now; `tembed data check {name}` does so once"
        )
    split = split or usual_split(stored)
    indices = split_indices(stored, split, seed)
    pool = ImageSet(
        pool=stored.images,
        labels=torch.from_numpy(stored.labels),
        classes=stored.classes,
        indices=torch.arange(len(stored.labels)),
        pool_part_map=stored.part_map,
        parts=tuple(stored.manifest["parts"]),
        pool_files=stored.file_names(),
        pool_sums=stored.sums(),
    )
    train, val, test = (pool.subset(torch.from_numpy(each)) for each in indices)
    return Splits(name, split, seed, stored.sha256, train, val, test, stored.fit)
