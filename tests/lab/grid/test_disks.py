"""A disk that is full or refuses a file costs a grid its notes, never its runs; damaged files cost one run only."""

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.disk import Disk
from support.progress import Said

from tembed.common.files import open_file, write_json
from tembed.lab.grid.engines import LocalEngine, exit_reason
from tembed.lab.grid.jobs import GridRun, ProgressFile, locate_runs
from tembed.lab.grid.scheduler import Outcome, Scheduler
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.stopping import StopRequest

DOTS = Recipe("rn20", "dots", epochs=1, batch_size=30).complete()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file can be written any more."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        patched.setattr(os, "replace", full)
        yield


@pytest.fixture
def run(tmp_path: Path) -> GridRun:
    (found,) = locate_runs((DOTS,), tmp_path)
    found.log.parent.mkdir()
    return found


def run_alone(run: GridRun, root: Path) -> Outcome:
    return Scheduler([run], LocalEngine(str(root), threads=1), Said(), StopRequest()).run()


def test_a_run_whose_log_cannot_be_opened_fails_alone(run: GridRun, worlds: Path) -> None:
    run.log.mkdir()  # in the place of the file
    outcome = run_alone(run, worlds)
    assert list(outcome.failed.values()) == [run.failure()]
    assert f"cannot write {run.log} (Is a directory)" in str(run.failure())


def test_on_a_full_disk_a_run_fails_with_the_way_out(run: GridRun, worlds: Path, full_disk: None) -> None:
    (reason,) = run_alone(run, worlds).failed.values()
    assert "No space left on device): free some space and run the same command again" in reason
    assert run.failure() is None  # which could not be written


@pytest.mark.process
def test_a_full_log_does_not_change_how_a_run_ends(run: GridRun, worlds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tembed.lab.grid.engines.open_file", lambda path, mode: open_file(Path("/dev/full"), mode))
    assert run_alone(run, worlds).finished == [run]
    other = GridRun(dataclasses.replace(DOTS, train_images=999), run.runs, "other")
    assert "the process exited with code 2" in run_alone(other, worlds).failed[other]


def test_an_unexpected_error_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("epoch 1/2\nTraceback (most recent call last):\n  ...\nRuntimeError: cannot multiply\n")
    assert exit_reason(1, log) == (
        f"the process exited with code 1 (RuntimeError: cannot multiply); its last output is in {log}"
    )
    log.write_text("tembed: error: of an earlier start\nepoch 1/2\n")
    assert "ended by SIGKILL, as the system does when memory runs out" in exit_reason(-9, log)


def test_a_progress_file_says_how_far_a_run_is_and_goes_with_it(run: GridRun) -> None:
    file = ProgressFile(run.progress_path)
    file.update("training", 1, 2, epoch=1, epochs=2)
    assert run.read_progress() == {"share": 0.5, "epoch": 1, "epochs": 2, "images_per_second": 0.0}
    file.close()
    assert run.read_progress() == {}
    assert not run.progress_path.exists()


def test_progress_that_cannot_be_written_is_left_out(run: GridRun, full_disk: None) -> None:
    ProgressFile(run.progress_path).update("training", 1, 2, epoch=1, epochs=2)
    assert run.read_progress() == {}


@pytest.mark.parametrize("result", [{}, [], None, {"test_accuracy": 2.0}, {"test_accuracy": "x"}])
def test_a_result_that_makes_no_sense_is_one_line(run: GridRun, result: Any) -> None:
    run.run.folder.mkdir()
    write_json(run.run.recipe_path, DOTS.to_json())
    write_json(run.run.result_path, result)
    assert run.state() == "failed"
    assert "result.json was not written by tembed" in str(run.failure())
    with pytest.raises(ValueError, match=r"result.json was not written by tembed .*: remove it"):
        train(DOTS, run.run.folder)


def test_nested_lines_of_metrics_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"metrics.jsonl is missing or damaged"):
        _ = Run(tmp_path).metrics


def test_a_note_of_progress_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """It is written every second, and of no use after a power cut."""
    with Disk(tmp_path).watched() as disk:
        ProgressFile(tmp_path / "note").update("training", 1, 4, epoch=1)
    assert json.loads((tmp_path / "note").read_text())["share"] == 0.25
    assert "sync" not in {call.kind for call in disk.calls}
