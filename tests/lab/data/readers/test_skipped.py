"""No image disappears without a word: hidden ones are counted, and a lack of memory breaks none."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from tembed.cli.main import main
from tembed.lab.data.importing import import_images

PETS = {"cat": 5, "dog": 6}


def test_hidden_images_are_counted_and_leftovers_of_systems_are_not(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    image = make.png(make.random_images(1)[0])
    hidden = [".owl/1.png", ".owl/deep/2.JPG", "cat/.3.png"]
    noise = ["__MACOSX/cat/4.png", "cat/._000.png", ".DS_Store", ".git/HEAD", "cat/Thumbs.db"]
    files = make.class_folders(PETS) | dict.fromkeys([*hidden, *noise], image)
    for path in (
        make.folder(tmp_path / "pets", files),
        make.zip(tmp_path / "pets.zip", files),
        make.tar(tmp_path / "pets.tar", files),
    ):
        stored = import_images(path, "pets")
        assert stored.manifest["notes"] == ["skipped 3 images whose names or folders are hidden, such as .owl/1.png"]


@pytest.mark.parametrize(
    ("hidden", "note"),
    [
        ([".a.png"], "skipped 1 image whose name or folder is hidden: .a.png"),
        ([".b.png", ".a.png"], "skipped 2 images whose names or folders are hidden, such as .a.png"),
    ],
)
def test_hidden_images_get_one_line(
    root: Path, tmp_path: Path, make: SimpleNamespace, hidden: list[str], note: str
) -> None:
    folder = make.folder(tmp_path / "pets", make.class_folders(PETS) | dict.fromkeys(hidden, b""))
    assert import_images(folder, "pets").manifest["notes"] == [note]


def test_a_hidden_folder_that_cannot_be_read_is_ignored(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make.folder(tmp_path / "pets", make.class_folders(PETS) | {".Trashes/1.png": b""})
    scandir = os.scandir

    def guarded(path: str) -> Any:
        if os.fspath(path).endswith(".Trashes"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert import_images(folder, "pets").manifest["notes"] == []


@pytest.mark.parametrize("skip_broken", [False, True])
def test_a_lack_of_memory_is_not_a_broken_image(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, skip_broken: bool
) -> None:
    def exhausted(image: Image.Image) -> Image.Image:
        raise MemoryError

    folder = make.folder(tmp_path / "pets", make.class_folders(PETS))
    monkeypatch.setattr("tembed.images.image_files._to_rgb", exhausted)
    with pytest.raises(MemoryError):
        import_images(folder, "pets", size=8, skip_broken=skip_broken)
    assert main(["data", "import", str(folder), "--name", "pets", "--size", "8", "--skip-broken"]) == 2
