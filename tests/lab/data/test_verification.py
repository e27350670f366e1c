"""Changed pixels are noticed wherever a dataset is used, and unchanged ones are not hashed again."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.lab.data import verification
from tembed.lab.data.checking import check
from tembed.lab.data.importing import import_images
from tembed.lab.data.loading import load


@pytest.fixture
def images(root: Path, tmp_path: Path, make: SimpleNamespace) -> Path:
    """The stored pixels of a small dataset."""
    folder = make.folder(tmp_path / "pets", make.class_folders({"cat": 5, "dog": 6}))
    return import_images(folder, "pets").folder / "images.npy"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the arrays that are hashed."""
    shapes: list[tuple[int, ...]] = []

    def recorded(array: np.ndarray) -> str:
        shapes.append(array.shape)
        return real(array)

    real: Callable[[np.ndarray], str] = verification.array_sha256
    monkeypatch.setattr(verification, "array_sha256", recorded)
    return shapes


def invert(path: Path) -> None:
    """Invert every pixel in place, as a program that opens the array for writing would."""
    array = np.load(path, mmap_mode="r+")
    array[:] = 255 - array
    array.flush()


@pytest.mark.parametrize("used_before", [False, True])
def test_inverted_pixels_are_noticed(images: Path, used_before: bool) -> None:
    if used_before:
        load("pets")
    invert(images)
    for work in (load, check):
        with pytest.raises(TembedError, match=r"images\.npy has changed since it was stored .*import pets again"):
            work("pets")
    invert(images)
    load("pets")


def test_a_changed_file_with_its_old_time_is_noticed(images: Path) -> None:
    load("pets")
    before = os.stat(images)
    data = bytearray(images.read_bytes())
    data[-1] ^= 1
    images.write_bytes(data)
    os.utime(images, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(TembedError, match="has changed since it was stored"):
        load("pets")


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of temporary files may itself be in memory."""
    monkeypatch.setattr(verification, "is_in_memory", lambda _: False)


def test_an_unchanged_file_is_not_hashed_again_but_a_replaced_one_is(
    images: Path, hashed: list[tuple[int, ...]], on_disk: None
) -> None:
    load("pets")
    assert (11, 8, 8, 3) not in hashed, "the import hashed it"
    hashed.clear()
    load("pets")
    assert hashed == []
    data = images.read_bytes()
    images.unlink()
    images.write_bytes(data)
    load("pets")
    assert hashed == [(11, 8, 8, 3)]
    check("pets")
    assert hashed.count((11, 8, 8, 3)) == 2


def test_a_file_in_memory_is_hashed_each_time(
    images: Path, hashed: list[tuple[int, ...]], on_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("pets")  # leaves a note, as if the folder had been copied from a disk
    monkeypatch.setattr(verification, "is_in_memory", lambda _: True)
    for _ in range(2):
        hashed.clear()
        load("pets")
        assert (11, 8, 8, 3) in hashed


def test_a_large_file_in_another_state_is_hashed_by_check_only(
    images: Path, hashed: list[tuple[int, ...]], on_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "LARGE", 1000)
    os.utime(images)
    said = Said()
    load("pets", progress=said)
    assert (11, 8, 8, 3) not in hashed
    assert len(said.lines) == 1
    assert f"{images} (0 GB) is not the file" in said.lines[0]
    check("pets")
    assert (11, 8, 8, 3) in hashed
    load("pets", progress=said)
    assert len(said.lines) == 1, "now its state is known"
    invert(images)
    with pytest.raises(TembedError, match="has changed since it was stored"):
        load("pets")


MOUNTS = """\
25 30 {others} / /sys rw,nosuid - sysfs sysfs rw
98 25 {here} / /tmp\\040files rw,nosuid shared:5 master:2 - {kind} {kind} rw,size=9k
99 25
"""


@pytest.mark.parametrize(("kind", "expected"), [("tmpfs", True), ("ramfs", True), ("ext4", False)])
def test_the_mounts_tell_whether_a_folder_is_in_memory(tmp_path: Path, kind: str, expected: bool) -> None:
    device, mounts = os.stat(tmp_path).st_dev, tmp_path / "mountinfo"
    here = f"{os.major(device)}:{os.minor(device)}"
    mounts.write_text(MOUNTS.format(here=here, others="0:9999", kind=kind))
    assert verification.is_in_memory(tmp_path, mounts) is expected
    mounts.write_text(MOUNTS.format(here="0:9998", others="0:9999", kind=kind))
    assert not verification.is_in_memory(tmp_path, mounts)
    assert not verification.is_in_memory(tmp_path, tmp_path / "missing")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"images": 3}', "[" * 100_000])
def test_a_damaged_note_only_means_that_the_file_is_hashed_again(
    images: Path, hashed: list[tuple[int, ...]], content: str
) -> None:
    (images.parent / "verified.json").write_text(content)
    load("pets")
    assert (11, 8, 8, 3) in hashed


def test_a_store_that_cannot_be_written_still_loads(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    before = (images.parent / "verified.json").read_bytes()
    monkeypatch.setattr("tembed.common.files.os.replace", refuse)
    assert len(load("pets").train) == 7
    assert [path.read_bytes() for path in images.parent.glob("*verified.json*")] == [before]
    invert(images)
    with pytest.raises(TembedError, match="has changed"):
        load("pets")
