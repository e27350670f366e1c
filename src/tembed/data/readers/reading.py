"""What every reader returns: labelled images in blocks, before they are stored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tembed.arrays import Int64, UInt8
from tembed.errors import TembedError


class Origin(IntEnum):
    """The part of the published split that an image came from, where its source says so."""

    NONE = 0
    TRAIN = 1
    VAL = 2
    TEST = 3


class Block(NamedTuple):
    """``images``: ``(n, H, W, 3)``; ``labels`` and ``origin``: ``(n,)``."""

    images: UInt8
    labels: Int64
    origin: UInt8


@dataclass
class Reading:
    """A dataset found in files: its classes at once, its images while ``blocks`` is walked (once).

    ``left_out`` lists what was skipped as broken; it is complete when ``blocks`` is exhausted.
    """

    layout: str
    classes: tuple[str, ...]
    blocks: Iterator[Block]
    left_out: list[str] = field(default_factory=list)


def planes_to_block(rows: UInt8, labels: Int64, origin: Origin, classes: int, where: str) -> Block:
    """CIFAR's rows of 3,072 bytes (red plane, green plane, blue plane) as a block, labels checked."""
    if len(rows) != len(labels):
        raise TembedError(f"{where} has {len(rows)} images but {len(labels)} labels: fetch a fresh copy")
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        wrong = int(labels.max() if labels.max() >= classes else labels.min())
        raise TembedError(
            f"{where} has the label {wrong}; {classes} classes allow 0 to {classes - 1}: fetch a fresh copy"
        )
    images = np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return Block(images, labels, np.full(len(labels), origin, np.uint8))
