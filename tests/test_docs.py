"""The README's examples run, and the documents name only files, tests and Python names that exist."""

import ast
import json
import pkgutil
import re
import runpy
from pathlib import Path

import pytest
from roofline import count

from tembed.lab.claims.claim import read_claim
from tembed.lab.report.analysis_report import verdict_table
from tembed.lab.report.document import to_markdown

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
SCRIPTS = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("page/static/js/*.js"))
EXAMPLE_FILES = {"my_lab.py", "my_panel.py"}


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split("\n\n")[0].splitlines()[-1])
def test_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path))
    exec(compile(example, str(README), "exec"), {})


def test_the_verdicts_of_the_readme_are_those_of_the_saved_analysis() -> None:
    """`docs/figures/make.py` writes them."""
    saved = json.loads((ROOT / "results" / "analysis" / "rn26-embed-cifar10.json").read_text("utf-8"))
    table = README.read_text("utf-8").partition("<!-- verdicts -->")[2].partition("<!-- end of verdicts -->")[0]
    expected = to_markdown([verdict_table([read_claim(claim) for claim in saved["claims"]])])
    assert table.strip() == expected.strip()
    assert len(table.splitlines()) > 10


def test_the_page_of_results_is_written_from_the_run_files() -> None:
    """`python docs/figures/results.py` writes it."""
    script = runpy.run_path(str(ROOT / "docs" / "figures" / "results.py"))
    opening, comment, rest = (ROOT / "docs" / "results.md").read_text("utf-8").partition(script["COMMENT"])
    assert opening
    assert comment
    assert rest.strip() == script["generated"]().strip()
    for name in re.findall(r"\((figures/results/[\w-]+\.svg)\)", rest):
        assert (ROOT / "docs" / name).exists()


def test_the_page_about_clusters_has_the_counts_of_a_step() -> None:
    """Of one network; `python benchmarks/roofline.py` prints the whole table."""
    step = count("rn26-embed", "cifar100").step
    flops, moved = (sum(each) / 1e9 for each in zip(*step, strict=True))
    row = f"| rn26-embed | cifar100 | {len(step)} | {flops:.1f} | {moved:.2f} |"
    assert row in (ROOT / "docs" / "cluster.md").read_text("utf-8")


def test_the_map_from_paper_to_code_names_what_exists() -> None:
    text = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
    files = [str(path) for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.*")]
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`([\w/.]+\.(?:py|c)|tests/[\w/]*|test_\w+)`", text)
    assert len(named) > 30
    for name in named:
        if name.startswith("test_") and not name.endswith(".py"):
            assert f"def {name}(" in tests, name
        elif name.startswith("tests/"):
            assert (ROOT / name).exists(), name
        else:
            assert any(path.endswith(f"/{name}") for path in files), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_files_that_exist(path: Path) -> None:
    files = [str(file) for file in (ROOT / "src").rglob("*.*")]
    for name in re.findall(
        r"`([\w/-]+\.(?:py|c)|(?:src|tests|benchmarks|docs|results)/[\w/.-]+)`", path.read_text("utf-8")
    ):
        inside = any(file.endswith(f"/{name}") for file in files)
        assert inside or (ROOT / name).exists() or name in EXAMPLE_FILES, name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_uses_python_names_that_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    blocks = re.findall(r"```python.*?\n(.*?)```", text, flags=re.DOTALL)
    for node in (node for block in blocks for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "tembed":
            exec(ast.unparse(node), {})
    used = [*blocks, *re.findall(r"`([^`\n]+)`", text)]
    names = {name for code in used for name in re.findall(r"\btembed(?:\.[A-Za-z_]\w*)+", code)}
    in_the_page = {name for name in names if f"T.{name.removeprefix('tembed.')} =" in SCRIPTS}
    for name in names - in_the_page:
        pkgutil.resolve_name(name)  # raises an AttributeError


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_prose_is_wrapped_at_100_columns(path: Path) -> None:
    code = False
    for line in path.read_text(encoding="utf-8").splitlines():
        code ^= line.startswith("```")
        if not code and not line.startswith(("|", "!", "#", "    ")) and "http" not in line:
            assert len(line) <= 100, line
