"""Writes NumPy's ``.npy`` files chunk by chunk and hashes the contents at the same time.

It uses plain writes, not a memory-mapped file: on a full disk a write raises an error, but touching a mapped
page kills the process.
"""

import hashlib
import math
import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from tembed.common.arrays import Int64
from tembed.common.files import file_state, open_file, sync_file

READ_BYTES = 8 << 20
HEADER = 128  # bytes; room for any shape, so that the count can be filled in at the end
RESIDENT = 1 << 28
"""Bytes of a mapped file that may stay in the memory of the process."""


class HashedFile:
    """A file that is written bit by bit and hashed at the same time. It can go on where an earlier writer was saved.

    The first ``start`` bytes are not hashed. Call `reset` or `resume` first. Once it is closed, ``state`` is the state
    of the file whose bytes have the hash.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.file = open_file(path, "r+b" if path.exists() else "wb")
        self.start, self.length, self._hash = start, 0, hashlib.sha256()
        self.state: list[int] = []

    def reset(self) -> None:
        """Begin with an empty file."""
        self.length, self._hash = 0, hashlib.sha256()
        self.file.seek(0)
        self.file.truncate()
        self.file.write(bytes(self.start))

    def resume(self, length: int, sha256: str) -> bool:
        """Go on after this many bytes of an earlier writer; False if they do not have this hash."""
        self.file.seek(self.start)
        while self.length < length and (data := self.file.read(min(READ_BYTES, length - self.length))):
            self._hash.update(data)
            self.length += len(data)
        self.file.seek(self.start + self.length)
        self.file.truncate()
        return self.length == length and self.sha256 == sha256

    def write(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self.file.write(data)
        self.length += len(data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def sync(self) -> None:
        sync_file(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.file:
            if kind is None:
                self.finish()
                self.sync()
                self.state = file_state(self.file.fileno())

    def finish(self) -> None:
        """Called before the complete file is synced and closed."""


class NpyWriter(HashedFile):
    """Appends chunks of equally shaped rows; the header gets their number when the file is closed."""

    def __init__(self, path: Path, dtype: type = np.uint8, rest: tuple[int, ...] = ()) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.rest = rest
        super().__init__(path, HEADER)

    def append(self, rows: np.ndarray) -> None:
        assert rows.dtype == self.dtype
        assert not self.length or rows.shape[1:] == self.rest
        self.rest = rows.shape[1:]
        self.write(np.ascontiguousarray(rows, self.dtype).data.cast("B") if rows.size else b"")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array so far."""
        return (self.length // (self.dtype.itemsize * math.prod(self.rest)), *self.rest)

    def finish(self) -> None:
        self.file.seek(0)
        self.file.write(header(self.shape, self.dtype.str))


def header(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    """Version 1.0 of the format, in C order, padded to ``HEADER`` bytes."""
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape})
    start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
    return start + text.ljust(HEADER - 11).encode("ascii") + b"\n"


def write_array(path: Path, array: np.ndarray) -> None:
    """Write and sync a whole array."""
    array = np.ascontiguousarray(array)
    with open_file(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)
        sync_file(file)


def take_rows(array: np.ndarray, which: Int64 | slice) -> np.ndarray:
    """A copy of these rows. If the array is mapped and larger than `RESIDENT`, its pages are released."""
    found = np.array(array[which]) if isinstance(which, slice) else array[which]
    if array.nbytes > RESIDENT:
        release(array)
    return found


def release(array: np.ndarray) -> None:
    """Drop the pages of a memory-mapped array from this process. The system keeps them in its cache.

    Otherwise a pass over a part of the array would end with nearly all of it in the memory of the process, because the
    system maps the neighbours of a page as well.
    """
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def array_sha256(array: np.ndarray) -> str:
    """The sha256 of an array's bytes in C order and little-endian, read in chunks."""
    found = hashlib.sha256()
    step = max(1, READ_BYTES // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), step):
        chunk = take_rows(array, slice(start, start + step))
        found.update(np.ascontiguousarray(chunk, chunk.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()
