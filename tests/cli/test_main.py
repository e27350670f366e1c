"""The command line responds at once, suggests the right name after a typo, and names flags in errors."""

import subprocess
import sys
from pathlib import Path

import pytest

from tembed.cli import main as command_line
from tembed.cli.main import COMMANDS, main, split_plugins, with_flags
from tembed.common.errors import TembedError
from tembed.models.registry import list_models, model_info
from tembed.paper import PARAMETERS


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert "--plugin MODULE" in out
    assert "TEMBED_PLUGINS" in out


def test_a_typo_suggests_the_nearest_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modles"]) == 2
    assert "did you mean 'models'?" in capsys.readouterr().err


@pytest.mark.process
def test_help_does_not_import_torch() -> None:
    """Help in under a second means that nothing heavy is imported; counting seconds here would be flaky."""
    code = "import sys; from tembed.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_models_prints_table_1_beside_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "977,872 + 516C" in out
    assert "0.98M + 516C" in out
    assert "differs" not in out
    named = [line.split()[0] for line in out.splitlines() if line and not line.startswith(("model ", "not in Table 1"))]
    assert sorted(named) == list_models()
    assert all(model_info(name).about for name in named if name not in PARAMETERS)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("`train_images` is 0; it must be at least 1", "--train-images is 0; it must be at least 1"),
        ("`lr` and `weight_decay` are negative", "--lr and --weight-decay are negative"),
        ("use `copy`", "use --from"),
        ("'train_images' in quotes, `a sentence`, `tembed data list` and `Recipe`",) * 2,
    ],
)
def test_errors_name_flags_instead_of_arguments(message: str, shown: str) -> None:
    assert with_flags(message, {"copy": "--from"}) == shown


class Command:
    """A command module that fails as the library does."""

    FLAGS = {"source": "RUN"}  # noqa: RUF012

    @staticmethod
    def main(arguments: list[str]) -> int:
        raise TembedError("`batch_size` is 0, and `source` is not a run")


def test_a_library_error_is_shown_in_one_line_with_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "import_module", lambda name: Command)
    assert main(["evaluate"]) == 2
    assert capsys.readouterr().err == "tembed: error: --batch-size is 0, and RUN is not a run\n"


@pytest.mark.parametrize(
    ("line", "rest", "plugins"),
    [
        ("--plugin mine train rn26", "train rn26", ["mine"]),
        ("train rn26 --plugin mine --data x --plugin=yours.too", "train rn26 --data x", ["mine", "yours.too"]),
        ("train rn26", "train rn26", []),
    ],
)
def test_plugins_can_stand_anywhere_on_the_line(line: str, rest: str, plugins: list[str]) -> None:
    assert split_plugins(line.split()) == (rest.split(), plugins)


@pytest.mark.parametrize("line", ["train --plugin", "--plugin --data x", "--plugin= train"])
def test_a_plugin_without_a_name_gives_a_one_line_error(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err == "tembed: error: --plugin needs the name of a module: --plugin my_module\n"


def test_a_missing_plugin_gives_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMBED_PLUGINS", "")
    monkeypatch.chdir(tmp_path)
    assert main(["models", "--plugin", "no_such_plugin"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("tembed: error: plugin 'no_such_plugin': no such module in ")
    assert err.count("\n") == 1


TABLE_OF_RUNS = """
import sys
from tembed.cli.main import main
code = main(["runs", "."])
assert "torch" not in sys.modules, "torch was loaded"
sys.exit(code)
"""


@pytest.mark.process
def test_a_table_of_runs_does_not_wait_for_torch(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TABLE_OF_RUNS], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("run  model")


@pytest.mark.parametrize("line", ["train rn26-embd --data cifar10", "grid table1 --models rn26-embd"])
def test_a_typo_in_the_name_of_a_network_gives_a_one_line_error(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert "unknown model 'rn26-embd'; did you mean one of these: rn26-embed" in err
    assert err.count("\n") == 1
