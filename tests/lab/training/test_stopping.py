"""A request to stop is never lost, and nothing but a request stops a run."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tembed.common.errors import TembedError
from tembed.common.files import InUse, is_locked, locked, locked_folder, write_file
from tembed.common.progress import Progress
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.stopping import listening

DOTS = Recipe("rn20", "dots", epochs=1, batch_size=30)


@pytest.fixture
def hangup() -> Iterator[None]:
    """Restores what SIGHUP does."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_ends_a_session_is_a_request_to_stop(number: int) -> None:
    with listening() as stop:
        os.kill(os.getpid(), number)
        assert stop.number == number


def test_an_ignored_signal_stays_ignored(hangup: None) -> None:
    """As under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with listening() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.number is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def no_locks(descriptor: int, operation: int) -> None:
    raise OSError(errno.ENOTSUP, "Operation not supported")


def test_without_locks_a_run_warns_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    lines: list[str] = []

    class Said(Progress):
        def say(self, line: str) -> None:
            lines.append(line)

    assert train(DOTS, tmp_path / "run", progress=Said()).result is not None
    assert sum("without locks" in line for line in lines) == 1
    assert not is_locked(tmp_path / "run" / "lock")


def test_a_lock_is_exclusive(tmp_path: Path) -> None:
    with locked(tmp_path / "lock") as lock:
        assert lock.held
        assert is_locked(tmp_path / "lock")
        with pytest.raises(InUse), locked(tmp_path / "lock"):
            pass
    assert not is_locked(tmp_path / "lock")


def test_a_look_at_a_lock_does_not_keep_it_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid looks whether a run is in use, and holds its lock for an instant."""
    with locked(tmp_path / "lock") as other:
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(other.descriptor, fcntl.LOCK_UN))
        with locked(tmp_path / "lock") as lock:
            assert lock.held


def test_a_folder_that_stays_empty_is_removed_after_an_error(tmp_path: Path) -> None:
    def fail_in(folder: Path, *files: str) -> None:
        with locked_folder(folder):
            for file in files:
                (folder / file).touch()
            raise TembedError("wrong")

    for name, files in (("empty", []), ("full", ["file"])):
        with pytest.raises(TembedError, match="wrong"):
            fail_in(tmp_path / name, *files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
    with locked_folder(tmp_path / "full"), pytest.raises(InUse), locked_folder(tmp_path / "full"):
        pass


WRITER = """
import sys
from pathlib import Path
from tembed.common.files import write_file
letter, path, stop = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
while not stop.exists():
    write_file(path, letter.encode() * 50_000)
"""


@pytest.mark.process
def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    folder, stop = tmp_path / "folder", tmp_path / "stop"
    folder.mkdir()
    path = folder / "file"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, letter, path, stop]) for letter in "ab"]
    seen, reads, deadline = set(), 0, time.monotonic() + 300
    try:
        while seen != set(b"ab") or reads < 100:
            assert time.monotonic() < deadline
            assert [writer.poll() for writer in writers] == [None, None]
            if path.exists():
                content = path.read_bytes()
                assert len(content) == 50_000
                seen |= set(content)
                reads += 1
    finally:
        stop.touch()
        codes = [writer.wait(timeout=300) for writer in writers]
    assert codes == [0, 0]
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_what_a_killed_writer_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"much longer than the new content")
    write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "file", b"old")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TembedError, match="free some space"):
        write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
