"""The small datasets of the training tests."""

import pytest
from support.fixtures import use_worlds as use_worlds
from support.fixtures import worlds as worlds


@pytest.fixture(autouse=True)
def _root(use_worlds: None) -> None:
    pass
