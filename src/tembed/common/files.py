"""Files that are either complete or absent, locks, and disk errors in one line.

Everything that the package writes goes through this module, which follows no links: a run folder may come from a
stranger, and a link in it must not lead the files of a command elsewhere.
"""

import errno
import json
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from filelock import FileLock, Timeout

from tembed.common.errors import TembedError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
"""The flag of `os.open` that refuses a link. Windows has none."""
MOMENT = 0.1
"""Seconds to try to get a lock: another process may hold it for an instant, only to see whether it is free."""
MOST_BYTES = 1 << 26
"""Size of the largest file that is read as a whole, unless its reader says otherwise."""
ABANDONED = 3600.0
"""Seconds after which an unfinished file is one that a killed process left."""


class InUse(TembedError):
    """Another process holds the lock."""

    exit_code = 75  # EX_TEMPFAIL in sysexits.h: try again later


# --- writing


def write_file(path: Path, content: bytes, mode: int = 0o666, sync: bool = True) -> None:
    """Write ``content`` to ``path``: under another name, synced and renamed. If anything fails, the old file stays.

    A link at ``path`` is replaced. ``sync=False``: for a file that is of no use after a power cut.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    with explained(path):
        try:
            with open_file(part, "xb", mode) as file:
                file.write(content)
                if sync:
                    sync_file(file)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        if sync:
            sync_folder(path.parent)
    _remove_abandoned(path)


def open_file(path: Path, mode: Literal["wb", "ab", "xb", "r+b"], permissions: int = 0o666) -> BinaryIO:
    """Open a file that is written bit by bit. Raises `OSError` if it is a link."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | NO_LINKS, permissions))


def sync_file(file: BinaryIO) -> None:
    """Make what was written to a file survive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def move(old: Path, new: Path) -> None:
    """Rename a file or folder, also over another file, so that the new name survives a power cut. Raises `OSError`."""
    os.replace(old, new)
    for folder in dict.fromkeys((new.parent, old.parent)):
        sync_folder(folder)


def remove_file(path: Path) -> None:
    """Remove a file, if there is one, so that it does not come back after a power cut. Raises `OSError`."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folder(folder: Path) -> Path:
    """`add_folder`, with an error in one line."""
    with explained(folder, new=not folder.is_dir()):
        return add_folder(folder)


def add_folder(folder: Path) -> Path:
    """Make a folder and its parents. Those that are new survive a power cut. Raises `OSError`."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        sync_folder(each.parent)
    return folder


def below(folder: Path, *names: str) -> Path:
    """The path ``folder/name/...``. Raises `TembedError` if one of the names is a link.

    The user chose ``folder``, which may be a link. What is below it may be from somebody else.
    """
    for name in names:
        folder /= name
        with explained(folder):
            if folder.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return folder


def is_part(file: str, names: Iterable[str]) -> bool:
    """Whether this is an unfinished file that a killed `write_file` left beside one of these."""
    return any(file.startswith(f"{name}.") and file.endswith(".part") for name in names)


def _remove_abandoned(path: Path) -> None:
    for part in path.parent.glob(f"{path.name}.*.part"):
        with suppress(OSError):
            if time.time() - part.lstat().st_mtime > ABANDONED:
                part.unlink()


def write_json(path: Path, value: Any) -> None:
    """`write_file` for plain values."""
    write_file(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def check_regular(path: Path) -> int:
    """The size of a regular file. Raises `OSError` for anything else: a pipe or a device may never end."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return found.st_size


def read_file(path: Path, most: int | None = None) -> bytes:
    """The content of a regular file of at most ``most`` bytes, by default `MOST_BYTES`. Raises `OSError`."""
    size, most = check_regular(path), MOST_BYTES if most is None else most
    if size > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than the {most:,} that are read", str(path))
    return path.read_bytes()


def parse_json(content: bytes | str) -> Any:
    """The plain values in JSON. Raises `ValueError` or `RecursionError`, also for a number that no float holds."""
    return json.loads(content, parse_int=_whole, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _whole(text: str) -> int:
    _finite(text)
    return int(text)


def read_json(path: Path) -> Any:
    """The plain values in a file that `write_json` wrote."""
    try:
        return parse_json(read_file(path))
    except (OSError, ValueError, RecursionError) as error:
        raise TembedError(f"{path} is missing or damaged ({error}): restore it, or train into another folder") from None


def file_state(file: Path | int) -> list[int]:
    """What tells whether a file on a disk has changed: size, inode and times. Raises `OSError`.

    Whatever changes the bytes of a file changes its time of status change, which no program can set.
    """
    found = os.stat(file)
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def is_in_memory(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a folder is on a file system in memory, where writing through a memory map changes no time."""
    try:
        device, lines = os.stat(folder).st_dev, mounts.read_text("utf-8", "replace").splitlines()
    except OSError:  # not on Linux
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.partition(" - ")[2].split()[:1] for line in lines if line.split()[2:3] == [name]]
    return ["tmpfs"] in kinds or ["ramfs"] in kinds


def sync_folder(folder: Path) -> None:
    """Make renames in this folder survive a power cut."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(path: Path, *, new: bool = False) -> Iterator[None]:
    """Turn a disk error about ``path`` into one line that says what to do. ``new``: nothing was saved there before."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            way_out = "free some space"
        elif error.errno in FORBIDDEN:
            way_out = f"make {next(each for each in (path, *path.parents) if each.exists())} writable"
        elif error.errno == errno.EEXIST:
            way_out = "a file is in its place; move it elsewhere"
        elif error.errno in (errno.ENOENT, errno.ENOTDIR):
            way_out = "its folder is gone, or a file is in its place; restore it"
        elif error.errno == errno.ELOOP:
            way_out = "it is a link, and links are not followed; remove it"
        else:
            way_out = "check the disk"
        rest = "" if new or not _saved_beside(path) else "; everything saved so far is intact"
        raise TembedError(
            f"cannot write {path} ({error.strerror or error}): {way_out} and run the same command again{rest}"
        ) from None


def _saved_beside(path: Path) -> bool:
    """Whether the folder of ``path`` holds files, apart from locks and unfinished ones."""
    with suppress(OSError):
        return any(each.name != "lock" and each.suffix != ".part" for each in path.parent.iterdir())
    return False


# --- the user's cache


def user_cache() -> Path:
    """``$XDG_CACHE_HOME``, else ``~/.cache``. Raises `RuntimeError` if there is no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def private_folder(name: str) -> Path | None:
    """The folder ``tembed/name`` of the user's cache, if only this user (or root) can put files there."""
    with suppress(RuntimeError, OSError):  # there is no home, or it cannot be written
        folder = user_cache() / "tembed" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_ours(folder, stat.S_ISDIR):
            return folder
    return None


def is_ours(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether only this user (or root) can write this file or folder, and it is no link."""
    found = path.lstat()
    if not hasattr(os, "getuid"):
        return True
    return is_kind(found.st_mode) and found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o022


# --- locks


@dataclass(frozen=True)
class Lock:
    """A lock file in use. ``held`` is False on a file system without locks."""

    path: Path
    held: bool
    identity: tuple[int, int] | None

    def check(self) -> None:
        """Raise `TembedError` if the folder is gone, or if another folder is in its place."""
        with explained(self.path):
            found = _identity(self.path)
        if found != self.identity:
            raise TembedError(
                f"{self.path.parent} is no longer the folder of this run: it was removed and made again, so nothing "
                "more is saved there; run the same command again with another `out`"
            )


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[Lock]:
    """Hold the lock file ``path``. The system releases it when the process ends, however it ends.

    If another process holds it: raises `InUse`, or calls ``waiting`` once and waits.
    """
    lock, held = FileLock(path, fallback_to_soft=False), True
    with explained(path, new=not path.exists()):
        try:
            try:
                lock.acquire(timeout=MOMENT, poll_interval=MOMENT / 5)
            except Timeout:
                if waiting is None:
                    raise InUse(
                        f"{path.parent} is in use by another process: wait for it, or give another `out`"
                    ) from None
                waiting()
                lock.acquire()
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            held = False
            open_file(path, "ab").close()
        identity = _identity(path)
    try:
        yield Lock(path, held, identity)
    finally:
        if held:
            lock.release()


@contextmanager
def locked_folder(folder: Path) -> Iterator[Lock]:
    """Make a folder and hold its lock. After an error nothing is left of a folder that is empty but for the lock."""
    make_folder(folder)
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
    if not path.exists():
        return False
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
