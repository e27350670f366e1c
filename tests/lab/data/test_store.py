"""A stored dataset is complete or absent, and stays intact."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.datasets import entries
from support.disk import Call, Disk

from tembed import __version__
from tembed.common.errors import TembedError
from tembed.lab.data import store as storage
from tembed.lab.data.importing import import_images
from tembed.lab.data.loading import load
from tembed.lab.data.npy import NpyWriter
from tembed.lab.data.store import default_root, open_stored, remove_dataset, rename_dataset, stored_names

PETS = {"cat": 5, "dog": 6}


@pytest.fixture
def pets(tmp_path: Path, make: SimpleNamespace) -> Path:
    return make.zip(tmp_path / "pets.zip", make.class_folders(PETS))


def test_the_array_is_a_plain_memory_mapped_npy_file(root: Path, pets: Path) -> None:
    stored = import_images(pets, "pets")
    assert isinstance(stored.images, np.memmap)
    assert np.load(root / "pets" / "images.npy").shape == (11, 8, 8, 3)
    assert np.load(root / "pets" / "labels.npy").tolist() == [0] * 5 + [1] * 6


def test_the_manifest_describes_the_dataset_and_its_source(root: Path, pets: Path) -> None:
    manifest = json.loads((import_images(pets, "pets").folder / "manifest.json").read_text())
    assert manifest["count"] == 11
    assert manifest["classes"] == ["cat", "dog"]
    assert manifest["class_counts"] == [5, 6]
    assert manifest["source"]["path"] == "pets.zip"
    assert len(manifest["source"]["sha256"]) == len(manifest["sha256"]) == 64
    assert manifest["tool"] == f"tembed {__version__}"


def test_importing_twice_is_harmless(root: Path, pets: Path) -> None:
    first = import_images(pets, "pets")
    before = {file.name: file.read_bytes() for file in first.folder.iterdir()}
    second = import_images(pets, "pets")
    assert {file.name: file.read_bytes() for file in second.folder.iterdir()} == before
    assert (first.images == second.images).all()  # the old memory map can still be read
    assert stored_names(root) == ["pets"]


def test_importing_again_repairs_a_damaged_array(root: Path, pets: Path) -> None:
    images = import_images(pets, "pets").folder / "images.npy"
    good = images.read_bytes()
    images.write_bytes(good[:-1] + b"x")
    import_images(pets, "pets")
    assert images.read_bytes() == good


def test_other_images_under_the_same_name_are_refused(
    root: Path, tmp_path: Path, pets: Path, make: SimpleNamespace
) -> None:
    before = import_images(pets, "pets").sha256
    other = make.zip(tmp_path / "other.zip", make.class_folders({"cat": 4}))
    with pytest.raises(TembedError, match="pets already holds other images: choose another name"):
        import_images(other, "pets")
    assert open_stored(root, "pets").sha256 == before


def test_a_users_own_folder_of_that_name_is_not_touched(root: Path, pets: Path, make: SimpleNamespace) -> None:
    make.folder(root / "pets", {"diary.txt": b"mine"})
    with pytest.raises(TembedError, match="pets is in the way: move it elsewhere"):
        import_images(pets, "pets")
    assert (root / "pets" / "diary.txt").read_bytes() == b"mine"


@pytest.mark.process
def test_a_killed_import_stores_nothing_and_the_next_one_cleans_up(root: Path, pets: Path) -> None:
    code = """
import os, signal, sys
from tembed.lab.data import importing, store
store._rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
importing.import_images(sys.argv[1], "pets")
"""
    assert subprocess.run([sys.executable, "-c", code, str(pets)]).returncode == -signal.SIGKILL
    assert stored_names(root) == []
    assert len(entries(root)) == 1  # the hidden folder of the dead import
    import_images(pets, "pets")
    assert entries(root) == ["pets"]


def test_an_interrupted_import_leaves_nothing(root: Path, pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NpyWriter, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        import_images(pets, "pets")
    assert not entries(root)


def test_a_full_disk_gives_one_line_and_leaves_nothing(root: Path, pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = import_images(pets, "before").sha256

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(NpyWriter, "append", full)
    with pytest.raises(TembedError, match=r"pets cannot be stored in .* \(No space left on device\): free some"):
        import_images(pets, "pets")
    assert entries(root) == ["before"]
    assert open_stored(root, "before").sha256 == before


def test_a_write_that_fails_half_way_gives_one_line_and_leaves_nothing(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    """The system refuses files over a size limit, as it does on a full disk."""
    pets = make.zip(tmp_path / "pets.zip", make.class_folders({"cat": 8}, size=128))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(TembedError, match=r"pets cannot be stored in .* \(File too large\)"):
            import_images(pets, "pets")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not entries(root)


@contextmanager
def without_root_rights() -> Iterator[None]:
    """Make permissions apply even if the tests run as root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(0)


@pytest.fixture
def public_folder(make: SimpleNamespace) -> Iterator[Path]:
    """A folder of images that everybody may read."""
    folder = Path(tempfile.mkdtemp())
    make.folder(folder / "pets", make.class_folders(PETS))
    for path in (folder, folder / "pets", folder / "pets" / "cat", folder / "pets" / "dog"):
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_store_without_permission_gives_one_line(public_folder: Path) -> None:
    (public_folder / "store").mkdir(mode=0o555)
    with without_root_rights(), pytest.raises(TembedError, match=r"store \(Permission denied\): make it writable"):
        import_images(public_folder / "pets", "pets", root=public_folder / "store")


def test_images_without_permission_are_named(public_folder: Path) -> None:
    (public_folder / "pets" / "dog" / "000.png").chmod(0)
    store = public_folder / "store"
    store.mkdir()
    store.chmod(0o777)
    with without_root_rights(), pytest.raises(TembedError, match=r"dog/000\.png: cannot be read \(Permission denied\)"):
        import_images(public_folder / "pets", "pets", root=store)


def test_a_folder_without_permission_is_named(public_folder: Path) -> None:
    (public_folder / "pets" / "dog").chmod(0)
    with without_root_rights(), pytest.raises(TembedError, match=r"pets/dog cannot be read \(Permission denied\)"):
        import_images(public_folder / "pets", "pets", root=public_folder / "store")


def test_a_file_instead_of_the_store_gives_one_line(tmp_path: Path, pets: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TembedError, match=r"file \(.*\): check that path, or set TEMBED_DATA"):
        import_images(pets, "pets", root=tmp_path / "file")


@pytest.mark.parametrize("file", ["images", "labels", "origin"])
def test_a_truncated_or_missing_array_is_named(root: Path, pets: Path, file: str) -> None:
    path = import_images(pets, "pets").folder / f"{file}.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(TembedError, match=rf"{file}\.npy is missing or damaged .* again"):
        open_stored(root, "pets")
    path.unlink()
    with pytest.raises(TembedError, match=rf"{file}\.npy is missing or damaged"):
        open_stored(root, "pets")


def test_changed_labels_are_noticed_when_the_dataset_is_opened(root: Path, pets: Path) -> None:
    path = import_images(pets, "pets").folder / "labels.npy"
    np.save(path, np.load(path)[::-1])
    with pytest.raises(TembedError, match=r"labels\.npy does not match its manifest"):
        open_stored(root, "pets")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "shapes": []}', "[" * 100_000])
def test_a_damaged_manifest_is_named(root: Path, pets: Path, text: str) -> None:
    (import_images(pets, "pets").folder / "manifest.json").write_text(text)
    with pytest.raises(TembedError, match=r"manifest\.json is"):
        open_stored(root, "pets")


def test_the_default_store_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMBED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/tembed")
    monkeypatch.setenv("TEMBED_DATA", "/data")
    assert default_root() == Path("/data")


@pytest.fixture
def stored_pets(root: Path, tmp_path: Path, make: SimpleNamespace) -> Path:
    """The stored folder of a dataset beside another one, after use."""
    source = make.folder(tmp_path / "pets", make.class_folders({"cat": 5, "dog": 6}))
    import_images(source, "other")
    folder = import_images(source, "pets").folder
    load("pets")
    return folder


def test_a_removed_dataset_is_gone_and_the_others_stay(root: Path, stored_pets: Path) -> None:
    (stored_pets / "verified.json.0123.part").touch()  # of a process that was killed
    assert remove_dataset("pets") == stored_pets
    assert entries(root) == ["other"]
    load("other")


def test_a_damaged_dataset_can_be_removed(root: Path, stored_pets: Path) -> None:
    (stored_pets / "manifest.json").write_text("{")
    (stored_pets / "images.npy").unlink()
    remove_dataset("pets")
    assert stored_names(root) == ["other"]


def test_a_dataset_can_be_removed_after_a_killed_renaming(root: Path, stored_pets: Path) -> None:
    """Any file that is written anew may be left incomplete."""
    for name in ("manifest.json", "verified.json"):
        (stored_pets / f"{name}.0123abcd.part").write_text("{")
    remove_dataset("pets")
    assert not stored_pets.exists()


def test_a_repaired_dataset_is_synced(stored_pets: Path, tmp_path: Path) -> None:
    """And the record is replaced last: it describes arrays that are there."""
    (stored_pets / "images.npy").write_bytes(b"damaged")
    with Disk(stored_pets.parent).watched() as disk:
        import_images(tmp_path / "pets", "pets")
    renames = [n for n, call in enumerate(disk.calls) if call.target.startswith("pets/")]
    in_place = [disk.calls[n].target for n in renames]
    assert in_place[-1] == "pets/manifest.json"
    assert {"pets/images.npy", "pets/labels.npy", "pets/origin.npy"} < set(in_place)
    assert Call("sync", "pets") in disk.calls[renames[-1] :]


def test_a_folder_with_other_files_is_not_removed(stored_pets: Path) -> None:
    (stored_pets / "diary.txt").write_text("mine")
    with pytest.raises(TembedError, match=r"pets also holds diary\.txt: move that elsewhere first"):
        remove_dataset("pets")
    load("pets")


def test_an_interrupted_removal_leaves_no_half_dataset(
    root: Path, stored_pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage.shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            remove_dataset("pets")
    assert stored_names(root) == ["other"]
    import_images(tmp_path / "pets", "pets")
    assert entries(root) == ["other", "pets"]


def test_a_renamed_dataset_has_the_same_content(root: Path, stored_pets: Path) -> None:
    before = open_stored(root, "pets").sha256
    assert rename_dataset("pets", "animals").sha256 == before
    assert stored_names(root) == ["animals", "other"]
    splits = load("animals")
    assert splits.sha256 == before
    assert splits.train.files is not None
    assert open_stored(root, "animals").manifest["name"] == "animals"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("other", "other already exists: choose another name"),
        ("cifar10", "'cifar10' is the name of a known dataset"),
        ("../up", "cannot be the name of a dataset"),
    ],
)
def test_a_name_that_is_taken_or_impossible_is_refused(stored_pets: Path, new: str, said: str) -> None:
    with pytest.raises(TembedError, match=said):
        rename_dataset("pets", new)
    load("pets")


def test_what_is_not_stored_can_neither_be_removed_nor_renamed(root: Path, stored_pets: Path) -> None:
    (root / "downloads").mkdir()
    for name in ("nothing", "downloads"):
        with pytest.raises(
            TembedError, match=f"'{name}' is not in .*, so it cannot be removed: stored there: other, pets"
        ):
            remove_dataset(name)
        with pytest.raises(TembedError, match="so it cannot be renamed"):
            rename_dataset(name, "new")
    assert (root / "downloads").exists()
