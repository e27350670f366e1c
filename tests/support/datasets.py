"""Small datasets to train on: the parts world with few and small images."""

from pathlib import Path

import numpy as np
import torch

from tembed.lab.data.image_set import ImageSet
from tembed.lab.data.parts.world import generate
from tembed.lab.data.readers.reading import Chunk, Reading
from tembed.lab.data.store import store


def planes(images: ImageSet) -> torch.Tensor:
    """All images as bytes ``(N, 3, H, W)``."""
    return torch.from_numpy(images.pixels()).permute(0, 3, 1, 2)


def entries(root: Path) -> list[str]:
    """What is in a folder of datasets, but for its locks."""
    return sorted(path.name for path in root.iterdir() if path.name != ".locks")


def store_world(root: Path, name: str, count: int, size: int) -> None:
    """Store ``count`` images of ``size`` x ``size`` pixels as the dataset ``name``."""
    made = generate(count, size=size)
    assert made.part_map is not None
    images, labels = made.pixels(), made.labels.numpy()
    reading = Reading("generated", made.classes, iter([Chunk(images, labels, np.zeros(len(labels), np.uint8))]))
    store(root, name, reading, {"generator": "tests"}, made.part_map.numpy(), made.parts)


def store_all(root: Path) -> None:
    """``tiny`` has 130 training images of 16 pixels; ``dots`` has 65 of 8 pixels, for slow tests."""
    store_world(root, "tiny", 200, 16)
    store_world(root, "dots", 100, 8)
