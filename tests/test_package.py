"""What a wheel contains: every file of the package, because the build packs the folder except for what git ignores."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import tembed
from tembed.lab.grid.grid_file import builtin_names
from tembed.trained.weights_file import shipped

ROOT = Path(__file__).parents[1]
PACKAGE = Path(tembed.__file__).parent


def test_the_build_packs_the_whole_package() -> None:
    target = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert target == {"packages": ["src/tembed"]}, "a list of patterns would have to name every kind of file"


def test_one_version_is_stated_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == tembed.__version__
    assert f"version: {tembed.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_git_ignores_no_file_of_the_package() -> None:
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines() if line]
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    files = [path for path in files if "__pycache__" not in path.parts]
    kinds = {path.suffix for path in files}
    assert {".c", ".css", ".gz", ".html", ".js", ".json", ".md", ".mjs", ".safetensors", ".toml", ".typed"} <= kinds
    left_out = [path for path in files if any(fnmatch(part, line) for part in path.parts for line in ignored)]
    assert left_out == []


def test_what_is_looked_for_at_run_time_is_in_the_package() -> None:
    assert len(shipped()) >= 4
    assert {"table1", "lambda", "maximizers", "depth"} <= set(builtin_names())
    for name in ("kernels/csrc/bn_relu.c", "lab/page/static/vendor/onnxruntime-web/LICENSE", "py.typed"):
        assert (PACKAGE / name).is_file(), name
