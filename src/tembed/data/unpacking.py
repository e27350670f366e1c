"""Compressed tars as plain ones in an unnamed temporary file, so that members can be read in any order."""

import bz2
import gzip
import lzma
import tarfile
import tempfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from tembed.errors import TembedError

ALWAYS_FINE = 1 << 30  # bytes
MAX_RATIO = 100  # images and arrays of pixels never pack this well
CHUNK = 1 << 20
PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def too_large(path: Path, unpacked: int) -> None:
    """Refuses a decompression bomb."""
    packed = path.stat().st_size
    if unpacked > ALWAYS_FINE and unpacked > MAX_RATIO * packed:
        raise TembedError(
            f"{path} holds {packed} bytes but unpacks to {unpacked} or more: refused as a decompression bomb"
        )


def plain_tar(path: Path, stack: ExitStack) -> IO[bytes] | None:
    """A seekable uncompressed tar for ``path``, or None if that is no tar at all."""
    file = stack.enter_context(path.open("rb"))
    magic = file.read(6)
    file.seek(0)
    for mark, unpack in PACKERS.items():
        if magic.startswith(mark):
            return _unpacked(path, stack.enter_context(unpack(file)), stack)
    known = tarfile.is_tarfile(file)
    file.seek(0)
    return file if known else None


def _unpacked(path: Path, packed: IO[bytes], stack: ExitStack) -> IO[bytes]:
    plain: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    size = 0
    while chunk := _next_chunk(path, packed):
        size += len(chunk)
        too_large(path, size)
        try:
            plain.write(chunk)
        except OSError as error:
            raise TembedError(
                f"{path} needs room to unpack in {tempfile.gettempdir()} ({error.strerror}): "
                "free some, or set TMPDIR to a larger folder"
            ) from None
    plain.seek(0)
    return plain


def _next_chunk(path: Path, packed: IO[bytes]) -> bytes:
    try:
        return packed.read(CHUNK)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise TembedError(f"{path} is damaged or cut off ({error}): fetch a fresh copy") from None
