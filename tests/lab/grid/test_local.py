"""The local engine skips, resumes, fails and retries runs as it should, and no worker outlives its grid."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.grids import MINE, ONE, TIMEOUT, left_by, runs_of, start_grid, wait_until_training
from support.kills import starts

from tembed.cli.main import main
from tembed.common.cores import cores
from tembed.common.errors import TembedError
from tembed.lab.grid import engines, preview
from tembed.lab.grid.engines import LocalEngine
from tembed.lab.grid.grid_file import load_grid
from tembed.lab.grid.jobs import GridRun, locate_runs
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


@pytest.mark.process
def test_a_worker_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid file may come with other files, which are not the user's code."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(ONE)
    Path("safetensors.py").write_text("open('imported', 'w').close()\nraise ImportError")
    assert main(["grid", "mine.toml", "--threads", "1", "--quiet"]) == 0
    assert not Path("imported").exists()


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


def test_a_dry_run_lists_the_runs_with_their_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = tmp_path / "long.toml"
    grid.write_text('model = "rn20"\ndata = "dots"\nepochs = [1, 1000000]')
    monkeypatch.setattr(preview, "MEASURED_SECONDS", 0.01)
    assert main(["grid", str(grid), "--dry-run", "--threads", "1", "--out", str(tmp_path / "runs")]) == 0
    output = capsys.readouterr().out
    assert re.search(r"new    0/1000000  [\d.]+ days\n", output)
    assert re.search(r"new    0/1        \d+ s\n", output)
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
        ("depth --data tiny --jobs-per-gpu 2", "--jobs-per-gpu needs a GPU"),
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


def one_run(tmp_path: Path, model: str = "rn20") -> GridRun:
    recipe = Recipe.fast(model, "dots", epochs=1, batch_size=10, train_images=10, split="paper")
    return GridRun(recipe, tmp_path, "run")


@pytest.mark.parametrize(
    ("code", "status"),
    [(75, "busy"), (143, "stopped"), (130, "stopped"), (-15, "stopped"), (1, "failed"), (2, "failed"), (-9, "failed")],
)
def test_an_exit_code_says_how_a_worker_ended(code: int, status: str, tmp_path: Path) -> None:
    assert engines.run_exit(one_run(tmp_path), code).status == status


def environment_of(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """The environment of a worker, which is then killed."""
    try:
        while b"-m\0tembed\0" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():  # until exec
            time.sleep(0.01)
        lines = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
    finally:
        process.kill()
        process.communicate()
    return dict(line.split("=", 1) for line in lines if line)


@pytest.mark.process
@pytest.mark.parametrize("policy", [None, "ACTIVE", "PASSIVE"])
def test_a_worker_keeps_the_waiting_policy_of_the_user(
    policy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    environment = environment_of(engines.start_worker(["train"], {}, tmp_path / "log"))
    assert environment["OMP_WAIT_POLICY"] == (policy or "PASSIVE")


@pytest.mark.process
@pytest.mark.parametrize(
    ("visible", "per_gpu", "expected"),
    [(None, None, ["0", "1"]), ("3,GPU-8f,5", None, ["3", "GPU-8f"]), (None, 2, ["0", "1", "0", "1"])],
)
def test_each_worker_has_its_gpu_and_frees_it(
    visible: str | None, per_gpu: int | None, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    engine = LocalEngine("root", threads=1, jobs_per_gpu=per_gpu)
    assert f"{len(expected)} at a time on this machine with 2 GPUs" in str(engine)
    recipe = one_run(tmp_path).recipe
    runs = [GridRun(recipe, tmp_path, f"run{number}") for number in range(len(expected))]
    for run in runs:
        assert engine.has_capacity()
        engine.start(run)
    assert not engine.has_capacity()
    found = [environment_of(engine.running[run][0])["CUDA_VISIBLE_DEVICES"] for run in runs]
    assert found == expected
    assert {ended.run for ended in engine.poll()} == set(runs)  # they were killed
    engine.start(runs[1])
    assert environment_of(engine.running[runs[1]][0])["CUDA_VISIBLE_DEVICES"] == expected[0]


def test_jobs_limit_the_workers_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(engines, "cores", lambda: 8)
    assert LocalEngine("", jobs=1).free == ["0"]
    assert LocalEngine("", jobs=3, jobs_per_gpu=2).free == ["0", "1", "0"]
    assert LocalEngine("", jobs=9).free == ["0", "1"]
    assert LocalEngine("").threads == 4


def test_the_gpu_of_a_mac_has_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert LocalEngine("").jobs == 1


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
    """The Ray task gets everything as arguments, because its node does not have the environment of the grid."""
    (tmp_path / "the_plugin.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("TEMBED_PLUGINS", ",".join(plugins))
    run = one_run(tmp_path, "outsider")
    environment = engines.worker_environment(run, os.environ["TEMBED_DATA"], 1)
    monkeypatch.delenv("TEMBED_PLUGINS")
    ended = engines.run_exit(run, run_on_node(run.prepare(60), environment, str(run.log)))
    assert ended.status == ("finished" if plugins else "failed"), ended.reason
    assert run.run.result_path.exists() == bool(plugins)
    if not plugins:
        assert ended.reason.startswith("unknown model 'outsider'")


def test_a_task_on_a_node_without_the_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(TembedError, match=r"does not see .*: put the runs on a path that all nodes share"):
        run_on_node([], {}, str(tmp_path / "nowhere" / "log"))


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


def test_an_estimate_is_for_the_device_of_the_workers(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = []

    def measure_speed(recipe: Recipe, size: object, device: str) -> preview.Speed:
        measured.append(device)
        return preview.Speed(train=1.0, evaluate=0.0)

    monkeypatch.setattr(preview, "measure_speed", measure_speed)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("tembed.lab.grid.preview.image_side", lambda recipe, epoch, side: side)
    line = ["grid", str(mine), "--dry-run", "--threads", "1", "--out", str(tmp_path / "runs")]
    assert main(line) == 0
    assert "about 13.0 min of work left, 6.5 min with 2 runs at a time (cuda, 1 thread per run" in (
        capsys.readouterr().out
    )  # two runs of 3 epochs of 130 images
    assert main([*line, "--engine", "ray"]) == 0
    assert main([*line, "--engine", "ray", "--gpus", "1"]) == 0
    assert measured == ["cuda", "cpu", "cuda"]


@pytest.mark.process
@pytest.mark.slow
def test_the_listed_commands_train_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "some runs.toml"
    file.write_text(ONE + "seeds = 2\n")
    line = ["grid", str(file), "--out", str(tmp_path / "my 'runs'")]
    assert main([*line, "--list", "--checkpoint-seconds", "5"]) == 0
    commands = capsys.readouterr().out
    assert commands.count("\n") == 2
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["xargs", "-d", "\n", "-P", "2", "-I{}", "sh", "-c", "{}"], input=commands, text=True, check=True)
    assert main([*line, "--list"]) == 0
    assert capsys.readouterr().out == ""
    assert main(line) == 0
    assert "2 of 2 runs are finished, 0 of them by this command" in capsys.readouterr().out
