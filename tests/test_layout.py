"""The layout is the architecture: imports point one way."""

import ast
from pathlib import Path

import pytest

import tembed

SOURCE = Path(tembed.__file__).parent

# Who may know whom. A package may always know its own files and the leaves.
LEAVES = {"arrays", "claims", "errors", "extras", "files", "lazy", "machine", "paper"}
MAY_KNOW = {
    "ops": set(),
    "maximizers": {"ops"},
    "losses": set(),
    "embedding": {"maximizers"},
    "models": {"ops", "maximizers", "embedding"},
    "reporting": set(),
    "data": {"reporting"},
    "training": {"ops", "models", "data", "losses", "maximizers", "reporting"},
    "experiments": {"models", "data", "losses", "training", "reporting"},
    "analysis": {"models", "data", "embedding", "training", "reporting"},
    "demo": {"models", "data", "analysis", "training", "experiments", "reporting"},
    "cli": {"models", "data", "training", "experiments", "analysis", "demo", "reporting"},
}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of tembed that a file imports, at its top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("tembed.")}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    assert imported(path) <= MAY_KNOW.get(part, set()) | LEAVES | {part, "__version__"}


def test_the_core_never_imports_torchvision_or_timm() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not {"torchvision", "timm"} & set(path.read_text(encoding="utf-8").replace(".", " ").split()), path


def test_no_file_is_two_ideas() -> None:
    long = {str(path): count for path in SOURCE.rglob("*.py") if (count := len(path.read_text().splitlines())) > 400}
    assert not long
