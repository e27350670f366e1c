"""Planted bugs are valid Python, the same for the same seed, and never in a message or a docstring."""

import ast
import random

import pytest
from campaign.mutants import AREAS, PROJECT, Finder, candidates, draw

EXAMPLE = '''
def area(height: int = 3, width: int = 4) -> int:
    """Height times width: 1 + 2."""
    if height < 0:
        raise ValueError(f"{height + 1} is below {0 + 1}")
    return f(height, width) * width if not height else max(1, -width)
'''


def test_each_bug_is_one_change() -> None:
    finder = Finder("area", "example.py", EXAMPLE)
    finder.visit(ast.parse(EXAMPLE))
    assert sorted((one.old, one.new) for one in finder.found) == sorted(
        [
            ("3", "4"),
            ("4", "5"),
            ("height < 0", "height <= 0"),
            ("height", "width"),
            ("0", "1"),
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


@pytest.mark.slow
@pytest.mark.parametrize("area", AREAS)
def test_files_with_a_bug_are_still_python(area: str) -> None:
    found = candidates(area)
    for mutant in random.Random(0).sample(found, min(20, len(found))):
        content = (PROJECT / "src/tembed" / mutant.file).read_bytes()
        changed = content[: mutant.start] + mutant.new.encode() + content[mutant.stop :]
        assert content[mutant.start : mutant.stop].decode() == mutant.old
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(content))
    assert all((PROJECT / test).exists() for tests in AREAS[area].values() for test in tests.split())


def test_the_seed_decides_the_bugs() -> None:
    assert draw(3, 40) == draw(3, 40) != draw(4, 40)
    assert {mutant.area for mutant in draw(3, 40)} == set(AREAS)
