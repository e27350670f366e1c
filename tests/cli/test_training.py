"""The commands train, evaluate and runs."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.datasets import store_world

from tembed.cli.main import main
from tembed.common.files import locked_folder
from tembed.lab.training.run import Run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    store_world(root, "dots", 100, 8)
    return root


@pytest.mark.slow
def test_train_evaluate_and_list(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(root))
    monkeypatch.chdir(tmp_path)
    line = ["train", "rn26-aux", "--data", "dots", "--preset", "fast", "--epochs", "1", "--batch-size", "30"]
    assert main([*line, "--out", "runs/one", "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("runs/one: test accuracy ")
    assert said.err == ""
    assert main([*line, "--out", "runs/one"]) == 0
    assert "already finished" in capsys.readouterr().err
    assert main([*line, "--out", "runs/one", "--seed", "5"]) == 2
    assert "seed: 5, not 0)" in capsys.readouterr().err
    assert main(["evaluate", "runs/one"]) == 0
    assert "on 20 test images" in capsys.readouterr().out
    assert main(["runs"]) == 0
    assert "runs/one  rn26-aux  dots  own     0     all     1/1" in capsys.readouterr().out
    (tmp_path / "runs/two").mkdir()
    (tmp_path / "runs/two/recipe.json").write_text("{")
    assert main(["runs"]) == 1
    assert "cannot be read: runs/two" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train rn26 --data dots --lambda 0.5", "--lambda does not apply to rn26"),
        ("train rn26 --data dots --preset fats", "--preset is 'fats', which is unknown; did you mean 'fast'?"),
        ("train rn26 --data dots --optimizer adm", "--optimizer is 'adm', which is unknown; did you mean 'adam'?"),
        ("train rn62 --data dots", "unknown model 'rn62'"),
        ("train rn26 --data nothing", "'nothing' is not in"),
        ("evaluate nothing", "shipped: "),
        ("runs nothing", "nothing is not a folder"),
    ],
)
def test_a_mistake_gives_a_one_line_error(
    line: str,
    said: str,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(root))
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_run_is_repeated_from_its_recipe(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(root))
    monkeypatch.chdir(tmp_path)
    line = (
        "train rn20 --data dots --preset fast --epochs 1 --train-images 10 --batch-size 5 --maximizer entropic --eps 2"
    )
    assert main([*line.split(), "--out", "one", "--quiet"]) == 0
    repeat = ["train", "--recipe", "one/recipe.json", "--out", "two"]
    with locked_folder(tmp_path / "two"):
        assert main(repeat) == 75
    assert main([*repeat, "--checkpoint-seconds", "5", "--accelerator", "cpu", "--quiet"]) == 0
    for name in ("recipe.json", "best.safetensors"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
    capsys.readouterr()
    for more, said in {
        "--epochs 3 --seed 7": "(epochs: 3, not 1; seed: 7, not 0)",
        "rn26": "(model: rn26, not rn20)",
        "--preset fast": "(--preset or --block)",
        "--block aux": "(--preset or --block)",
    }.items():
        assert main([*repeat, *more.split()]) == 2
        assert f"--recipe holds all settings of a run: leave out the others {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("[" * 100_000, "maximum recursion depth"),
        ('{"model": "rn26"', "Expecting"),
        ('{"model": "rn26", "data": "dots", "epocs": 3}', "a recipe has no field 'epocs'; did you mean 'epochs'?"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.json"
    if content is not None:
        path.write_text(content)
    assert main(["train", "--recipe", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"{path} cannot be read as a recipe ({said}" in error
    assert "give the recipe.json of a run" in error


def test_a_recipe_file_imports_no_code(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(root))
    monkeypatch.setenv("TEMBED_PLUGINS", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("their_module.py").write_text("open('imported', 'w').close()")
    Path("recipe.json").write_text('{"model": "their_module:network@layer", "data": "dots"}')
    assert main(["train", "--recipe", "recipe.json"]) == 2
    assert "--plugin their_module" in capsys.readouterr().err
    assert not Path("imported").exists()


def test_a_mistake_in_the_data_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "datasets"))
    assert main(["train", "rn26", "--data", "nothing", "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


def test_tensorboard_reads_what_a_run_wrote(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TEMBED_DATA", str(root))
    out = tmp_path / "run"
    line = f"train rn20 --data dots --epochs 2 --batch-size 30 --quiet --tensorboard --out {out}"
    assert main(line.split()) == 0
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("epoch/val_accuracy")]
    assert shown == [(m["epoch"], pytest.approx(m["val_accuracy"])) for m in Run.open(out).metrics]


COMMANDS = [
    "train", "evaluate", "runs", "grid", "report", "analyze", "explain", "demo",
    "predict", "export", "explore", "layers", "cache",
]  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_help_does_not_import_torch(command: str) -> None:
    code = (
        "import sys\nfrom tembed.cli.main import main\n"
        f"try: main(['{command}', '--help'])\nexcept SystemExit: sys.exit('torch' in sys.modules)\n"
        "else: sys.exit('no help')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f"usage: tembed {command}" in ended.stdout


def test_two_analyses_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked_folder(tmp_path / "out"):
        assert main(["analyze", "rn26-embed/cifar10", "--out", str(tmp_path / "out")]) == 75
    assert "is in use by another process: wait for it, or give another --out" in capsys.readouterr().err
    assert main(["analyze", "nothing/there", "--out", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()
