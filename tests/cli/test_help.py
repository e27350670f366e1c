"""The help of every command: each option in a box, with one default that says what happens without the option."""

import re
from dataclasses import fields
from typing import get_args

import pytest

from tembed.cli import cmd_data
from tembed.cli.main import COMMANDS, main
from tembed.lab.training.hardware import Hardware
from tembed.lab.training.recipe import Recipe

LINES = [*COMMANDS, *(f"data {kind.__name__.lower()}" for kind in get_args(cmd_data.Command))]


@pytest.fixture
def boxes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """A function from a command line to the texts of its help, by box and option."""
    monkeypatch.setenv("COLUMNS", "100")  # not too narrow for a title

    def read(line: str) -> dict[str, dict[str, str]]:
        with pytest.raises(SystemExit, match="0"):
            main([*line.split(), "--help"])
        found: dict[str, dict[str, str]] = {}
        for row in capsys.readouterr().out.replace("│", " ").splitlines():
            if title := re.match(r"(?:╭─)? ((?:\w+ )?(?:options|arguments)|subcommands) ", row):
                box, entry = found.setdefault(title[1], {}), ""
            elif name := re.match(r"  (-{1,2}[a-z][^\s,]*|\[?[A-Z]{3,})", row):
                entry = name[1]
                box[entry] = row.strip()
            elif row.startswith("   ") and entry:
                box[entry] += " " + row.strip()
        return found

    return read


@pytest.mark.parametrize("line", LINES)
def test_every_option_has_one_default(boxes, line: str) -> None:
    shown = boxes(line)
    assert "-h" in shown["options"]
    for box in shown.values():
        for name, text in box.items():
            if name != "-h":
                assert len(re.findall(r"\(default: [^)]|\(required\)", text)) == 1, text
                assert "None" not in text
                assert not re.search(r"`[a-z_]+`", text), "a field of Python, not a flag"


def test_the_options_of_train_are_grouped(boxes) -> None:
    shown = boxes("train")
    assert set(shown.pop("options")) == {"-h", "--preset", "--recipe"}
    assert set(shown.pop("positional arguments")) == {"MODEL"}
    assert list(shown) == [
        f"{name} options" for name in ("data", "length", "optimisation", "block", "start", "machine", "output")
    ]
    flags = {flag for box in shown.values() for flag in box}
    names = {each.name for kind in (Recipe, Hardware) for each in fields(kind)} - {"model", "weight"}
    assert {"--" + name.replace("_", "-") for name in names} | {"--lambda"} <= flags
    assert "--lr" in shown["optimisation options"]
    assert "--epochs" in shown["length options"]


def test_the_defaults_are_those_of_the_preset(boxes) -> None:
    assert "(default: 200)" in boxes("train")["length options"]["--epochs"]
    shown = boxes("train --preset fast")
    assert "(default: 8)" in shown["length options"]["--epochs"]
    assert "(default: muon)" in shown["optimisation options"]["--optimizer"]
