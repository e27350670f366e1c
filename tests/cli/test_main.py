"""The command line answers at once, and a typo gets a way out."""

import subprocess
import sys

import pytest

from tembed.cli.main import GROUPS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in GROUPS)


def test_a_typo_names_the_near_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modles"]) == 2
    assert "did you mean 'models'?" in capsys.readouterr().err


def test_help_does_not_wait_for_torch() -> None:
    """Help in under a second means that nothing heavy is imported; counting seconds here would be flaky."""
    code = "import sys; from tembed.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_models_prints_table_1_beside_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "977,872 + 516C" in out
    assert "0.98M + 516C" in out
    assert "differs" not in out
