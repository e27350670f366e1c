"""What every reader returns: labelled images in chunks, before they are stored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tembed.common.arrays import Fit, Int64, UInt8
from tembed.common.errors import TembedError


@dataclass(frozen=True)
class Options:
    """How image files are read. ``size``: the side in pixels; None keeps images that are squares of one size."""

    size: int | None = None
    fit: Fit = "crop"
    skip_broken: bool = False


class NeedsSize(TembedError):
    """The images are not squares of one size, and no size was given."""


class SourceFile(NamedTuple):
    """The file that an image was decoded from: its name relative to the imported folder, and its sha256."""

    name: str
    sha256: str


class Chunk(NamedTuple):
    """``images``: ``(n, H, W, 3)``. ``labels``: ``(n,)``. ``subsets``: ``(n,)``, codes of ``tembed.lab.data.subsets``.

    ``files``: one for each image, or none if a file holds many images.
    """

    images: UInt8
    labels: Int64
    subsets: UInt8
    files: tuple[SourceFile, ...] = ()


class Resumable(Protocol):
    """The source of chunks that can go on where an earlier one ended."""

    def state(self) -> dict[str, Any]:
        """Where it is after the last chunk, as plain values."""

    def resume(self, state: dict[str, Any]) -> bool:
        """Go on from this state, before the first chunk. False if the files up to there are no longer the same."""


@dataclass
class Reading:
    """A dataset found in files. Its classes are known at once; its images are read while ``chunks`` is iterated (once).

    ``kind`` says what the files are. ``left_out`` lists broken images that were skipped. ``notes`` are lines for the
    user about other files that were skipped and about how images were fitted. Both are complete when ``chunks`` is
    exhausted. ``source`` is None if the images cannot be read from the middle.
    """

    kind: str
    classes: tuple[str, ...]
    chunks: Iterator[Chunk]
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    source: Resumable | None = None
