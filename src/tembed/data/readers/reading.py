"""What every reader returns: labelled images in chunks, before they are stored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tembed.arrays import Int64, UInt8


class Origin(IntEnum):
    """The subset of the published split that an image came from, if its source says so."""

    NONE = 0
    TRAIN = 1
    VAL = 2
    TEST = 3


class SourceFile(NamedTuple):
    """The file that an image was decoded from: its name relative to the imported folder, and its sha256."""

    name: str
    sha256: str


class Chunk(NamedTuple):
    """``images``: ``(n, H, W, 3)``; ``labels`` and ``origin``: ``(n,)``.

    ``files``: one for each image, or none if the layout stores many images in a file.
    """

    images: UInt8
    labels: Int64
    origin: UInt8
    files: tuple[SourceFile, ...] = ()


@dataclass
class Reading:
    """A dataset found in files. Its classes are known at once; its images are read while ``chunks`` is iterated (once).

    ``layout`` says what the files are. ``left_out`` lists broken images that were skipped; it is complete when
    ``chunks`` is exhausted.
    """

    layout: str
    classes: tuple[str, ...]
    chunks: Iterator[Chunk]
    left_out: list[str] = field(default_factory=list)
