"""What every reader returns: labelled images in chunks, before they are stored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple

from tembed.common.arrays import Int64, UInt8
from tembed.common.errors import TembedError

Fit = Literal["crop", "pad", "stretch"]
"""How an oblong image becomes a square: keep its centre, pad it with grey, or stretch it."""


@dataclass(frozen=True)
class Options:
    """How image files are read. ``size``: the side in pixels; None keeps images that are squares of one size."""

    size: int | None = None
    fit: Fit = "crop"
    skip_broken: bool = False


class NeedsSize(TembedError):
    """The images are not squares of one size, and no size was given."""


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

    ``layout`` says what the files are. ``left_out`` lists broken images that were skipped. ``notes`` are lines for the
    user about other files that were skipped and about how images were fitted. Both are complete when ``chunks`` is
    exhausted.
    """

    layout: str
    classes: tuple[str, ...]
    chunks: Iterator[Chunk]
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
