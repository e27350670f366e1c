"""A checkpoint belongs to one recipe and one folder, and a finished run at a constant rate can be continued."""

import dataclasses
import os
import shutil
import stat
from pathlib import Path

import pytest
import torch
from support.kills import fingerprint
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.common.files import write_json
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run

DOTS = Recipe("rn20", "dots", epochs=1, batch_size=30)
OTHER = dataclasses.replace(DOTS, seed=1)
LONGER = dataclasses.replace(DOTS, epochs=3)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(DOTS, tmp_path_factory.mktemp("runs") / "alone", root=worlds)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(OTHER, tmp_path_factory.mktemp("runs") / "other", root=worlds)


def test_the_checkpoint_of_another_recipe_is_refused(alone: Run, other: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(other.folder, tmp_path / "run")))
    run.result_path.unlink()
    shutil.copytree(alone.folder / "checkpoints", run.checkpoints.folder, dirs_exist_ok=True)
    before = run.metrics_path.read_bytes(), run.best_path.read_bytes()
    with pytest.raises(TembedError, match=r"another recipe than .*recipe.json.*`out`"):
        train(OTHER, run.folder)
    assert before == (run.metrics_path.read_bytes(), run.best_path.read_bytes())
    assert not run.result_path.exists()


def test_a_run_does_not_save_into_the_folder_of_another_run(other: Run, tmp_path: Path) -> None:
    """A's folder is deleted while it trains, and B is trained there: A must leave B's files alone."""
    out = tmp_path / "run"

    def replace_folder() -> None:
        shutil.rmtree(out)
        with torch.enable_grad():
            train(OTHER, out)

    with pytest.raises(TembedError, match="is no longer the folder of this run"):
        train(dataclasses.replace(DOTS, epochs=2), out, progress=Said(replace_folder))
    assert fingerprint(out) == fingerprint(other.folder)
    assert Run(out).recipe == OTHER.complete()


@pytest.mark.slow
def test_more_epochs_continue_a_finished_run_to_the_bits_of_a_longer_one(alone: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(alone.folder, tmp_path / "run")))
    said = Said()
    train(LONGER, run.folder, progress=said)
    assert any("from epoch 2" in line for line in said.lines)
    assert fingerprint(run.folder) == fingerprint(train(LONGER, tmp_path / "longer").folder)
    assert run.recipe == LONGER.complete()
    assert run.result is not None
    assert run.result["epochs"] == 3


def test_a_result_beside_a_longer_recipe_is_not_the_result_of_that_recipe(alone: Run, tmp_path: Path) -> None:
    """A power cut can leave both, because a file system need not keep the order of a removal and a renaming."""
    run = Run(Path(shutil.copytree(alone.folder, tmp_path / "run")))
    write_json(run.recipe_path, LONGER.complete().to_json())
    assert run.result is None
    train(LONGER, run.folder)
    assert run.result is not None
    assert run.result["epochs"] == 3


def test_a_run_that_ended_early_keeps_its_result(tmp_path: Path) -> None:
    run = train(dataclasses.replace(DOTS, epochs=50, patience=1, lr=1e-9), tmp_path / "run")
    assert run.result is not None
    assert run.result["epochs"] < 50


def test_the_old_result_is_gone_from_the_disk_before_the_longer_recipe_is_there(
    alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(Path(shutil.copytree(alone.folder, tmp_path / "run")))
    found = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            found.append((run.result_path.exists(), run.recipe.epochs))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    run.continue_as(LONGER.complete())
    assert found == [(False, 1), (False, 3)]


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (DOTS, LONGER),  # fewer epochs
        (dataclasses.replace(LONGER, lr=0.1), DOTS),
        (dataclasses.replace(LONGER, schedule="one-cycle"), dataclasses.replace(DOTS, schedule="one-cycle")),
        (dataclasses.replace(LONGER, start_scale=0.5), dataclasses.replace(DOTS, start_scale=0.5)),
        (dataclasses.replace(LONGER, averaging=0.5), dataclasses.replace(DOTS, averaging=0.5)),
    ],
)
def test_a_run_that_would_have_trained_otherwise_is_not_continued(now: Recipe, then: Recipe, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.assign(then.complete())
    with pytest.raises(TembedError, match="holds a run of another recipe"):
        run.assign(now.complete())
    assert run.recipe == then.complete()


def test_a_finished_run_without_checkpoints_cannot_be_continued(alone: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(alone.folder, tmp_path / "run")))
    shutil.rmtree(run.checkpoints.folder)
    with pytest.raises(TembedError, match="its checkpoints are gone"):
        train(LONGER, run.folder)
    assert run.result == alone.result
    assert run.recipe == DOTS.complete()


def test_damaged_checkpoints_leave_a_finished_run_finished(alone: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(alone.folder, tmp_path / "run")))
    for path in run.checkpoints.folder.iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(TembedError, match="no checkpoint in"):
        train(LONGER, run.folder)
    assert run.result == alone.result
    assert run.recipe == DOTS.complete()
