"""Writes the arrays of a dataset as its images are decoded, and saves how far it is.

No array is collected in memory. Every `SAVE_SECONDS` the files are synced, and then ``unfinished.json`` notes their
lengths and hashes and the state of the source: the next import of the same files goes on from there.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np

from tembed.common.errors import TembedError
from tembed.common.files import read_json, write_json
from tembed.lab.data.filelist import FILE_LIST, file_line
from tembed.lab.data.npy import HashedFile, NpyWriter
from tembed.lab.data.readers.reading import Chunk, Resumable
from tembed.lab.data.sums import SUMS, image_sums

UNFINISHED = "unfinished.json"
SAVE_SECONDS = 10.0


class PoolWriter:
    """The files of a dataset in ``folder``, with a row or a line for each image.

    It goes on where an earlier import of ``source`` was saved. ``list`` stays empty if a file holds many images.
    """

    def __init__(self, folder: Path, source: Resumable | None) -> None:
        self.folder, self.source = folder, source
        with ExitStack() as opened:  # a file that cannot be opened closes the others
            self.images = opened.enter_context(NpyWriter(folder / "images.npy"))
            self.labels = opened.enter_context(NpyWriter(folder / "labels.npy", np.int64))
            self.origin = opened.enter_context(NpyWriter(folder / "origin.npy"))
            self.sums = opened.enter_context(NpyWriter(folder / SUMS, np.int64, rest=(6,)))
            self.list = opened.enter_context(HashedFile(folder / FILE_LIST))
            self.files: dict[str, HashedFile] = {"images": self.images, "labels": self.labels, "origin": self.origin}
            self.files |= {"sums": self.sums, "list": self.list}
            if source is None or not self._resume(source):
                for file in self.files.values():
                    file.reset()
            self.open_files = opened.pop_all()
        self.saved = time.monotonic()

    def append(self, chunk: Chunk) -> None:
        """Write a chunk, and save if it is time."""
        self.images.append(chunk.images)
        self.labels.append(chunk.labels)
        self.origin.append(chunk.subsets)
        self.sums.append(image_sums(chunk.images))
        self.list.write("".join(map(file_line, chunk.files)).encode())
        if self.source is not None and time.monotonic() - self.saved >= SAVE_SECONDS:
            self._save(self.source)

    def _save(self, source: Resumable) -> None:
        for file in self.files.values():
            file.sync()
        marks = {name: [file.length, file.sha256] for name, file in self.files.items()}
        record = {"files": marks, "image": self.images.rest, "source": source.state()}
        write_json(self.folder / UNFINISHED, record)
        self.saved = time.monotonic()

    def _resume(self, source: Resumable) -> bool:
        """Whether all files and the source are at the point that was saved last."""
        try:
            record = read_json(self.folder / UNFINISHED)
            self.images.rest = tuple(record["image"])
            intact = all(file.resume(*record["files"][name]) for name, file in self.files.items())
            return intact and source.resume(record["source"])
        except (TembedError, LookupError, TypeError, ValueError):  # there is none, or it is damaged
            return False

    def __enter__(self) -> "PoolWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open_files.__exit__(kind, error, trace)
