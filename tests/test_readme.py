"""Every Python example of the README runs as printed."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split("\n\n")[0].splitlines()[-1])
def test_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path))
    exec(compile(example, str(README), "exec"), {})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
