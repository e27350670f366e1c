"""Planted bugs are valid, the same for the same seed, and never in a message or a comment."""

import ast
import random

import pytest
from campaign.bugs import javascript_bugs, javascript_tokens, python_bugs
from campaign.mutants import PROJECT, SOURCES, candidates, draw, nearest_tests

PYTHON = '''
def area(height: int = 3, width: int = 4) -> int:
    """Height times width: 1 + 2."""
    if height < 0:
        raise ValueError(f"{height + 1} is below {0 + 1}")
    log("area of " + str(height))
    return f(height, width) * width if not height else max(1, -width)
'''
JAVASCRIPT = """
// 1 + 2 < 3
const area = (height, width) => {
  if (height <= 0 || /[<+]/.test("1 < 2")) return `${1 + 2}`;
  draw(width.half, 0.5);
  return "side " + (!height / 2) - Math.max(1, width);
};
"""


def test_each_bug_in_python_is_one_change() -> None:
    assert sorted((one.old, one.new) for one in python_bugs("example.py", PYTHON)) == sorted(
        [
            ("3", "4"),
            ("4", "5"),
            ("height < 0", "height <= 0"),
            ("height", "width"),
            ("0", "1"),
            ('log("area of " + str(height))', "None"),
            ("height", "width"),
            (
                "f(height, width) * width if not height else max(1, -width)",
                "max(1, -width) if not height else f(height, width) * width",
            ),
            ("f(height, width) * width", "f(height, width) / width"),
            ("f(height, width)", "f(width, height)"),
            ("height", "width"),
            ("width", "height"),
            ("width", "height"),
            ("not height", "(height)"),
            ("height", "width"),
            ("1", "2"),
            ("-width", "(width)"),
            ("width", "height"),
        ]
    )


def test_each_bug_in_javascript_is_one_change() -> None:
    assert sorted((one.old, one.new) for one in javascript_bugs("example.js", JAVASCRIPT)) == sorted(
        [
            ("height, width", "width, height"),
            ("<=", "<"),
            ("0", "1"),
            ("||", "&&"),
            ("draw(width.half, 0.5)", "0"),
            ("width.half, 0.5", "0.5, width.half"),
            ("0.5", "0.75"),
            ("!", ""),
            ("/", "*"),
            ("2", "3"),
            ("-", "+"),
            ("1", "2"),
        ]
    )


def test_every_character_of_the_scripts_is_in_a_token_or_between_two() -> None:
    for path in sorted(SOURCES.glob("lab/page/static/js/**/*.js")):
        text, end = path.read_text("utf-8"), 0
        for kind, start, token in javascript_tokens(text):
            assert text[start : start + len(token)] == token
            between = text[end:start].strip()
            assert not between or between.startswith(("//", "/*")), (path, between)
            assert kind != "text" or token[0] == token[-1] or token[0] == "/", (path, token)
            end = start + len(token)


def test_files_with_a_bug_are_still_python() -> None:
    found = candidates("**/*.py", python_bugs)
    for bug in random.Random(0).sample(found, 100):
        content = (SOURCES / bug.file).read_bytes()
        assert content[bug.start : bug.stop].decode() == bug.old
        assert ast.dump(ast.parse(bug.plant(content))) != ast.dump(ast.parse(content))


def test_the_seed_decides_the_bugs() -> None:
    drawn = draw(3, 40)
    assert drawn == draw(3, 40) != draw(4, 40)
    assert len({str(bug) for bug in drawn}) == 40
    assert sum(bug.file.endswith(".js") for bug in drawn) == 8


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("block.py", "tests/test_block.py"),
        ("lab/training/schedule.py", "tests/lab/training/test_schedule.py"),
        ("cli/cmd_data.py", "tests/cli/test_data.py"),
        ("lab/page/static/js/filter.js", "tests/lab/page/test_units.py"),
    ],
)
def test_the_mirror_of_a_file_is_tested_first(file: str, test: str) -> None:
    near, far = nearest_tests(file)
    assert near[0] == test
    assert not set(near) & set(far)
    assert all((PROJECT / path).exists() for path in near + far)
