"""Stored datasets can be removed and renamed; nothing else in the store is touched."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tembed.data import import_images, load, remove_dataset, rename_dataset, storage
from tembed.data.storage import open_stored, stored_names
from tembed.errors import TembedError


@pytest.fixture
def pets(root: Path, tmp_path: Path, make: SimpleNamespace) -> Path:
    """The stored folder of a dataset beside another one, after use."""
    source = make.folder(tmp_path / "pets", make.class_folders({"cat": 5, "dog": 6}))
    import_images(source, "other")
    folder = import_images(source, "pets").folder
    load("pets")
    return folder


def test_a_removed_dataset_is_gone_and_the_others_stay(root: Path, pets: Path) -> None:
    assert remove_dataset("pets") == pets
    assert [entry.name for entry in root.iterdir()] == ["other"]
    load("other")


def test_a_damaged_dataset_can_be_removed(root: Path, pets: Path) -> None:
    (pets / "manifest.json").write_text("{")
    (pets / "images.npy").unlink()
    remove_dataset("pets")
    assert stored_names(root) == ["other"]


def test_a_folder_with_other_files_is_not_removed(pets: Path) -> None:
    (pets / "diary.txt").write_text("mine")
    with pytest.raises(TembedError, match=r"pets also holds diary\.txt: move that elsewhere first"):
        remove_dataset("pets")
    load("pets")


def test_an_interrupted_removal_leaves_no_half_dataset(
    root: Path, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage.shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            remove_dataset("pets")
    assert stored_names(root) == ["other"]
    import_images(tmp_path / "pets", "pets")
    assert sorted(os.listdir(root)) == ["other", "pets"]


def test_a_renamed_dataset_has_the_same_content(root: Path, pets: Path) -> None:
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
def test_a_name_that_is_taken_or_impossible_is_refused(pets: Path, new: str, said: str) -> None:
    with pytest.raises(TembedError, match=said):
        rename_dataset("pets", new)
    load("pets")


def test_what_is_not_stored_can_neither_be_removed_nor_renamed(root: Path, pets: Path) -> None:
    (root / "downloads").mkdir()
    for name in ("nothing", "downloads"):
        with pytest.raises(
            TembedError, match=f"'{name}' is not in .*, so it cannot be removed: stored there: other, pets"
        ):
            remove_dataset(name)
        with pytest.raises(TembedError, match="so it cannot be renamed"):
            rename_dataset(name, "new")
    assert (root / "downloads").exists()
