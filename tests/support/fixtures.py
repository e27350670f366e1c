"""Fixtures for the tests of several folders."""

from pathlib import Path

import pytest

from support.quick import QUICK


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the small datasets ``tiny`` and ``dots``."""
    from support.datasets import store_all  # here, because it imports torch

    root = tmp_path_factory.mktemp("datasets")
    store_all(root)
    return root


@pytest.fixture
def quick_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make analyses quick: their files are complete, and their numbers mean little."""
    for name, value in QUICK.items():
        monkeypatch.setattr(name, value)


@pytest.fixture
def use_worlds(worlds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point ``TEMBED_DATA`` to that root."""
    monkeypatch.setenv("TEMBED_DATA", str(worlds))
