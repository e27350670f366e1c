"""The examples of the README and of the site run, and the documents name only what exists.

`make docs` builds the site itself, strictly; these tests find broken links and missing names without it.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import runpy
import shutil
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
import torch
from roofline import count

import tembed.common.errors
from tembed.maximizers import MU

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
NOTEBOOK = ROOT / "docs" / "photos-to-figures.ipynb"
DOCUMENTS = [README, *PAGES]
EXAMPLES = [
    example
    for path in (README, ROOT / "docs" / "start.md", ROOT / "docs" / "maximizers.md")
    for example in re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), flags=re.DOTALL)
]
SCRIPTS = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("page/static/js/*.js"))
EXAMPLE_FILES = {"my_lab.py", "my_panel.py"}


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split("\n\n")[1].splitlines()[0])
def test_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path))
    exec(compile(example, str(README), "exec"), {})


# --- the numbers of the README


EARLY = tuple(
    f"{name}-cifar10-own-keras-0-{code}"
    for name, code in (("rn26-embed", "0d34abb3"), ("rn26", "828e268b"), ("rn26-aux", "a23ebd72"))
)
"""The first row of Table 1, trained until early stopping."""


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))


def results_of(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "results").glob(f"{pattern}.json"))]


def seeds(model: str) -> list[dict[str, Any]]:
    return [result(f"{model}-cifar10-fast-{seed}") for seed in range(3)]


def points(runs: list[dict[str, Any]]) -> list[float]:
    return [100 * run["result"]["test_accuracy"] for run in runs]


def p_of(ours: list[float], theirs: list[float]) -> str:
    return f"{scipy.stats.ttest_ind(ours, theirs, equal_var=False).pvalue:.2g}"


def compared(ours: str, theirs: str) -> list[str]:
    """The numbers of a row about two runs: epochs, both accuracies and n."""
    runs = [result(ours), result(theirs)]
    assert runs[0]["recipe"]["epochs"] == runs[1]["recipe"]["epochs"]
    return [str(runs[0]["recipe"]["epochs"]), *(f"{each:.2f}" for each in points(runs)), "1"]


def without_embedding(run: str) -> dict[str, Any]:
    """What a network with the block loses if f' is zero."""
    return result(f"vital/rn26-embed-{run}")["knock_outs"]["f' = 0"]


def readme_rows() -> list[list[str]]:
    """The numbers in each row of the README's table of findings, from the run files."""
    with_block, without, aux = (points(seeds(model)) for model in ("rn26-embed", "rn26", "rn26-aux"))
    spread = [f"{take(each):.2f}" for each in (with_block, without) for take in (statistics.mean, statistics.stdev)]
    longer, five = "cifar10-fast-18epochs-0", "fast-5epochs-0"
    models = ("rn26-embed", "rn26", "rn26-aux")
    ours, base, their_aux = (points(results_of(f"{model}-cifar100-fast-5epochs-?-*")) for model in models)
    over_hundred = [f"{take(each):.2f}" for each in (ours, base) for take in (statistics.mean, statistics.stdev)]
    vital = results_of("vital/rn26-embed-cifar100-fast-5epochs-?-*")
    hundred_costs = [100 * one["knock_outs"]["f' = 0"]["cost"] for one in vital]
    mini = f"mini-imagenet-{five}-34b164c6"
    costs = [100 * without_embedding(f"cifar10-fast-{seed}")["cost"] for seed in range(3)]
    shipped = without_embedding(f"{longer}-bc12f9e3")
    early = [result(name) for name in EARLY]
    assert all(run["recipe"]["patience"] == 15 for run in early)
    until_early = without_embedding("cifar10-own-keras-0-0d34abb3")
    analysis = result("analysis/rn26-embed-cifar10")
    verdicts = Counter(claim["weights"]["verdict"] for claim in analysis["claims"])
    method = Counter(claim["method"]["verdict"] for claim in result("analysis/rn26-embed-cifar100")["claims"])
    separation = analysis["claims"][0]
    (plain,) = (each for each in separation["shown"] if each["name"] == "4x4 mean of the block input")
    purities = [f"{each['value']['value']:.3f}" for each in (plain, separation)]
    found = results_of("**/rn20-*-8epochs-13000images-*")
    rn20 = [
        points([run for run in found if (run["recipe"]["maximizer"], run["recipe"]["mu"]) == (name, mu)])
        for name, mu in (("entropic", MU), ("bn-relu", None), ("bn-entropic", MU), ("layernorm-entropic", MU))
    ]
    assert {len(each) for each in rn20} == {2}
    holds, unclear = verdicts["holds"], verdicts["unclear"]
    assert not verdicts["does not hold"] + method["does not hold"]
    return [
        ["8", *spread, p_of(with_block, without), "3"],
        compared(f"rn26-embed-{longer}-bc12f9e3", f"rn26-{longer}-ca408c2a"),
        [*(f"{each:.2f}" for each in points(early)), "1"],
        ["5", *over_hundred, p_of(ours, base), str(len(ours)), str(len(base))],
        compared(f"rn26-embed-{mini}", f"rn26-mini-imagenet-{five}-1fedecee"),
        ["8", spread[0], f"{statistics.mean(aux):.2f}", p_of(with_block, aux), "3"],
        ["5", over_hundred[0], f"{statistics.mean(their_aux):.2f}", p_of(ours, their_aux), "3"],
        ["8", f"{statistics.mean(costs):.2f}", f"{scipy.stats.ttest_1samp(costs, 0).pvalue:.2f}", "3"],
        ["18", f"{100 * shipped['cost']:.2f}", f"{shipped['p']:.2g}", "1"],
        [f"{100 * until_early['cost']:.2f}", f"{until_early['p']:.2g}", "1"],
        ["5", f"{statistics.mean(hundred_costs):.1f}", f"{scipy.stats.ttest_1samp(hundred_costs, 0).pvalue:.2g}", "3"],
        ["5", f"{100 * without_embedding(mini)['cost']:.1f}", "1"],
        ["5", *map(str, (method["holds"], method["holds"] + method["unclear"], method["unclear"])), "3"],
        ["18", *map(str, (holds, holds + unclear, unclear)), "4", *purities, "1"],
        ["8", *(f"{statistics.mean(each):.2f}" for each in rn20), "2"],
    ]


NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?")
"""A number in prose; RN26 and CIFAR-10 are names."""


def test_the_readme_is_short_and_its_findings_are_those_of_the_run_files() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) < 150
    table = text.partition("| question | answer | n |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert [NUMBER.findall(row) for row in table.splitlines()] == readme_rows()


def test_every_other_number_of_the_readme_has_a_source() -> None:
    text = re.sub(
        r"```.*?```|\]\(.*?\)|^(?:    |\|).*?$", "", README.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    python = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    demo = re.search(r"(\d+) minutes of a processor", (ROOT / "results" / "benchmarks" / "demo.md").read_text("utf-8"))
    assert python
    assert demo
    images = result("rn26-cifar10-fast-0")["result"]["test"]["images"]
    assert NUMBER.findall(text) == ["2022", python[1], demo[1], f"{images:,}"]


# --- the site


def text_of(path: Path) -> str:
    """The text of a page or of a notebook, without its front matter and its code."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"\A---\n.*?\n---\n|```.*?```", "", text, flags=re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", text_of(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*DOCUMENTS, NOTEBOOK], ids=lambda path: path.name)
def test_a_document_links_to_what_exists(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            file = path.parent / name if name else path
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("path", [*PAGES, NOTEBOOK], ids=lambda path: path.name)
def test_a_page_says_at_its_top_whom_it_is_for(path: Path) -> None:
    title, audience = text_of(path).strip().split("\n\n")[:2]
    assert title.startswith("# ")
    assert audience.startswith("For ")


def test_every_page_is_in_the_contents() -> None:
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    listed = [name for block in re.findall(r"```{toctree}\n(.*?)```", text, re.DOTALL) for name in block.split("\n")]
    listed = [name for name in listed if name and not name.startswith(":")]
    assert sorted(listed) == sorted(path.stem for path in [*PAGES, NOTEBOOK] if path.stem != "index")


ROOMS = ("", ".maximizers", ".models", ".attachment", ".trained", ".images", ".lab")
LAB_ROOMS = ("data", "training", "grid", "analysis", "claims", "report", "page")


def test_the_reference_has_every_public_name_once() -> None:
    """And `TembedError`, which every room raises."""
    public = {"TembedError": id(tembed.common.errors.TembedError)}
    for room in (*ROOMS, *(f".lab.{name}" for name in LAB_ROOMS)):
        module = importlib.import_module(f"tembed{room}")
        names = {name: getattr(module, name) for name in module.__all__ if not name.startswith("__")}
        public |= {f"{room}.{name}": id(value) for name, value in names.items() if not inspect.ismodule(value)}
    documented, module = [], ""
    for line in (ROOT / "docs" / "reference.md").read_text("utf-8").splitlines():
        directive, _, name = line.partition(":: ")
        if directive == ".. currentmodule":
            module = name
        elif directive.startswith(".. "):
            documented.append(id(pkgutil.resolve_name(f"{module}:{name}")))
    assert [name for name, value in public.items() if value not in documented] == []
    assert set(documented) <= set(public.values())
    assert len(documented) == len(set(documented))


def test_the_cells_of_the_paper_read_with_code_agree_with_its_equations(capsys: pytest.CaptureFixture[str]) -> None:
    text, names = (ROOT / "docs" / "paper-to-code.md").read_text("utf-8"), {}
    try:
        for cell in re.findall(r"```{code-cell} python\n(.*?)```", text, flags=re.DOTALL):
            exec(compile(cell, "paper-to-code.md", "exec"), names)
    finally:
        torch.set_printoptions(profile="default")
    printed = capsys.readouterr().out
    differences = [float(number) for number in re.findall(r"largest difference: +(\S+)", printed)]
    assert len(differences) == 4
    assert max(differences) < 0.01
    assert "active exactly above mu_k: True" in printed
    assert len(set(re.findall(r"EmbeddingLoss (\S+), by hand (\S+)", printed)[0])) == 1
    assert "961,488 + 257C" in printed


@pytest.mark.slow
def test_the_notebook_runs_and_keeps_its_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORTEN", "1")
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path))
    assert NOTEBOOK.stat().st_size < 1_000_000
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in cells)
    assert {kind["output_type"] for cell in cells for kind in cell["outputs"]} <= {"stream", "execute_result"}
    pictures = [kind for cell in cells for kind in cell["outputs"] if "image/png" in kind.get("data", {})]
    assert len(pictures) == 5
    names: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
    assert names["analysis"].features.softmax.shape == (6 * 64, 3)
    shutil.rmtree(names["folder"])


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
    files = [str(path) for folder in ("src", "tests", "examples") for path in (ROOT / folder).rglob("*.*")]
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
