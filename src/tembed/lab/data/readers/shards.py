"""Many tars as one archive: the shards of a WebDataset, or a tar for each class.

Each file has the name that it would have if every tar were unpacked into a folder of its own name. The tars are read in
place, and none stays open.
"""

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tembed.common.errors import TembedError
from tembed.images.image_files import ENDINGS
from tembed.lab.data.readers.archives import COMPRESSORS, MAX_ENTRIES, Archive, Tar, file_numbers, open_archive

BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
CLASS_NAMES = "classnames.txt"


@contextmanager
def open_source(path: Path) -> Iterator[Archive]:
    """What an import reads: an archive or a folder of images, a folder of tars, or tars named by braces."""
    if not path.exists() and BRACES.search(path.name):
        beside = path.with_name(CLASS_NAMES)
        others = {CLASS_NAMES: beside} if beside.is_file() else {}
        yield Shards(path, {each.name: each for each in map(path.with_name, expand_braces(path.name))}, others)
        return
    with open_archive(path) as archive:
        tars = [name for name in archive.names if name.endswith(".tar")]
        if not path.is_dir() or not tars or any(name.lower().endswith(tuple(ENDINGS)) for name in archive.names):
            yield archive
        else:
            others = {name: path / name for name in archive.names if name not in tars and (path / name).is_file()}
            yield Shards(path, {name: path / name for name in tars}, others)


def expand_braces(text: str) -> list[str]:
    """All names that ``a-{000..146}.tar`` or ``{train,val}.tar`` stands for."""
    found = BRACES.search(text)
    if found is None:
        return [text]
    first, last, listed = found.groups()
    if listed is not None:
        choices = listed.split(",")
    elif int(last) - int(first) > MAX_ENTRIES:
        raise TembedError(f"{text} names more than {MAX_ENTRIES:,} files: refused")
    else:
        choices = [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
    return [name for choice in choices for name in expand_braces(text[: found.start()] + choice + text[found.end() :])]


class Shards:
    """``tars`` and ``others``, which are not unpacked: name to path."""

    def __init__(self, path: Path, tars: dict[str, Path], others: dict[str, Path]) -> None:
        self.path = path
        self._places: dict[str, tuple[Path, int, int]] = {
            name: (other, 0, os.path.getsize(other)) for name, other in others.items()
        }
        self._numbers = {other: file_numbers(other) for other in others.values()}
        folders: list[str] = []
        notes: list[str] = []
        for name, tar in tars.items():
            prefix = name.removesuffix(".tar")
            with _open_plain(tar) as archive:
                self._numbers[tar] = file_numbers(tar)
                for member, (offset, size) in archive.places.items():
                    if f"{prefix}/{member}" in self._places:
                        raise TembedError(f"{path} has two files named {prefix}/{member}: rename one of the tars")
                    self._places[f"{prefix}/{member}"] = tar, offset, size
                folders += (f"{prefix}/{folder}" for folder in archive.folders)
                notes += (f"{name}: {note}" for note in archive.notes)
        self.names = tuple(sorted(self._places))
        self.folders, self.notes = tuple(sorted(folders)), tuple(notes)

    def size(self, name: str) -> int:
        return self._places[name][2]

    def state(self, name: str) -> tuple[int, ...]:
        tar, offset, size = self._places[name]
        return *self._numbers[tar], offset, size

    def open(self, name: str) -> IO[bytes]:
        tar, offset, size = self._places[name]
        with tar.open("rb") as file:
            file.seek(offset)
            return io.BytesIO(file.read(size))


@contextmanager
def _open_plain(path: Path) -> Iterator[Tar]:
    """A tar that is not compressed."""
    if path.is_file():
        with path.open("rb") as file:
            magic = file.read(6)
        if any(magic.startswith(mark) for mark in COMPRESSORS):
            raise TembedError(f"{path} is compressed, and tars of many are read in place: unpack it to a plain tar")
    with open_archive(path) as archive:
        if not isinstance(archive, Tar):
            raise TembedError(f"{path} is not a tar: remove it, or import it alone")
        yield archive
