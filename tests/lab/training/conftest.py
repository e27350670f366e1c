"""All training tests use small datasets, and what they register leaves no traces."""

import importlib

import pytest
from support.fixtures import use_worlds as use_worlds
from support.fixtures import worlds as worlds


@pytest.fixture(autouse=True)
def _root(use_worlds: None) -> None:
    pass


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    for module, name in (
        ("tembed.models.registry", "_ENTRIES"),
        ("tembed.maximizers.lookup", "_ENTRIES"),
        ("tembed.lab.data.catalogue", "_RECORDS"),
        ("tembed.lab.training.optimizers", "_BUILDERS"),
    ):
        entries = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(f"{module}.{name}", dict(entries))
