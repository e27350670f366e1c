"""`tembed doctor` finds what is missing, never fails itself, and names one thing to do next."""

import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.datasets import store_world

from tembed.cli import cmd_doctor
from tembed.cli.main import main
from tembed.kernels import build

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for runs, datasets and cached features."""
    monkeypatch.chdir(tmp_path)
    for name in ("TEMBED_DATA", "TEMBED_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


@pytest.fixture
def no_kernels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel is loaded or compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "XDG_CACHE_HOME"))
    build._load.cache_clear()
    yield
    build._load.cache_clear()


@pytest.fixture
def examined(capsys: pytest.CaptureFixture[str]):
    """A function that runs the doctor: its exit code, its marks and texts by name, and the next step."""

    def run() -> tuple[int, dict[str, str], str]:
        code = main(["doctor"])
        out, err = capsys.readouterr()
        assert err == ""
        lines, _, step = out.partition("\nnext: ")
        rows = [re.fullmatch(r"([ !x]) (\w+) +(.+)", line) for line in lines.splitlines()]
        assert all(rows), out
        assert len(step.splitlines()) == 1
        return code, {row[2]: row[1].strip() + row[3] for row in rows if row}, step

    return run


def test_on_this_machine_all_is_well(folder: Path, examined) -> None:
    code, found, step = examined()
    assert code == 0
    assert list(found) == list(cmd_doctor.CHECKS)
    assert not [text for text in found.values() if text[0] in "!x"]
    assert "rn26-embed/cifar10" in found["tembed"]
    assert found["kernels"].startswith("bn_relu, perturbed: compiled")
    assert found["datasets"].startswith("none yet")
    assert step.startswith("tembed demo")


def test_after_the_demo_it_sends_the_user_to_training(folder: Path, examined) -> None:
    (folder / "runs").mkdir()
    assert examined()[2].startswith("tembed data get")
    store_world(folder / "TEMBED_DATA", "dots", 20, 16)
    _, found, step = examined()
    assert found["datasets"].startswith("dots, in")
    assert step == "tembed train rn26-embed --data dots --preset fast\n"


@pytest.mark.usefixtures("no_kernels")
def test_no_compiler_is_no_hindrance(examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    code, found, step = examined()
    assert code == 0
    assert found["compiler"] == "!none on the PATH"
    assert "no C compiler found" in found["kernels"]
    assert "gcc" in step


@pytest.mark.usefixtures("no_kernels")
def test_files_in_place_of_folders(folder: Path, examined) -> None:
    for name in ("TEMBED_DATA", "TEMBED_CACHE", "XDG_CACHE_HOME"):
        (folder / name).touch()
    code, found, step = examined()
    assert code == 1
    assert [name for name, text in found.items() if text[0] == "x"] == ["datasets"]
    assert [name for name, text in found.items() if text[0] == "!"] == ["kernels", "features"]
    assert "TEMBED_DATA" in step


def test_a_damaged_dataset_is_named(folder: Path, examined) -> None:
    store_world(folder / "TEMBED_DATA", "dots", 20, 16)
    (folder / "TEMBED_DATA" / "dots" / "manifest.json").write_text("{")
    code, found, step = examined()
    assert code == 0
    assert "manifest.json" in found["datasets"]
    assert step.startswith("tembed data list")


@pytest.mark.usefixtures("folder")
def test_without_torch_or_a_home_there_is_no_traceback(examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(cmd_doctor, "installed", lambda name: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: 1 / 0)
    for name in ("TEMBED_DATA", "TEMBED_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: next(iter(())))
    code, found, step = examined()
    assert code == 1
    assert [name for name, text in found.items() if text[0] == "x"] == ["torch", "laboratory", "disk", "datasets"]
    assert step == "pip install --upgrade 'tembed[lab]'\n"


def test_the_oldest_torch_is_that_of_the_package() -> None:
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert f"torch>={'.'.join(map(str, cmd_doctor.OLDEST_TORCH))}" in needs
