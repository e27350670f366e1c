"""The makers of small datasets as a fixture, and an empty store."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.layouts import (
    cifar10_files,
    cifar100_files,
    class_folders,
    mini_caches,
    mini_csvs,
    png,
    random_images,
    write_folder,
    write_tar,
    write_zip,
)

from tembed.lab.data import catalogue
from tembed.lab.data.importing import match_record, recognise
from tembed.lab.data.readers.archives import open_archive
from tembed.lab.data.store import store


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The functions of `support.layouts`."""
    return SimpleNamespace(
        png=png,
        random_images=random_images,
        class_folders=class_folders,
        folder=write_folder,
        zip=write_zip,
        tar=write_tar,
        cifar10_files=cifar10_files,
        cifar100_files=cifar100_files,
        mini_csvs=mini_csvs,
        mini_caches=mini_caches,
    )


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, which is also the default store."""
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], str]:
    """Makes the small files at a path count as the published dataset of that name."""

    def pinned(name: str, path: Path) -> str:
        record = catalogue.dataset(name)
        with open_archive(path) as archive:
            reading = match_record(recognise(archive), record, path)
            sha256 = store(tmp_path / "pin", f"pin-{name}", reading, {}).sha256
        monkeypatch.setitem(catalogue._RECORDS, name, replace(record, sha256=sha256))
        return sha256

    return pinned
