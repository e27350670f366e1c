"""One root with small datasets for all tests of training."""

from pathlib import Path

import pytest

from training.worlds import store_all


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    store_all(root)
    return root


@pytest.fixture(autouse=True)
def _root(worlds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(worlds))
