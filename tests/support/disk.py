"""Records every call that changes files below a folder, makes one of them fail, and rebuilds what a power cut leaves.

`Disk` wraps the functions of ``os`` and the files that `tembed.common.files` opens. An audit hook raises if the code
under test changes a file in any other way, so nothing escapes the record. `Journal` turns the record into the states
that a power cut can leave: a write survives once its file is synced, and a new, renamed or removed name once its folder
is synced. Whatever is not synced may be lost, each thing on its own.
"""

import errno
import io
import itertools
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tembed.common import files

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
FILL = ("create", "mkdir", "write")
"""Calls that need space on the disk."""
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}


@dataclass(frozen=True)
class Call:
    """One call that changed a file or folder, or synced it. Paths are relative to the folder of the `Disk`."""

    kind: str
    path: str
    target: str = ""
    """of a rename"""
    offset: int = 0
    data: bytes = b""
    """of a write"""


class Disk:
    """The files below ``folder``. ``calls``: what was recorded; ``marks``: what the work had promised, and when."""

    def __init__(self, folder: Path, fail: int | None = None, error: int = errno.EIO, lasting: bool = False):
        """``fail``: the number of the call that fails with ``error``. ``lasting``: so does all later writing."""
        self.folder, self.fail, self.error, self.lasting = os.path.realpath(folder), fail, error, lasting
        self.calls: list[Call] = []
        self.marks: list[tuple[int, Any]] = []
        self.count, self.inside = 0, 0

    def mark(self, value: Any) -> None:
        """Note that ``value`` is promised from now on."""
        self.marks.append((len(self.calls), value))

    def promised(self, calls: int | None = None) -> list[Any]:
        """What had been promised after this many calls, by default after all of them."""
        return [value for at, value in self.marks if calls is None or at <= calls]

    def relative(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the folder, or None if it is elsewhere."""
        path = os.fsdecode(path)
        if dir_fd is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)
        parent, name = os.path.split(os.path.abspath(path))
        path = os.path.join(os.path.realpath(parent), name)
        if path == self.folder:
            return ""
        return path[len(self.folder) + 1 :] if path.startswith(self.folder + os.sep) else None

    def attempt(self, call: Call, cut: Callable[[], object] = lambda: None) -> None:
        """Count a call. Raises `OSError`, after ``cut``, if it is to fail."""
        number, self.count = self.count, self.count + 1
        lasts = self.lasting and call.kind in FILL
        if self.fail is not None and (number == self.fail or (lasts and number > self.fail)):
            cut()
            raise OSError(self.error, os.strerror(self.error), os.path.join(self.folder, call.path))

    @contextmanager
    def watched(self) -> Iterator["Disk"]:
        """Record, or fail, everything that this thread does to the folder meanwhile."""
        global _active
        wrapped = {name: self._wrapped(name) for name in WRAPPED}
        with mock.patch.multiple(os, **wrapped), mock.patch.object(files, "open", self._open, create=True):
            _active = self
            try:
                yield self
            finally:
                _active = None

    def _wrapped(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def wrapper(*given: Any, **named: Any) -> Any:
            call = _described(self, name, given, named)
            if call is None:
                return real(*given, **named)
            self.attempt(call)
            self.inside += 1
            try:
                found = real(*given, **named)
            finally:
                self.inside -= 1
            self.calls.append(call)
            return found

        return wrapper

    def _open(self, path: Path, mode: str, **named: Any) -> io.BufferedIOBase:
        self.inside += 1
        try:
            file = _File(self, path, mode, **named)
            return io.BufferedRandom(file) if "+" in mode else io.BufferedWriter(file)
        finally:
            self.inside -= 1


class _File(io.FileIO):
    """A file whose writes are recorded. A write that fails has written half of its bytes."""

    def __init__(self, disk: Disk, path: Path, mode: str, **named: Any):
        self.disk, self.below = disk, disk.relative(path)
        super().__init__(path, mode, **named)

    def write(self, data: Any) -> int:
        data = bytes(data)
        if self.below is not None:
            call, half = Call("write", self.below, offset=self.tell(), data=data), data[: len(data) // 2]
            self.disk.attempt(call, lambda: super(_File, self).write(half))
            self.disk.calls.append(call)
        written = super().write(data)
        assert written == len(data)
        return written

    def truncate(self, size: int | None = None) -> int:
        """A cut is recorded as an empty file and a write of what is kept."""
        size = self.tell() if size is None else size
        if self.below is not None and size < os.fstat(self.fileno()).st_size:
            self.disk.attempt(call := Call("truncate", self.below))
            self.disk.calls.append(call)
            kept = Path(self.disk.folder, self.below).read_bytes()[:size]
            self.disk.calls += [Call("write", self.below, data=kept)] if kept else []
        return super().truncate(size)


WRAPPED = ("open", "fsync", "mkdir", "rename", "replace", "unlink", "remove", "rmdir")
_active: Disk | None = None


def _described(disk: Disk, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Call | None:
    """The call that this is, or None if it changes nothing below the folder."""
    if name == "fsync":
        path = disk.relative(os.readlink(f"/proc/self/fd/{given[0]}"))
        return None if path is None else Call("sync", path)
    path = disk.relative(given[0], named.get("dir_fd"))
    if path is None:
        return None
    if name in ("rename", "replace"):
        target = disk.relative(given[1])
        assert target is not None
        return Call("rename", path, target)
    if name == "open":
        if not given[1] & WRITING:
            return None
        exists = os.path.lexists(os.path.join(disk.folder, path))
        return Call(("truncate" if given[1] & os.O_TRUNC else "append") if exists else "create", path)
    return Call("unlink" if name == "remove" else name, path)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise if the code under test changes a file in a way that is not recorded."""
    disk = _active
    if disk is None or disk.inside:
        return
    is_open = event == "open" and isinstance(arguments[0], str | bytes | os.PathLike) and arguments[2] & WRITING
    if (is_open or event in CHANGES) and disk.relative(arguments[0]) is not None:
        raise AssertionError(f"{event} {arguments[0]} bypasses tembed.common.files")


sys.addaudithook(_audit)


# --- what a power cut leaves


@dataclass(frozen=True)
class Step:
    """A change that a power cut may undo. ``entries``: names in folders; ``data``: bytes of a file."""

    entries: tuple[tuple[int, str, int | None], ...] = ()
    data: tuple[int, int, bytes] | None = None
    synced_by: int = -1
    """the file or folder whose sync makes it survive"""


class Journal:
    """The calls of a `Disk`, applied to a copy of the folder as it was before them."""

    def __init__(self, before: Path, calls: list[Call]):
        self.numbers = itertools.count()
        self.before_folders: dict[int, dict[str, int]] = {}
        self.before_files: dict[int, bytes] = {}
        self.root = self._read(before)
        folders = {number: dict(names) for number, names in self.before_folders.items()}
        self.new_folders: set[int] = set()
        self.steps: list[Step | int] = []
        self.ends = [0]
        """how many steps there are after each call"""
        for call in calls:
            self.steps += self._steps(call, folders)
            self.ends.append(len(self.steps))

    def _read(self, path: Path) -> int:
        number = next(self.numbers)
        if path.is_dir():
            self.before_folders[number] = {each.name: self._read(each) for each in sorted(path.iterdir())}
        else:
            self.before_files[number] = path.read_bytes()
        return number

    def _steps(self, call: Call, folders: dict[int, dict[str, int]]) -> list[Step | int]:
        """The changes of a call, or the number of what it syncs. ``folders`` is the state, and changes."""

        def find(path: str) -> int:
            number = self.root
            for name in Path(path).parts:
                number = folders[number][name]
            return number

        def entry(path: str, number: int | None) -> tuple[int, str, int | None]:
            folder, name = find(os.path.dirname(path)), os.path.basename(path)
            if number is None:
                del folders[folder][name]
            else:
                folders[folder][name] = number
            return folder, name, number

        if call.kind == "sync":
            return [find(call.path)]
        if call.kind == "append":
            return []
        if call.kind in ("write", "truncate"):
            number, half = find(call.path), len(call.data) // 2  # each half of a write may be lost
            parts = [(call.offset, call.data[:half]), (call.offset + half, call.data[half:])]
            return [Step(data=(number, *part), synced_by=number) for part in (parts if half else parts[1:])]
        if call.kind in ("create", "mkdir"):
            number = next(self.numbers)
            if call.kind == "mkdir":
                folders[number] = {}
                self.new_folders.add(number)
            made = entry(call.path, number)
            return [Step((made,), synced_by=made[0])]
        if call.kind == "rename":
            number = find(call.path)
            gone, made = entry(call.path, None), entry(call.target, number)
            return [Step((gone, made), synced_by=made[0])]
        gone = entry(call.path, None)
        return [Step((gone,), synced_by=gone[0])]

    def states(self, calls: int, most: int, dice: random.Random) -> Iterator[dict[str, bytes | None]]:
        """The folders that a power cut after this many calls can leave; all if there are at most ``most`` of them.

        Otherwise: everything that is not synced is lost, nothing is, only the data is, only the names are, each thing
        alone is lost or survives, and a random choice.
        """
        synced, loose = set(), []
        steps = self.steps[: self.ends[calls]]
        for at, step in reversed(list(enumerate(steps))):
            if isinstance(step, int):
                synced.add(step)
            elif step.synced_by not in synced:
                loose.append(at)
        chosen: list[frozenset[int]] = []
        if 2 ** len(loose) <= most:
            chosen += (frozenset(c) for n in range(len(loose) + 1) for c in itertools.combinations(loose, n))
        else:
            data = frozenset(at for at in loose if self.steps[at].data is not None)  # type: ignore[union-attr]
            everything = frozenset(loose)
            chosen += [frozenset(), everything, everything - data, data]
            chosen += [everything - {at} for at in loose] + [frozenset({at}) for at in loose]
            chosen = chosen[:most]
            while len(chosen) < most:
                chosen.append(frozenset(at for at in loose if dice.random() < 0.5))
        for lost in dict.fromkeys(chosen):
            yield self._state([step for at, step in enumerate(steps) if at not in lost])

    def _state(self, steps: list[Step | int]) -> dict[str, bytes | None]:
        folders = {number: dict(names) for number, names in self.before_folders.items()}
        folders |= {number: {} for number in self.new_folders}
        content = {number: bytearray(data) for number, data in self.before_files.items()}
        for step in steps:
            if isinstance(step, int):
                continue
            for folder, name, number in step.entries:
                if number is None:
                    folders[folder].pop(name, None)
                else:
                    folders[folder][name] = number
            if step.data is not None:
                number, offset, data = step.data
                held = content.setdefault(number, bytearray())
                if not data:
                    held.clear()
                held.extend(bytes(max(0, offset - len(held))))
                held[offset : offset + len(data)] = data
        found: dict[str, bytes | None] = {}

        def walk(number: int, path: str) -> None:
            for name, child in folders[number].items():
                below = f"{path}/{name}" if path else name
                found[below] = None if child in folders else bytes(content.get(child, b""))
                if child in folders:
                    walk(child, below)

        walk(self.root, "")
        return found


def lay_out(state: dict[str, bytes | None], folder: Path) -> None:
    """Make ``folder`` hold this state and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in state.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """What `lay_out` makes again."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }
