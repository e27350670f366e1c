"""Files that are either complete or absent: written aside, synced and renamed. Also locks, and one-line disk errors."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tembed.errors import TembedError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class InUse(TembedError):
    """Another process holds the lock."""


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``. If anything fails, the old file stays complete."""
    aside = path.with_name(path.name + ".part")
    with explained(path):
        try:
            write_aside(aside, content)
            os.replace(aside, path)
            sync_folder(path.parent)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def write_aside(path: Path, content: bytes) -> None:
    """Write and sync a file under a temporary name."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """`write_file` for plain values."""
    write_file(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The plain values in a file that `write_json` wrote."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TembedError(f"{path} is missing or damaged ({error}): restore it, or train into another folder") from None


def sync_folder(folder: Path) -> None:
    """Make renames in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a disk error about ``path`` into one line that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            way_out = "free some space"
        elif error.errno in FORBIDDEN:
            way_out = "make it writable"
        elif error.errno in (errno.ENOENT, errno.ENOTDIR):
            way_out = "its folder is gone, or a file is in its place; restore it"
        else:
            way_out = "check the disk"
        raise TembedError(
            f"cannot write {path} ({error.strerror or error}): {way_out} and run the same command again; everything "
            "saved so far is intact"
        ) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``. The system releases it when the process ends, however it ends."""
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InUse(f"{path.parent} is in use by another process: wait for it, or give another `out`") from None
    try:
        yield
    finally:
        os.close(descriptor)
