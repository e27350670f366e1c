"""A user adds six extensions without touching the package, exactly as docs/extending.md shows them."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from support.quick import PROGRAM

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.plugins import load_plugins, name_plugins, named_plugins

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
BLOCKS = {kind: re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL) for kind in ("python", "sh", "toml")}
*MODULE, SCRIPT = BLOCKS["python"]
# Like the installed `tembed` script, -P does not put the current folder on the path: `--plugin` has to do it.
SHELL = [sys.executable, "-P", "-c", "import sys; from tembed.cli.main import main; sys.exit(main())"]
COMMANDS = """
import shlex
from tembed.cli.main import main
for line in sys.argv[1:]:
    if code := main(shlex.split(line)[1:]):
        sys.exit(f"{line}: {code}")
"""
"""Runs several command lines in one process, because each process would load torch again."""


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that docs/extending.md shows."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "my_lab.py").write_text("\n\n".join(MODULE))
    (folder / "my_grid.toml").write_text(BLOCKS["toml"][0])
    return folder


def run(line: list[str], folder: Path) -> str:
    """The output of a command that succeeds. Registrations stay in its process."""
    environment = {name: value for name, value in os.environ.items() if name != "TEMBED_PLUGINS"}
    environment |= {"TEMBED_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    ended = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def check_run(folder: Path) -> None:
    """The run used the outsider's network, dataset, trick, patch loss, optimizer, maximizer and constant."""
    recipe = json.loads((folder / "recipe.json").read_text())
    assert (recipe["model"], recipe["data"], recipe["optimizer"]) == ("plain-embed", "stripes", "sgd")
    assert (recipe["maximizer"], recipe["constants"]) == ("leaders", {"share": 0.25})
    assert recipe["softmax_on_bn"] is True
    assert recipe["weight"] == 0.5
    assert recipe["mu"] is None
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(record["patches"] > 0 for record in metrics)


def check_analysis(folder: Path) -> None:
    """The outsider's claim, control, super-classes and look-alike pairs are in the report."""
    claims = {claim["name"]: claim for claim in json.loads((folder / "claims.json").read_text())["claims"]}
    assert claims["patches mix few classes"]["weights"]["verdict"] in ("holds", "does not hold", "unclear")
    controls = {name: [control["name"] for control in claim["controls"]] for name, claim in claims.items()}
    assert controls["patches mix few classes"] == ["half of them", "untrained network (2 seeds)"]
    assert "f' of other patches (3 draws)" in controls["separation by the class vectors"]
    assert "f' of other patches (3 draws)" not in controls["separation behind the block"]
    report = (folder / "report.md").read_text("utf-8")
    assert "patches mix few classes" in report
    assert all(pair in report for pair in ("wide-rows", "thin-columns"))


def check_report(folder: Path) -> None:
    """The report has a row for the outsider's network and dataset."""
    rows = [line for line in (folder / "report.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert any("plain-embed" in row and "stripes" in row for row in rows)


def test_there_are_six_extensions() -> None:
    registrations = ("maximizers.register(", "register_model(", "register_dataset(", "register_optimizer(")
    for code, registration in zip(MODULE, (*registrations, "register_claim(", "register_control("), strict=True):
        assert f"\n{registration}" in code


@pytest.mark.process
@pytest.mark.slow
def test_the_python_api_accepts_all_six(lab: Path) -> None:
    assert "test accuracy" in run([sys.executable, "-c", PROGRAM + SCRIPT], lab)
    check_run(lab / "runs" / "from-python")
    check_analysis(lab / "analysis-from-python")
    check_report(lab / "report-from-python")


@pytest.mark.process
@pytest.mark.slow
def test_the_command_line_accepts_all_six(lab: Path) -> None:
    lines = BLOCKS["sh"][0].replace("\\\n", "").strip().splitlines()
    said = run([sys.executable, "-P", "-c", PROGRAM + COMMANDS, *lines], lab)
    assert said.count("stripes in two directions") == 1
    check_run(lab / "runs" / "from-shell")
    check_analysis(lab / "runs" / "from-shell" / "analysis")
    grid_runs = [path.parent for path in (lab / "runs").glob("*/recipe.json") if "from-" not in str(path)]
    assert len(grid_runs) == 2
    for folder in grid_runs:
        check_run(folder)
        assert (folder / "result.json").exists()
    check_report(lab / "report")


@pytest.mark.process
@pytest.mark.slow
def test_the_processes_of_a_training_load_the_plugins(lab: Path) -> None:
    line = "--plugin my_lab train plain-embed --data stripes --maximizer leaders --constants share 0.25 --lr 0.05"
    run([*SHELL, *line.split(), "--optimizer", "sgd", "--epochs", "1", "--devices", "2", "--out", "shared"], lab)
    check_run(lab / "shared")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMBED_PLUGINS", "")
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("intruder", "first", "second", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "intruder.py").write_text("open('imported', 'w').close()\n")
    return tmp_path


def test_a_named_module_of_the_current_folder_is_imported(folder: Path) -> None:
    load_plugins(["intruder"])
    assert (folder / "imported").exists()


def test_the_current_folder_never_shadows_an_installed_package(folder: Path) -> None:
    """Only the plugin itself is searched for here first, not what tembed imports later."""
    load_plugins(["intruder"])
    assert sys.path.index(str(folder)) == len(sys.path) - 1


def test_child_processes_inherit_the_names(folder: Path) -> None:
    os.environ["TEMBED_PLUGINS"] = " first, second ,,first"
    assert named_plugins() == ["first", "second"]
    name_plugins(["third", "second"])
    assert os.environ["TEMBED_PLUGINS"] == "first,second,third"


def test_the_environment_names_plugins_of_every_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMBED_PLUGINS", "intruder")
    assert main(["grid"]) == 0
    assert (folder / "imported").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "1 / 0",
            r"plugin 'broken' failed: ZeroDivisionError: division by zero; python -c 'import broken' shows where",
        ),
        ("import nothing_here", r"plugin 'broken' failed: ModuleNotFoundError: No module named 'nothing_here'; "),
        ("def f(:", r"plugin 'broken' failed: SyntaxError: invalid syntax \(broken.py, line 1\); "),
        ("raise SystemExit(3)", r"plugin 'broken' failed: SystemExit: 3; "),
        (
            "from tembed.common.errors import TembedError\nraise TembedError('two of a kind')",
            "plugin 'broken': two of a kind$",
        ),
    ],
)
def test_a_failing_module_is_named_in_one_line(folder: Path, code: str, message: str) -> None:
    (folder / "broken.py").write_text(code)
    with pytest.raises(TembedError, match=message) as caught:
        load_plugins(["broken"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "plugin 'missing': no such module in "),
        ("missing.inner", "plugin 'missing.inner': no such module in "),
        ("intruder.py", "plugin 'intruder.py' is not the name of a module: give the module's name without '.py'"),
        ("../intruder", "plugin '../intruder' is not the name of a module: give a name such as my_module"),
    ],
)
def test_a_missing_module_is_named_in_one_line(folder: Path, name: str, message: str) -> None:
    with pytest.raises(TembedError, match=re.escape(message)):
        load_plugins([name])
    assert not (folder / "imported").exists()


RECIPE = {"model": "intruder", "data": "intruder", "optimizer": "intruder", "maximizer": "intruder"}


@pytest.mark.parametrize("field", RECIPE)
def test_a_grid_never_imports_what_one_of_its_fields_names(
    folder: Path, field: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other fields are valid, so that nothing else stops the grid before it looks at this one."""
    monkeypatch.syspath_prepend(str(folder))
    spelling = "intruder:build@0" if field == "model" else "intruder"
    recipe = {"model": "rn20", "data": "parts", "optimizer": "adam", "maximizer": "bn-relu"} | {field: spelling}
    (folder / "grid.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in recipe.items()))
    assert main(["grid", "grid.toml", "--dry-run"]) == 2
    assert "intruder" in capsys.readouterr().err
    assert not list(folder.rglob("imported"))
    assert "intruder" not in sys.modules


@pytest.mark.parametrize("spelling", ["intruder", "intruder.build", "intruder:build", "./intruder.py"])
@pytest.mark.parametrize("command", ["evaluate", "analyze", "runs", "report", "grid", "train"])
def test_files_never_import_code_that_the_user_did_not_name(
    folder: Path, command: str, spelling: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe, a TOML file and a run folder name a module that could be imported, in every field that takes a name."""
    monkeypatch.syspath_prepend(str(folder))
    run = folder / "runs" / "theirs"
    run.mkdir(parents=True)
    (run / "intruder.py").write_text((folder / "intruder.py").read_text())
    recipe = dict.fromkeys(RECIPE, spelling)
    (run / "recipe.json").write_text(json.dumps(recipe))
    (folder / "grid.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in recipe.items()))
    (folder / "named.toml").write_text(
        'plugin = "intruder"\nplugins = ["intruder"]\nmodel = "rn26"\ndata = "missing"\n'
    )
    lines = {
        "evaluate": [["evaluate", str(run)]],
        "analyze": [["analyze", str(run)]],
        "runs": [["runs", str(run.parent)]],
        "report": [["report", str(run.parent)]],
        "grid": [["grid", "grid.toml", "--dry-run"], ["grid", "named.toml", "--dry-run"]],
        "train": [["train", spelling, "--data", spelling], ["train", "rn26", "--data", "missing", "--out", str(run)]],
    }
    for line in lines[command]:
        with suppress(SystemExit):  # how tyro refuses a value
            main(line)
    assert not list(folder.rglob("imported"))
    assert "intruder" not in sys.modules
