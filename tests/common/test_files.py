"""Files that are either complete or absent, and locks."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support.disk import Call, Disk

from tembed.common import files as files_module
from tembed.common.errors import TembedError
from tembed.common.files import (
    ABANDONED,
    InUse,
    below,
    is_locked,
    locked,
    locked_folder,
    make_folder,
    open_file,
    parse_json,
    read_file,
    read_json,
    write_file,
)


def test_a_lock_is_exclusive(tmp_path: Path) -> None:
    with locked(tmp_path / "lock") as lock:
        assert lock.held
        assert is_locked(tmp_path / "lock")
        with pytest.raises(InUse), locked(tmp_path / "lock"):
            pass
    assert not is_locked(tmp_path / "lock")


def test_a_look_at_a_lock_does_not_keep_it_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid looks whether a run is in use, and holds its lock for an instant."""
    with FileLock(tmp_path / "lock") as other:
        monkeypatch.setattr("time.sleep", lambda _: other.release())
        with locked(tmp_path / "lock") as lock:
            assert lock.held


def test_a_written_file_is_in_a_synced_folder_unless_it_is_of_no_use_later(
    tmp_path: Path,
) -> None:
    folder = Call("sync", "")
    with Disk(tmp_path).watched() as disk:
        write_file(tmp_path / "note", b"", sync=False)
        assert folder not in disk.calls
        write_file(tmp_path / "result", b"")
        assert disk.calls[-1] == folder


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


def test_only_regular_files_of_a_reasonable_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe or a device in a folder from elsewhere would keep its reader waiting, or fill the memory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"[1, 2]")
    for name, reason in (("pipe", "not a regular file"), ("device", "not a regular file"), ("", "not a regular file")):
        with pytest.raises(OSError, match=reason):
            read_file(tmp_path / name)
        with pytest.raises(TembedError, match=f"is missing or damaged .*{reason}"):
            read_json(tmp_path / name)
    assert read_json(tmp_path / "file") == [1, 2]
    monkeypatch.setattr(files_module, "MOST_BYTES", 5)
    with pytest.raises(TembedError, match="6 bytes, more than the 5 that are read"):
        read_json(tmp_path / "file")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" + "0" * 400, "1" * 5000])
def test_json_holds_only_numbers_that_a_float_holds(number: str) -> None:
    with pytest.raises(ValueError, match="is not a finite number"):
        parse_json(f'{{"a": [{number}]}}')
    assert parse_json(b"[1, -2.5, 1e300]") == [1, -2.5, 1e300]


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


def test_what_a_killed_writer_left_is_removed_and_what_another_one_writes_is_not(tmp_path: Path) -> None:
    for name, age in (("left", 2 * ABANDONED), ("writing", 0)):
        part = tmp_path / f"file.{name}.part"
        part.touch()
        os.utime(part, (time.time() - age,) * 2)
    write_file(tmp_path / "file", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.writing.part"]


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"somebody else's")
    link.symlink_to(target)
    write_file(link, b"new")
    assert not link.is_symlink()
    assert target.read_bytes() == b"somebody else's"


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    message = "it is a link, and links are not followed; remove it"
    with pytest.raises(TembedError, match=message), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_is_not_made_through_a_link_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "acquire", no_locks)
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TembedError, match="links are not followed"), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_a_file_is_not_opened_through_a_link(tmp_path: Path, mode: Any) -> None:
    for target in ("there", "missing"):
        (tmp_path / "there").write_bytes(b"somebody else's")
        (tmp_path / f"link-{target}").symlink_to(tmp_path / target)
        with pytest.raises(OSError, match="symbolic links"):
            open_file(tmp_path / f"link-{target}", mode)
    assert (tmp_path / "there").read_bytes() == b"somebody else's"
    assert not (tmp_path / "missing").exists()


def test_only_the_folder_that_the_user_named_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "inside" / "deeper").mkdir(parents=True)
    (tmp_path / "named").symlink_to(tmp_path / "real")
    assert below(tmp_path / "named", "inside", "new") == tmp_path / "named" / "inside" / "new"
    (tmp_path / "real" / "linked").symlink_to(tmp_path / "real" / "inside")
    with pytest.raises(TembedError, match=r"real/linked .*links are not followed"):
        below(tmp_path / "real", "linked", "deeper")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "file", b"old")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TembedError, match=r"free some space .*; everything saved so far is intact$"):
        write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_before_anything_was_saved_speaks_of_nothing_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "others").write_text("of the user")

    def forbidden(*_: Any, **__: Any) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", forbidden)
        with pytest.raises(TembedError, match=rf"make {tmp_path} writable and run the same command again$"):
            make_folder(tmp_path / "runs" / "mine")
    with pytest.raises(TembedError, match=r"others .*a file is in its place; move it elsewhere and .* again$"):
        make_folder(tmp_path / "others")
    run = make_folder(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(FileLock, "acquire", forbidden)
        with (
            pytest.raises(TembedError, match=rf"make {run} writable and run the same command again$"),
            locked(run / "lock"),
        ):
            pass
    (run / "lock").touch()
    with monkeypatch.context() as patched:
        patched.setattr(files_module, "open_file", forbidden)
        with pytest.raises(TembedError, match=r"again$"):
            write_file(run / "recipe.json", b"")
