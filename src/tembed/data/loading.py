"""A stored dataset as train, validation and test tensors."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from tembed.data.catalogue import KNOWN
from tembed.data.images import ImageSet, Splits
from tembed.data.reading import Int64, UInt8
from tembed.data.splits import Places, official_split, paper_split
from tembed.data.storage import Stored, default_root, is_stored, open_stored, stored_names
from tembed.errors import TembedError


def load(
    name: str, split: Literal["paper", "official"] = "paper", seed: int = 0, root: str | Path | None = None
) -> Splits:
    """The dataset ``name`` from ``root`` (default: ``$TEMBED_DATA``, else the user's cache folder).

    ``split="paper"`` pools all images and cuts 65 / 15 / 20 % of every class by ``seed`` (§4); ``"official"``
    keeps the published train and test sets. ``mean`` and ``std`` are those of the training images, with
    pixels from 0 to 1.
    ``parts`` is generated on first use; every other dataset must have been got or imported before.
    """
    root = Path(root) if root is not None else default_root()
    if not is_stored(root, name):
        if name != "parts":
            raise TembedError(f"{name!r} is not in {root}: {_way_out(root, name)}")
        from tembed.data.sources import get

        get(name, root=root)
    stored = open_stored(root, name)
    places = places_of(stored, split, seed)
    train = _take(stored, places.train)
    mean, std = statistics(stored.images, places.train)
    return Splits(
        name=name,
        split=split,
        seed=seed,
        sha256=stored.sha256,
        train=train,
        val=_take(stored, places.val),
        test=_take(stored, places.test),
        mean=mean,
        std=std,
    )


def _way_out(root: Path, name: str) -> str:
    if name in KNOWN:
        return f"run `tembed data get {name}`"
    have = ", ".join(stored_names(root)) or "nothing"
    return f"that holds {have}; add your own images with `tembed data import PATH --name {name}`"


def places_of(stored: Stored, split: str, seed: int) -> Places:
    """The split of a stored dataset, as positions in its pool."""
    if split == "paper":
        return paper_split(stored.labels, stored.classes, seed)
    if split == "official":
        return official_split(stored.labels, stored.origin, stored.classes, seed)
    raise TembedError(f"split {split!r} is unknown: use 'paper' or 'official'")


def statistics(images: UInt8, which: Int64) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation of each channel over these images, from exact integer sums."""
    total = np.zeros(3, np.int64)
    squares = np.zeros(3, np.int64)
    for start in range(0, len(which), 512):
        pixels = torch.from_numpy(images[which[start : start + 512]]).reshape(-1, 3).to(torch.int32)
        total += pixels.sum(0, dtype=torch.int64).numpy()
        squares += pixels.square_().sum(0, dtype=torch.int64).numpy()
    count = len(which) * images.shape[1] * images.shape[2]
    mean = total / count
    variance = squares / count - mean**2
    red, green, blue = (mean / 255).tolist()
    red_std, green_std, blue_std = (np.sqrt(np.maximum(variance, 0)) / 255).tolist()
    return (red, green, blue), (red_std, green_std, blue_std)


def _take(stored: Stored, which: Int64) -> ImageSet:
    return ImageSet(
        images=torch.from_numpy(stored.images[which]).permute(0, 3, 1, 2),
        labels=torch.from_numpy(stored.labels[which]),
        classes=stored.classes,
        indices=torch.from_numpy(which),
        part_map=None if stored.part_map is None else torch.from_numpy(stored.part_map[which]),
        parts=tuple(stored.manifest["parts"]),
    )
