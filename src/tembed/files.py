"""Files that are whole or absent: written aside, synced and renamed, and what the disk says told in one line."""

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
    """Put ``content`` at ``path``; whatever happens on the way, what was there before stays whole."""
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
    """Write and sync a file that is not yet in its place."""
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
    """Make renames in this folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what the disk says about ``path`` into one line with a way out."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            way_out = "free some space"
        elif error.errno in FORBIDDEN:
            way_out = "make it writable"
        elif error.errno in (errno.ENOENT, errno.ENOTDIR):
            way_out = "its folder is gone or in the way; put it back"
        else:
            way_out = "check the disk"
        raise TembedError(
            f"cannot write {path} ({error.strerror or error}): {way_out} and run the same command again; what was "
            "saved before is unharmed"
        ) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file ``path``; ends with the process, however that ends."""
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InUse(f"{path.parent} is in use by another process: wait for it, or give another --out") from None
    try:
        yield
    finally:
        os.close(descriptor)
