"""Files that are either complete or absent: written aside, synced and renamed. Also locks, and one-line disk errors."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tembed.common.errors import TembedError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
LOCK_TRIES = 5
"""How often to try to get a lock: another process may hold it for an instant, only to see whether it is free."""


class InUse(TembedError):
    """Another process holds the lock."""

    exit_code = 75  # EX_TEMPFAIL in sysexits.h: try again later


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``. If anything fails, the old file stays complete."""
    aside = path.with_name(path.name + ".part")
    with explained(path), temporary_file(aside, content):
        os.replace(aside, path)
        sync_folder(path.parent)


@contextmanager
def temporary_file(path: Path, content: bytes) -> Iterator[None]:
    """Write and sync a file under a temporary name, which the caller renames within the ``with``.

    Another process that writes the same name waits meanwhile. A file that a killed process left is overwritten.
    """
    descriptor = _own(path)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.truncate()
            file.write(content)
        os.fsync(descriptor)
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _own(path: Path) -> int:
    """Open a file, or make it, and wait until no other process writes it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:  # a file system without locks
                return descriptor
            with suppress(FileNotFoundError):
                if _is_file(path, descriptor):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its writer has renamed it


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


@dataclass(frozen=True)
class Lock:
    """A lock file that this process has opened. ``held`` is False on a file system without locks."""

    path: Path
    descriptor: int
    held: bool

    def check(self) -> None:
        """Raise `TembedError` if the folder is gone, or if another folder is in its place."""
        with explained(self.path):
            ours = _is_file(self.path, self.descriptor)
        if not ours:
            raise TembedError(
                f"{self.path.parent} is no longer the folder of this run: it was removed and made again, so nothing "
                "more is saved there; run the same command again with another `out`"
            )


@contextmanager
def locked(path: Path) -> Iterator[Lock]:
    """Hold the lock file ``path``. The system releases it when the process ends, however it ends."""
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        held = False
        for left in reversed(range(LOCK_TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not left:
                    raise InUse(
                        f"{path.parent} is in use by another process: wait for it, or give another `out`"
                    ) from None
                time.sleep(0.02)
            except OSError:  # a file system without locks
                break
            else:
                held = True
                break
        yield Lock(path, descriptor, held)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path) -> Iterator[Lock]:
    """Make a folder and hold its lock. After an error nothing is left of a folder that is empty but for the lock."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock") as lock:
        try:
            yield lock
        except BaseException:
            with suppress(OSError):
                if os.listdir(folder) == ["lock"]:
                    (folder / "lock").unlink()
                    folder.rmdir()
            raise


def is_locked(path: Path) -> bool:
    """Whether another process holds this lock file; False on a file system without locks."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _is_file(path: Path, descriptor: int) -> bool:
    """Whether ``path`` is still the file that was opened. Raises `FileNotFoundError` if there is none."""
    return os.path.samestat(os.stat(path), os.fstat(descriptor))
