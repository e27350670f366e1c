"""The layout is the architecture: imports point one way, and every file and folder is small enough to read."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import tembed

PROJECT = Path(__file__).parents[1]
SOURCE = Path(tembed.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
WRITTEN = [
    path
    for folder in (SOURCE, PROJECT / "tests", PROJECT / "benchmarks")
    for kind in ("*.py", "*.js", "*.c", "*.h", "*.css")
    for path in folder.rglob(kind)
    if "vendor" not in path.parts
]
"""Everything that is written by hand."""

# Which top-level modules of the package each one may import. Each may always import its own modules and the leaves.
LEAVES = {"arrays", "claims", "errors", "extras", "files", "lazy", "machine", "modes", "paper", "plugins"}
MATHEMATICS = {"ops", "maximizers", "embedding", "losses"}
MAY_IMPORT = {
    "ops": set(),
    "maximizers": {"ops"},
    "losses": set(),
    "embedding": {"maximizers"},
    "models": MATHEMATICS,
    "attachment": MATHEMATICS | {"models"},
    "reporting": set(),
    "data": {"reporting"},
    "training": MATHEMATICS | {"models", "attachment", "data", "reporting"},
    "experiments": MATHEMATICS | {"models", "data", "training", "reporting"},
    "analysis": MATHEMATICS | {"models", "attachment", "data", "training", "reporting"},
    "export": MATHEMATICS | {"models", "attachment", "training", "reporting"},
    "page": MATHEMATICS | {"models", "data", "training", "analysis", "export", "reporting"},
    "demo": MATHEMATICS | {"models", "data", "training", "experiments", "analysis", "page", "reporting"},
    "cli": MATHEMATICS
    | {"models", "attachment", "data", "training", "experiments", "analysis", "export", "page", "demo", "reporting"},
}


def top_level(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The full names of the modules and names that a file imports, at its top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_imports_point_one_way(path: Path) -> None:
    if path.parent == SOURCE and path.stem == "__init__":
        return
    modules = {name.split(".")[1] for name in imported(path) if name.startswith("tembed.")}
    assert modules <= MAY_IMPORT.get(top_level(path), set()) | LEAVES | {top_level(path), "__version__"}


def test_every_top_level_module_has_a_rule() -> None:
    """A new module cannot be imported from anywhere, and can import nothing, until it has a line above."""
    assert {top_level(path) for path in MODULES} - {"__init__"} <= LEAVES | set(MAY_IMPORT)


def test_only_the_command_line_imports_tyro() -> None:
    importers = {named(path) for path in MODULES if any(name.split(".")[0] == "tyro" for name in imported(path))}
    assert {path for path in importers if not path.startswith("cli/")} == set()


def test_only_plugins_and_fixed_names_are_imported_by_name() -> None:
    """A recipe, TOML file or run folder never imports code: only these modules import names computed at run time."""
    ways = {"importlib", "importlib.import_module", "runpy"}
    callers = {named(path) for path in MODULES if ways & imported(path) or "__import__(" in path.read_text("utf-8")}
    assert callers <= {"plugins.py", "lazy.py", "extras.py", "cli/main.py", "analysis/claims/__init__.py"}


def test_the_package_never_imports_torchvision_or_timm() -> None:
    for path in MODULES:
        assert not {"torchvision", "timm"} & {name.split(".")[0] for name in imported(path)}, path


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(path): len(path.read_text("utf-8").splitlines()) for path in WRITTEN}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_no_folder_has_more_than_14_modules() -> None:
    """Except for the command line: it has one file per command, so the list of commands is the way to find a file."""
    modules = [path for path in WRITTEN if path.suffix == ".py" and path.stem != "__init__"]
    counts = Counter(path.parent for path in modules if path.parent != SOURCE / "cli")
    assert {str(folder): count for folder, count in counts.items() if count > 14} == {}
