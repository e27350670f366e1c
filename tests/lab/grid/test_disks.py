"""A disk that is full or refuses a file costs a grid its notes, never its runs; damaged files cost one run only."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.common.files import write_json
from tembed.lab.grid.engines import RunExit
from tembed.lab.grid.grid_worker import FAILED, STOPPED, GridJob, ProgressFile, execute, exit_reason, open_log
from tembed.lab.grid.jobs import GridRun, locate_runs
from tembed.lab.grid.scheduler import Scheduler
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.lab.training.stopping import Stopped, StopRequest

DOTS = Recipe("rn20", "dots", epochs=1, batch_size=30).complete()


class Instant:
    """An engine whose runs finish at once."""

    def __init__(self) -> None:
        self.started: list[GridRun] = []
        self.ended: list[RunExit] = []

    def has_capacity(self) -> bool:
        return True

    def start(self, run: GridRun) -> None:
        self.started.append(run)
        self.ended.append(RunExit(run, "finished"))

    def poll(self) -> list[RunExit]:
        ended, self.ended = self.ended, []
        return ended

    def stop(self, kill: bool = False) -> None:
        pass

    def close(self) -> None:
        pass


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


def test_a_log_that_cannot_be_opened_costs_only_the_log(run: GridRun) -> None:
    run.log.mkdir()  # in the place of the file
    engine, said = Instant(), Said()
    outcome = Scheduler([run], engine, said, StopRequest()).run()
    assert outcome.finished == engine.started == [run]
    assert [line for line in said.lines if line.startswith("warning")] == [
        f"warning: {run.name} has no log: {run.log} cannot be written (Is a directory)"
    ]
    with open_log(run.log) as log:
        assert log.name == os.devnull


def test_a_progress_note_says_how_far_a_run_is(run: GridRun) -> None:
    ProgressFile(run).update("training", 1, 2, epoch=1, epochs=2)
    found = run.read_progress()
    assert (found["share"], found["epoch"]) == (0.5, 1)


def test_a_progress_note_that_cannot_be_written_is_left_out(run: GridRun, full_disk: None) -> None:
    note = ProgressFile(run)
    note.update("training", 1, 2, epoch=1, epochs=2)
    assert run.read_progress() == {}


def test_a_progress_note_that_was_cut_short_is_removed(run: GridRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(path: Path, text: str, encoding: str) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill)
    ProgressFile(run).update("training", 1, 2, epoch=1, epochs=2)
    assert list(run.log.parent.iterdir()) == []


@pytest.mark.parametrize("end", [Stopped(15, "and saved"), TembedError("no such data")])
def test_a_full_log_does_not_change_how_a_run_ends(
    run: GridRun, end: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: Any, **__: Any) -> None:
        raise end

    monkeypatch.setattr("tembed.lab.training.loop.train", ended)
    job = GridJob(DOTS.to_json(), str(run.runs), run.name, str(run.runs), torch.get_num_threads())
    with open(os.open("/dev/full", os.O_WRONLY), "w") as log:
        monkeypatch.setattr("sys.stdout", log)
        assert execute(job, run) == (STOPPED if isinstance(end, Stopped) else FAILED)
    assert run.failure() == (None if isinstance(end, Stopped) else "no such data")


def test_an_error_that_cannot_be_written_is_still_reported(run: GridRun, full_disk: None) -> None:
    run.record_failure("out of memory")
    assert "exited with code 1" in exit_reason(1, run)


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
    with pytest.raises(ValueError, match=r"metrics.jsonl is damaged"):
        _ = Run(tmp_path).metrics
