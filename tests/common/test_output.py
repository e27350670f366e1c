"""What a command prints is text: no foreign name controls the terminal, and a reader that has gone ends nothing."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.files import write_json
from tembed.common.output import robust_output
from tembed.common.progress import Lines
from tembed.lab.terminal import Bars
from tembed.lab.training.recipe import Recipe

TITLE = "\x1b]0;owned\x07"
"""Sets the title of a terminal."""
CLEAR = "\x1b[2J"
"""Clears the screen."""


def test_printed_text_has_no_control_characters_but_colours(capsys: pytest.CaptureFixture[str]) -> None:
    with robust_output():
        print(f"a{TITLE}b{CLEAR}c\x9bd\r\x08", "\x1b[1mbold\x1b[0m", sep="\t")
    said = capsys.readouterr().out
    assert said == "a\\x1b]0;owned\\x07b\\x1b[2Jc\\x9bd\\r\\x08\t\x1b[1mbold\x1b[0m\n"


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_lines_about_progress_have_no_control_characters(kind: type) -> None:
    file = io.StringIO()
    observer = Lines(file) if kind is Lines else Bars(Console(file=file, force_terminal=True))
    observer.say(f"run {TITLE}{CLEAR}")
    observer.update(f"task {TITLE}", 1, 2)
    observer.close()
    assert TITLE not in file.getvalue()
    assert CLEAR not in file.getvalue()


def test_an_error_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", f"/nowhere/{TITLE}"]) == 2
    assert TITLE not in capsys.readouterr().err


def test_the_table_of_runs_has_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "recipe.json", Recipe("rn26", "cifar10").to_json() | {"optimizer": TITLE})
    folder = tmp_path / f"run{CLEAR}"
    folder.mkdir()
    write_json(folder / "recipe.json", Recipe("rn26", "cifar10").to_json())
    assert main(["runs", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "run\\x1b[2J" in said
    assert "cannot be read" in said


@pytest.mark.parametrize("data", ["x/../../y", "/etc/x", "..", ".hidden", "a\\b", TITLE, "two\nlines"])
def test_a_recipe_with_a_path_for_a_name_is_not_read(data: str) -> None:
    with pytest.raises(TembedError, match="data cannot be"):
        Recipe.from_json(Recipe("rn26", "cifar10").to_json() | {"data": data})


def test_a_foreign_recipe_does_not_write_outside_the_given_folder(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "one"
    write_json_file(run / "recipe.json", Recipe("rn26", "cifar10").to_json() | {"data": "x/../../outside"})
    write_json_file(run / "environment.json", {"data_sha256": "", "starts": [{}]})
    result = {"test_accuracy": 0.5, "val_accuracy": 0.5, "best_epoch": 1, "epochs": 1, "total_seconds": 1.0}
    write_json_file(run / "result.json", result | {"test": {"images": 1}})
    (tmp_path / "saved" / "rn26-x").mkdir(parents=True)
    assert main(["runs", str(run.parent), "--save", str(tmp_path / "saved")]) == 1
    assert [path for path in tmp_path.rglob("*.json") if path.parent != run] == []


def write_json_file(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, value)


@pytest.mark.parametrize("field", ["model", "optimizer", "maximizer"])
def test_a_recipe_with_control_characters_is_not_read(field: str) -> None:
    with pytest.raises(TembedError, match=f"{field} cannot be") as raised:
        Recipe.from_json(Recipe("rn26", "cifar10").to_json() | {field: f"rn26{CLEAR}"})
    assert CLEAR not in str(raised.value)


def closed_pipe() -> io.TextIOWrapper:
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def test_progress_lines_go_on_without_a_reader() -> None:
    with closed_pipe() as file:
        observer = Lines(file, every=0)
        for number in range(3):
            observer.say(f"line {number}")
            observer.update("training", number, 3)
        observer.close()


def test_bars_go_on_without_a_reader() -> None:
    with closed_pipe() as file:
        observer = Bars(Console(file=file, force_terminal=True))
        for number in range(3):
            observer.say(f"line {number}")
            observer.update("training", number, 3)
        observer.close()


def test_results_may_be_printed_without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_pipe() as file:
        monkeypatch.setattr("sys.stdout", file)
        assert main(["--version"]) == 0
        file.flush()


@pytest.mark.parametrize("arguments", [["--version"], ["runs", "."], ["runs", "--help"]])
def test_a_full_disk_behind_the_output_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open("/dev/full", "w") as file:
        monkeypatch.setattr("sys.stdout", file)
        assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said == "tembed: error: the output cannot be written (No space left on device): send it elsewhere\n"


def test_a_mistake_needs_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_pipe() as file:
        monkeypatch.setattr("sys.stderr", file)
        assert main(["no-such-command"]) == 2
