"""The small datasets of the training tests, and what an undisturbed grid leaves."""

from pathlib import Path

import pytest
from support.fixtures import use_worlds as use_worlds
from support.fixtures import worlds as worlds
from support.grids import MINE, left_by, run_grid


@pytest.fixture(autouse=True)
def _root(use_worlds: None) -> None:
    pass


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> dict[str, dict[str, str]]:
    """The fingerprints of the runs of `MINE` after an uninterrupted grid on the local engine."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "mine.toml").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEMBED_DATA", str(worlds))
        code, output, errors = run_grid(folder / "mine.toml", folder / "runs", "--threads", "1")
    assert code == 0, output + errors
    return left_by(folder / "runs")
