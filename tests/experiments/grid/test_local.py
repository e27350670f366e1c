"""The local engine: runs are skipped, taken up, failed and retried as they should, and nothing outlives its grid."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support.grids import MINE, left_by, runs_of, start_grid, wait_until_training
from support.kills import starts

from tembed.cli.main import main
from tembed.experiments.grid.engines import Local
from tembed.experiments.grid.folders import find_places
from tembed.experiments.grid.specification import load_grid
from tembed.machine import cores


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return path


@pytest.mark.slow
def test_stopped_killed_and_run_twice_at_once_it_leaves_the_same_bits(
    mine: Path, tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    out = tmp_path / "runs"
    stopped = start_grid(mine, out, "--jobs", "2", "--threads", "1")
    wait_until_training(stopped, out, runs=2, count=1)
    stopped.send_signal(signal.SIGTERM)
    said, told = stopped.communicate(timeout=120)
    assert stopped.returncode == 128 + signal.SIGTERM, told
    assert "2 are left; the same command goes on with them" in said
    assert all((run / "checkpoints" / "newest.safetensors").exists() for run in runs_of(out))

    killed = start_grid(mine, out, "--jobs", "2", "--threads", "1")
    wait_until_training(killed, out, runs=2, count=2)
    killed.kill()
    killed.communicate()
    places = find_places(load_grid(str(mine)).recipes, out)
    deadline = time.monotonic() + 120
    while any(place.in_use() for place in places):  # the workers notice that their grid is dead
        assert time.monotonic() < deadline, "a worker outlived its grid"
        time.sleep(0.05)
    assert not any(place.run.result_path.exists() for place in places)

    both = [start_grid(mine, out, "--jobs", "1", "--threads", "1") for _ in range(2)]
    done = 0
    for process in both:
        said, told = process.communicate(timeout=300)
        assert process.returncode == 0, told
        assert "2 of 2 runs are finished, " in said
        done += int(said.split("finished, ")[1].split()[0])
    assert done == 2
    assert [starts(run) for run in runs_of(out)] == [3, 3], "a run was done twice"
    assert left_by(out) == alone


FAILING = """
recipe = "fast"
data = "dots"
model = "rn26"
epochs = 1
batch_size = 10
train_images = [20, 999]
"""


@pytest.mark.slow
def test_a_failed_run_is_told_left_alone_and_retried_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, out = tmp_path / "some.toml", tmp_path / "runs"
    grid.write_text(FAILING)
    line = ["grid", str(grid), "--out", str(out)]
    assert main(line) == 1
    said = capsys.readouterr()
    assert "1 of 2 runs are finished, 1 of them by this command" in said.out
    assert "--train-images is 999, and there are 60 training images" in said.out
    assert "failed: --train-images is 999" in said.err
    assert main(line) == 1
    said = capsys.readouterr()
    assert "1 of 2 runs are finished, 0 of them by this command" in said.out
    assert "waits for --retry: --train-images is 999" in said.err
    note = next((out / ".grid").glob("*.error"))
    before = note.stat().st_mtime_ns
    assert main([*line, "--retry", "--quiet"]) == 1
    assert capsys.readouterr().err == ""
    assert note.stat().st_mtime_ns > before, "it was not tried again"
    grid.write_text(FAILING.replace("999", "30"))  # only what is new is run
    assert main(line) == 0
    assert "2 of 2 runs are finished, 1 of them by this command" in capsys.readouterr().out
    assert [starts(run) for run in runs_of(out)] == [1, 1]


@pytest.mark.slow
def test_a_worker_that_the_system_kills_is_a_failed_run(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    mine.write_text(MINE.replace("seeds = 2", "seeds = 1"))
    grid = start_grid(mine, out)
    wait_until_training(grid, out, runs=1, count=1)
    (child,) = Path(f"/proc/{grid.pid}/task/{grid.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    said, _ = grid.communicate(timeout=300)
    assert grid.returncode == 1
    assert "0 of 1 runs are finished" in said
    assert "ended by SIGKILL, as the system does when memory runs out" in said


def test_a_damaged_run_is_a_failure_of_its_own(mine: Path, tmp_path: Path) -> None:
    place, other = find_places(load_grid(str(mine)).recipes, tmp_path)
    place.run.folder.mkdir()
    place.run.recipe_path.write_text("{}")
    place.run.result_path.write_text("{")
    assert place.state() == "failed"
    assert "result.json is missing or damaged" in str(place.failure())
    assert other.state() == "new"


def test_threads_are_divided() -> None:
    assert (Local("").jobs, Local("").threads) == (cores(), 1)
    assert Local("", jobs=1).threads == cores()
    assert Local("", threads=cores()).jobs == 1
    assert Local("", jobs=99).threads == 1


def test_a_dry_run_lists_the_runs_and_warns_of_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tembed.experiments.grid import preview as estimate

    grid = tmp_path / "long.toml"
    grid.write_text('model = "rn26"\ndata = "dots"\nepochs = [1, 1000000]')
    monkeypatch.setattr(estimate, "MEASURED", 0.01)
    assert main(["grid", str(grid), "--dry-run", "--threads", "1", "--out", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr().out
    assert "new    0/1000000" in said
    assert "warning: rn26 on dots, batch 32, 1000000 epochs, needs about " in said
    assert said.count("warning") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("table1 --data cifra10", "unknown dataset 'cifra10'; did you mean 'cifar10'?"),
        ("table1 --data cifar10", "run `tembed data get cifar10`"),
        ("table1 --models rn62", "unknown model 'rn62'"),
        ("tabel", "did you mean 'table1'?"),
        ("depth --data tiny --address here:1", "--address does not apply to --engine local; add --engine ray"),
        ("depth --data tiny --engine ray --jobs 2", "--jobs does not apply to --engine ray"),
        ("depth --data tiny --jobs 0", "--jobs is 0"),
        ("depth --data tiny --engine ray --address 127.0.0.1:1", "nothing answers at --address 127.0.0.1:1"),
        ("depth --data tiny --engine ray --address nowhere", "not of the form HOST:PORT"),
    ],
)
def test_a_mistake_gets_one_line(line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grid", *line.split(), "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_ray_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # type: ignore[arg-type]
    assert main(["grid", "depth", "--data", "tiny", "--engine", "ray", "--out", str(tmp_path)]) == 2
    assert "pip install 'tembed[ray]'" in capsys.readouterr().err


def test_the_grids_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grid"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "depth",
        "lambda",
        "maximizers",
        "table1",
    ]
