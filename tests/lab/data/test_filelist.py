"""The names and hashes of the imported files are kept beside the arrays."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tembed.common.errors import TembedError
from tembed.lab.data.importing import import_images
from tembed.lab.data.loading import load
from tembed.lab.data.store import open_stored


@pytest.fixture
def files(root: Path, tmp_path: Path, make: SimpleNamespace) -> dict[str, bytes]:
    files = make.class_folders({"cat": 5, "dog": 6})
    import_images(make.folder(tmp_path / "pets", files), "pets")
    return files


def test_the_list_has_the_format_of_sha256sum(root: Path, files: dict[str, bytes]) -> None:
    lines = (root / "pets" / "files.sha256").read_text().splitlines()
    assert lines == [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in sorted(files.items())]


def test_the_names_are_no_part_of_the_datasets_identity(
    root: Path, tmp_path: Path, files: dict[str, bytes], make: SimpleNamespace
) -> None:
    renamed = {name.replace(".png", "-new.png"): data for name, data in files.items()}
    again = import_images(make.folder(tmp_path / "again", renamed), "pets")
    assert (again.files() or [])[0].name == "cat/000-new.png"


def test_a_changed_list_is_refused(root: Path, files: dict[str, bytes]) -> None:
    path = root / "pets" / "files.sha256"
    path.write_text(path.read_text().replace("cat/000", "cat/999"))
    with pytest.raises(TembedError, match=r"files.sha256 has changed since it was stored: import the dataset again"):
        load("pets")
    path.unlink()
    with pytest.raises(TembedError, match=r"files.sha256 is missing or damaged"):
        load("pets")


def test_a_dataset_that_was_stored_without_a_list_still_loads(root: Path, files: dict[str, bytes]) -> None:
    path = root / "pets" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["file_list"]
    path.write_text(json.dumps(manifest))
    (root / "pets" / "files.sha256").unlink()
    assert load("pets").test.files is None


def test_names_follow_the_fixed_order_of_a_published_dataset(
    root: Path, tmp_path: Path, make: SimpleNamespace, pin: Callable[[str, Path], str]
) -> None:
    files = make.cifar10_files("folders")
    path = make.zip(tmp_path / "c.zip", files)
    pin("cifar10", path)
    import_images(path, "cifar10")
    stored = open_stored(root, "cifar10")
    for pixels, file in zip(stored.images, stored.files() or [], strict=True):
        assert files[file.name] == make.png(pixels)
