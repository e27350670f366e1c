"""The small datasets of the training tests, and what undisturbed runs leave."""

from pathlib import Path

import pytest
from support.fixtures import use_worlds as use_worlds
from support.fixtures import worlds as worlds
from support.grids import MINE, left_by


@pytest.fixture(autouse=True)
def _root(use_worlds: None) -> None:
    pass


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> dict[str, dict[str, str]]:
    """The fingerprints of the runs of `MINE`, trained in this process without a grid."""
    from tembed.lab.grid.grid_file import load_grid  # here, because they import torch
    from tembed.lab.training.loop import train
    from tembed.lab.training.run import run_name

    folder = tmp_path_factory.mktemp("alone")
    (folder / "mine.toml").write_text(MINE)
    for recipe in load_grid(str(folder / "mine.toml")).recipes:
        train(recipe, folder / run_name(recipe), root=worlds)
    return left_by(folder)
