"""The layout is the architecture: two rooms, and imports that point one way."""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tembed

PROJECT = Path(__file__).parents[1]
SOURCE = Path(tembed.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
FOLDERS = ("data", "training", "grid", "analysis", "claims", "report", "page")
"""The folders of the laboratory. Each imports only those before it."""
VIEWS = ("terminal", "notebook", "tensorboard")
"""Modules beside those folders that show progress: any of them may be imported, and they import no folder."""
PAPER = ("maximizers", "block", "loss", "models")
"""The paper's own mathematics and networks, which know nothing of files, attachments and trained weights."""


def room(path: Path) -> tuple[str, ...]:
    """The folders and the module name of a file below the package."""
    return path.relative_to(SOURCE).with_suffix("").parts


@functools.cache
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
    """Nothing outside `lab` and `cli` imports `lab`; a folder of `lab` imports only earlier ones.

    Only `__main__` imports `cli`. The lazy list of the public names is a stub, which is not looked at here.
    """
    here = room(path)
    ours = [name.split(".")[1:] for name in imported(path) if name.startswith("tembed.")]
    if here[0] not in ("cli", "__main__"):
        assert not [name for name in ours if name[0] == "cli"]
    if here[0] not in ("lab", "cli"):
        assert not [name for name in ours if name[0] == "lab"]
    if here[0] in PAPER:
        assert {name[0] for name in ours} <= {*PAPER, "kernels", "common", "paper"}
    if here[0] == "common":
        assert {name[0] for name in ours} <= {"common", "paper", "__version__"}
    if here[0] == "lab" and here[1] in (*FOLDERS, *VIEWS):
        known = FOLDERS[: FOLDERS.index(here[1]) + 1] if here[1] in FOLDERS else ()
        assert {name[1] for name in ours if name[0] == "lab"} <= {*known, *VIEWS}


def test_the_laboratory_has_no_other_folders() -> None:
    inside = {path.relative_to(SOURCE / "lab").parts[0] for path in (SOURCE / "lab").rglob("*.py")}
    assert inside == {*FOLDERS, "__init__.py", "demo.py", *(f"{view}.py" for view in VIEWS)}


def test_one_basename_is_one_module() -> None:
    counts = Counter(path.name for path in MODULES if path.name != "__init__.py")
    assert {name for name, count in counts.items() if count > 1} == set()


def test_what_every_room_uses_needs_no_torch() -> None:
    for path in (SOURCE / "common").glob("*.py"):
        assert "torch" not in {name.split(".")[0] for name in imported(path)}, path


def test_only_the_command_line_imports_tyro() -> None:
    importers = {named(path) for path in MODULES if any(name.split(".")[0] == "tyro" for name in imported(path))}
    assert {path for path in importers if not path.startswith("cli/")} == set()


def test_only_plugins_and_fixed_names_are_imported_by_name() -> None:
    """A recipe, TOML file or run folder never imports code: only these modules import names computed at run time."""
    ways = {"importlib", "importlib.import_module", "runpy"}
    callers = {named(path) for path in MODULES if ways & imported(path) or "__import__(" in path.read_text("utf-8")}
    assert callers <= {"common/plugins.py", "common/extras.py", "cli/main.py", "lab/claims/__init__.py"}


def test_the_package_never_imports_torchvision_or_timm() -> None:
    for path in MODULES:
        assert not {"torchvision", "timm"} & {name.split(".")[0] for name in imported(path)}, path


UNIX_ONLY = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
import tembed
assert len(tembed.load("rn26-embed/cifar10").description.classes) == 10
"""


@pytest.mark.process
def test_trained_networks_load_without_modules_that_windows_lacks() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", UNIX_ONLY], check=True)


@pytest.mark.process
def test_loading_and_running_a_network_does_not_import_torchs_compiler() -> None:
    """It takes longer to import than torch itself."""
    lines = [
        "import sys, torch, tembed",
        "tembed.load('rn26-embed/cifar10')(torch.zeros(1, 3, 32, 32))",
        "assert 'torch._dynamo' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_one_module_starts_python_processes() -> None:
    """Each start has to keep the current folder off the path of the new process."""
    ways = ("sys.executable", "ProcessPoolExecutor", "get_context", "multiprocessing.Process", "os.fork", "mp.spawn")
    starting = {named(path) for path in MODULES if any(way in path.read_text("utf-8") for way in ways)}
    assert starting == {"common/processes.py"}


def test_one_module_writes_files() -> None:
    """It follows no links, and syncs what it writes and renames."""
    mode = r"""["'][rb]*[wax+][rwaxb+]*["']"""
    ways = re.compile(
        rf"open\([^)\n]*{mode}|write_text\(|write_bytes\(|os\.open\(|\.touch\(|os\.(replace|rename|f?sync)\(|\.mkdir\("
    )
    writing = {named(path) for path in MODULES if ways.search(path.read_text("utf-8"))}
    assert writing == {"common/files.py", "common/output.py"}
