"""A module of a user with a small network, and a cache of features for each test."""

import sys
from pathlib import Path

import pytest
from support.fixtures import use_worlds as use_worlds
from support.fixtures import worlds as worlds

CODE = """
from torch import nn

def small(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, 1, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes),
    )

def broken(num_classes):
    return "no network"
"""
MODULE = "my_foreign_networks"


@pytest.fixture(autouse=True)
def _root(use_worlds: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TEMBED_PLUGINS", "")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's module in the current folder, not yet imported."""
    path = tmp_path / f"{MODULE}.py"
    path.write_text(CODE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return path


@pytest.fixture
def named(code: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the small network, whose module the user has named."""
    monkeypatch.setenv("TEMBED_PLUGINS", MODULE)
    return f"{MODULE}:small@4"
