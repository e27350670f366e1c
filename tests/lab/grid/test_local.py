"""The local engine skips, resumes, fails and retries runs as it should, and no worker outlives its grid."""

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from support.grids import MINE, TIMEOUT, left_by, runs_of, start_grid, wait_until_training
from support.kills import starts

from tembed.cli.main import main
from tembed.common.cores import cores
from tembed.lab.grid import engines, preview
from tembed.lab.grid.engines import LocalEngine, make_job
from tembed.lab.grid.grid_file import load_grid
from tembed.lab.grid.grid_worker import FAILED, GridJob, start_worker
from tembed.lab.grid.jobs import locate_runs
from tembed.lab.grid.ray_engine import run_on_node
from tembed.lab.training.recipe import Recipe


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return path


@pytest.mark.process
@pytest.mark.slow
def test_a_grid_that_is_stopped_killed_and_run_twice_at_once_leaves_the_same_bits(
    mine: Path, tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    out = tmp_path / "runs"
    stopped = start_grid(mine, out, "--jobs", "2", "--threads", "1")
    wait_until_training(stopped, out, runs=2, count=1)
    stopped.send_signal(signal.SIGTERM)
    output, errors = stopped.communicate(timeout=120)
    assert stopped.returncode == 128 + signal.SIGTERM, errors
    assert "2 are unfinished; run the same command again to continue" in output
    assert all((run / "checkpoints" / "newest.safetensors").exists() for run in runs_of(out))

    killed = start_grid(mine, out, "--jobs", "2", "--threads", "1")
    wait_until_training(killed, out, runs=2, count=2)
    killed.kill()
    killed.communicate()
    runs = locate_runs(load_grid(str(mine)).recipes, out)
    deadline = time.monotonic() + 120
    while any(run.in_use() for run in runs):  # the workers notice that their grid is gone
        assert time.monotonic() < deadline, "a worker outlived its grid"
        time.sleep(0.05)
    assert not any(run.run.result_path.exists() for run in runs)

    both = [start_grid(mine, out, "--jobs", "1", "--threads", "1") for _ in range(2)]
    done = 0
    for process in both:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert "2 of 2 runs are finished, " in output
        done += int(output.split("finished, ")[1].split()[0])
    assert done == 2
    assert [starts(run) for run in runs_of(out)] == [3, 3], "a run was trained twice"
    assert left_by(out) == alone


@pytest.mark.process
@pytest.mark.slow
def test_a_second_ctrl_c_kills_workers_that_do_not_stop(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    grid = start_grid(mine, out, "--jobs", "2", "--threads", "1")
    wait_until_training(grid, out, runs=2, count=1)
    for child in Path(f"/proc/{grid.pid}/task/{grid.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGSTOP)  # it can neither save nor exit
    grid.send_signal(signal.SIGINT)
    assert grid.stderr is not None
    for line in grid.stderr:
        if "stopping: the runs save their state" in line:
            break
    assert grid.poll() is None
    grid.send_signal(signal.SIGINT)
    output, errors = grid.communicate(timeout=TIMEOUT)
    assert grid.returncode == 128 + signal.SIGINT, errors
    assert "2 are unfinished; run the same command again to continue" in output
    assert not any(run.in_use() for run in locate_runs(load_grid(str(mine)).recipes, out)), "a worker is alive"


FAILING = """
preset = "fast"
data = "dots"
model = "rn26"
epochs = 1
batch_size = 10
train_images = [20, 999]
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_failed_run_is_reported_left_alone_and_retried_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, out = tmp_path / "some.toml", tmp_path / "runs"
    grid.write_text(FAILING)
    line = ["grid", str(grid), "--out", str(out)]
    assert main(line) == 1
    captured = capsys.readouterr()
    assert "1 of 2 runs are finished, 1 of them by this command" in captured.out
    for text in (captured.out, captured.err):
        assert re.search(r" is 999, .* 60 training images", text)
    assert main(line) == 1
    captured = capsys.readouterr()
    assert "1 of 2 runs are finished, 0 of them by this command" in captured.out
    assert "--retry tries it again: " in captured.err
    note = next((out / ".grid").glob("*.error"))
    before = note.stat().st_mtime_ns
    assert main([*line, "--retry", "--quiet"]) == 1
    assert capsys.readouterr().err == ""
    assert note.stat().st_mtime_ns > before, "it was not tried again"
    grid.write_text(FAILING.replace("999", "30"))  # only the new run is started
    assert main(line) == 0
    assert "2 of 2 runs are finished, 1 of them by this command" in capsys.readouterr().out
    assert [starts(run) for run in runs_of(out)] == [1, 1]


@pytest.mark.process
@pytest.mark.slow
def test_a_worker_that_the_system_kills_is_a_failed_run(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    mine.write_text(MINE.replace("seeds = 2", "seeds = 1"))
    grid = start_grid(mine, out)
    wait_until_training(grid, out, runs=1, count=1)
    (child,) = Path(f"/proc/{grid.pid}/task/{grid.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    output, _ = grid.communicate(timeout=300)
    assert grid.returncode == 1
    assert "0 of 1 runs are finished" in output
    assert "ended by SIGKILL, as the system does when memory runs out" in output


def test_a_damaged_run_fails_alone(mine: Path, tmp_path: Path) -> None:
    run, other = locate_runs(load_grid(str(mine)).recipes, tmp_path)
    run.run.folder.mkdir()
    run.run.recipe_path.write_text("{}")
    run.run.result_path.write_text("{")
    assert run.state() == "failed"
    assert "result.json is missing or damaged" in str(run.failure())
    assert other.state() == "new"


def test_jobs_and_threads_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert (LocalEngine("").jobs, LocalEngine("").threads) == (cores(), 1)
    assert LocalEngine("", jobs=1).threads == cores()
    assert LocalEngine("", threads=cores()).jobs == 1
    assert LocalEngine("", jobs=99).threads == 1


def test_a_dry_run_lists_the_runs_and_warns_of_runs_that_take_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = tmp_path / "long.toml"
    grid.write_text('model = "rn26"\ndata = "dots"\nepochs = [1, 1000000]')
    monkeypatch.setattr(preview, "MEASURED_SECONDS", 0.01)
    monkeypatch.setattr(preview, "startup_seconds", lambda: 0.0)  # starts a process
    assert main(["grid", str(grid), "--dry-run", "--threads", "1", "--out", str(tmp_path / "runs")]) == 0
    output = capsys.readouterr().out
    assert "new    0/1000000" in output
    assert "warning: rn26 on dots, batch 32, 1000000 epochs, needs about " in output
    assert output.count("warning") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("table1 --data cifra10", "unknown dataset 'cifra10'; did you mean 'cifar10'?"),
        ("table1 --data cifar10", "run `tembed data get cifar10`"),
        ("table1 --models rn62", "unknown model 'rn62'"),
        ("tabel", "did you mean 'table1'?"),
        ("depth --data tiny --address here:1", "--address does not apply to --engine local; it needs --engine ray"),
        ("depth --data tiny --engine ray --jobs 2", "--jobs does not apply to --engine ray"),
        ("depth --data tiny --jobs 0", "--jobs is 0"),
        ("depth --data tiny --engine ray --address 127.0.0.1:1", "nothing answers at --address 127.0.0.1:1"),
        ("depth --data tiny --engine ray --address nowhere", "must have the form HOST:PORT"),
    ],
)
def test_a_mistake_gives_a_one_line_error(
    line: str, output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grid", *line.split(), "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert output in error
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


def job(tmp_path: Path, model: str = "rn26", plugins: Sequence[str] = ()) -> GridJob:
    (tmp_path / ".grid").mkdir(exist_ok=True)
    recipe = Recipe.fast(model, "dots", epochs=1, batch_size=10, train_images=10)
    return GridJob(recipe.to_json(), str(tmp_path), "run", os.environ["TEMBED_DATA"], 1, plugins=list(plugins))


@pytest.mark.process
@pytest.mark.parametrize("policy", [None, "ACTIVE", "PASSIVE"])
def test_a_worker_keeps_the_waiting_policy_of_the_user(
    policy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    process = start_worker(job(tmp_path))
    try:
        while b"worker" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():  # until exec
            time.sleep(0.01)
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    finally:
        process.kill()
        process.communicate()
    assert f"OMP_WAIT_POLICY={policy or 'PASSIVE'}".encode() in environment


PLUGIN = """
from tembed.models.resnet import resnet
from tembed.models import register_model

register_model("outsider", lambda num_classes, input_size: resnet(num_classes, input_size, units=1))
"""


@pytest.mark.process
@pytest.mark.parametrize("plugins", [[], ["the_plugin"]])
def test_a_worker_loads_the_plugins_of_its_grid_before_it_trains(
    plugins: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Ray task calls the same function, on a node that does not have the environment of the grid."""
    (tmp_path / "the_plugin.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.delenv("TEMBED_PLUGINS", raising=False)
    code, _ = run_on_node(asdict(job(tmp_path, "outsider", plugins)))
    error = tmp_path / ".grid" / "run.error"
    assert code == (0 if plugins else FAILED), error.read_text()
    assert (tmp_path / "run" / "result.json").exists() == bool(plugins)
    if not plugins:
        assert "unknown model 'outsider'" in error.read_text()


def test_a_job_names_the_plugins_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_PLUGINS", "one,two.three")
    (run,) = locate_runs((Recipe.fast("rn26", "dots").complete(),), tmp_path)
    assert make_job(run, "", 1, 60.0).plugins == ["one", "two.three"]


@pytest.mark.parametrize(
    ("variable", "given", "expected"),
    [
        (None, {}, (4, 1)),
        ("2", {}, (2, 2)),
        ("3", {}, (1, 3)),
        ("2", {"jobs": 3}, (3, 2)),
        ("2", {"threads": 1}, (4, 1)),
        ("2,1", {}, (2, 2)),
        ("many", {}, (4, 1)),
        ("0", {}, (4, 1)),
    ],
)
def test_the_local_engine_takes_its_threads_from_the_environment(
    variable: str | None, given: dict[str, int], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    engine = LocalEngine("root", **given)
    assert (engine.jobs, engine.threads) == expected
    assert str(engine).endswith("1 thread each" if expected[1] == 1 else f"{expected[1]} threads each")


@pytest.mark.process
def test_an_estimate_includes_the_start_of_each_run(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0.1 < preview.startup_seconds() < 600
    grid = load_grid(str(mine))
    runs = locate_runs(grid.recipes, tmp_path)
    monkeypatch.setattr(preview, "measure_speed", lambda *_: preview.Speed(0.0, 0.0))
    monkeypatch.setattr(preview, "data_size", lambda *_: preview.DataSize(8, 10, 65, 15, 20))
    assert "about 1 s of work left" in preview.preview(grid, runs, "root", 1, None)
    shown = preview.preview(grid, runs, "root", 1, None, startup=60.0)
    assert f"about {len(runs)} min of work left" in shown
    assert "with 1 thread per run" in shown
