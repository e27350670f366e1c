"""Writes NumPy's ``.npy`` files chunk by chunk and hashes the contents at the same time.

It uses plain writes, not a memory-mapped file: on a full disk a write raises an error, but touching a mapped
page kills the process.
"""

import hashlib
import mmap
import os
from pathlib import Path
from types import TracebackType

import numpy as np

from tembed.common.arrays import Int64, UInt8
from tembed.common.files import file_state, open_file

HEADER = 128  # bytes; room for any shape, so that the count can be filled in at the end
RESIDENT = 1 << 28
"""Bytes of a mapped file that may stay in the memory of the process."""


class NpyWriter:
    """Appends chunks of equally shaped uint8 rows; the header gets its count when the file is closed.

    ``state`` is then the state of the file whose rows have the sha256.
    """

    def __init__(self, path: Path) -> None:
        self.file = open_file(path, "wb")
        self.file.write(bytes(HEADER))
        self.rest: tuple[int, ...] = ()
        self.count = 0
        self.state: list[int] = []
        self._hash = hashlib.sha256()

    def append(self, rows: UInt8) -> None:
        assert rows.dtype == np.uint8
        assert self.rest in ((), rows.shape[1:])
        data = np.ascontiguousarray(rows).data.cast("B") if rows.size else b""
        self.rest = rows.shape[1:]
        self.count += len(rows)
        self._hash.update(data)
        self.file.write(data)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.rest)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def __enter__(self) -> "NpyWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.file:
            if kind is None:
                self.file.seek(0)
                self.file.write(header(self.shape))
                self.file.flush()
                os.fsync(self.file.fileno())
                self.state = file_state(self.file.fileno())


def header(shape: tuple[int, ...]) -> bytes:
    """Version 1.0 of the format, for uint8 in C order, padded to ``HEADER`` bytes."""
    text = repr({"descr": "|u1", "fortran_order": False, "shape": shape})
    start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
    return start + text.ljust(HEADER - 11).encode("ascii") + b"\n"


def write_array(path: Path, array: np.ndarray) -> None:
    """Write and sync a whole array."""
    with open_file(path, "wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


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
    step = max(1, (8 << 20) // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), step):
        chunk = take_rows(array, slice(start, start + step))
        found.update(np.ascontiguousarray(chunk, chunk.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()
