"""`make test` provides what its tests need, or says in one line what to install."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROJECT = Path(__file__).parents[1]
SCRIPT = PROJECT / "tests" / "setup.sh"
BROWSER_TEST = """
import pytest

@pytest.mark.parametrize("width", [390, 1200])
def test_a_page(browser, width):
    print("found", browser)

def test_another_page(browser):
    pass
"""


class Machine:
    """A PATH with only these programs; each stub logs its arguments."""

    def __init__(self, folder: Path):
        self.bin, self.log = folder / "bin", folder / "log"
        self.bin.mkdir()
        self.log.touch()

    def stub(self, name: str, body: str = "") -> None:
        program = self.bin / name
        program.write_text(f'#!{shutil.which("bash")}\necho "{name} $*" >> {self.log}\n{body}\n')
        program.chmod(0o755)

    def user(self, number: int) -> None:
        self.stub("id", f"echo {number}")

    def setup(self, *needs: str) -> subprocess.CompletedProcess[str]:
        line = [shutil.which("bash") or "bash", str(SCRIPT), *needs]
        return subprocess.run(line, env={"PATH": str(self.bin)}, capture_output=True, text=True)

    def installed(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith("apt-get")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome", "chrome"])
def test_a_browser_on_the_path_is_used(machine: Machine, name: str) -> None:
    machine.user(0)
    machine.stub("apt-get")
    machine.stub(name)
    assert machine.setup("browser").returncode == 0
    assert machine.installed() == []


def test_root_installs_a_missing_browser_after_an_update(machine: Machine) -> None:
    machine.user(0)
    machine.stub("apt-get")
    machine.stub("sudo")
    assert machine.setup("browser").returncode == 0
    update, install = machine.installed()
    assert update == "apt-get update -qq"
    assert re.fullmatch("apt-get install .* chromium fonts-dejavu-core", install)
    assert "sudo" not in machine.log.read_text()


@pytest.mark.parametrize(("user", "apt"), [(1000, True), (0, False)])
def test_other_users_and_other_systems_install_nothing(machine: Machine, user: int, apt: bool) -> None:
    machine.user(user)
    machine.stub("sudo")
    if apt:
        machine.stub("apt-get")
    ended = machine.setup("browser")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert machine.installed() == []
    assert "sudo" not in machine.log.read_text()


def test_a_failed_installation_of_the_browser_does_not_stop_the_tests(machine: Machine) -> None:
    machine.user(0)
    machine.stub("apt-get", "exit 100")
    assert machine.setup("browser").returncode == 0


@pytest.mark.parametrize("name", ["cc", "gcc", "clang"])
def test_a_compiler_on_the_path_is_used(machine: Machine, name: str) -> None:
    machine.user(0)
    machine.stub("apt-get")
    machine.stub(name)
    assert machine.setup("compiler").returncode == 0
    assert machine.installed() == []


def test_a_missing_compiler_is_installed_or_named_in_one_line(machine: Machine) -> None:
    machine.user(1000)
    machine.stub("apt-get")
    ended = machine.setup("compiler", "browser")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "install gcc or clang" in ended.stderr
    machine.user(0)
    assert machine.setup("compiler").returncode == 0
    assert machine.installed()[-1].endswith("gcc libc6-dev")


def run_tests(code: str, tmp_path: Path, search_path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with this project's conftest.py in its own pytest process."""
    shutil.copy(PROJECT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(code)
    rest = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rsP", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        env=rest | {"PATH": search_path, "PYTHONPATH": str(PROJECT / "tests")} | environment,
        capture_output=True,
        text=True,
    )


def test_without_a_browser_all_browser_tests_are_skipped_with_one_line(machine: Machine, tmp_path: Path) -> None:
    ended = run_tests(BROWSER_TEST, tmp_path, str(machine.bin))
    assert ended.returncode == 0
    assert "3 skipped" in ended.stdout
    assert [line for line in ended.stdout.splitlines() if "install chromium" in line] == [
        "SKIPPED [3] conftest.py:1: no browser on the PATH: "
        "install chromium (as root on Debian: apt-get install chromium)"
    ]


def test_without_a_browser_the_browser_tests_fail_in_ci(machine: Machine, tmp_path: Path) -> None:
    ended = run_tests(BROWSER_TEST, tmp_path, str(machine.bin), CI="true")
    assert ended.returncode == 1
    assert "3 errors" in ended.stdout
    assert "install chromium" in ended.stdout


def test_the_fixture_gives_the_browser_on_the_path(machine: Machine, tmp_path: Path) -> None:
    machine.stub("google-chrome")
    ended = run_tests(BROWSER_TEST, tmp_path, str(machine.bin), CI="true")
    assert ended.returncode == 0
    assert f"found {machine.bin / 'google-chrome'}" in ended.stdout


VENV = """
mkdir -p .venv/bin
for name in pip tembed ruff mypy sphinx-build; do
    printf '#!%s\\necho "'$name' $*" >> %s\\n' BASH LOG > .venv/bin/$name
    chmod +x .venv/bin/$name
done
"""
"""What the stub of ``python3 -m venv .venv`` does."""


@pytest.fixture
def project(machine: Machine, tmp_path: Path) -> Path:
    """A folder with the Makefile, where programs of the environment only log their arguments."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, tmp_path)
    machine.stub("python3", VENV.replace("BASH", str(shutil.which("bash"))).replace("LOG", str(machine.log)))
    return tmp_path


def make(machine: Machine, project: Path, target: str) -> list[str]:
    """Run `make` and return what it called."""
    before = len(machine.log.read_text().splitlines())
    environment = {"PATH": f"{machine.bin}:{os.environ['PATH']}"}
    subprocess.run(["make", target], cwd=project, env=environment, check=True, capture_output=True)
    return machine.log.read_text().splitlines()[before:]


def install(extra: str) -> list[str]:
    return ["python3 -m venv .venv", f"pip install --quiet -c constraints.txt -e .[{extra}]"]


LINT = ["ruff check .", "ruff format --check .", "mypy "]


def test_the_demo_installs_the_laboratory_only(machine: Machine, project: Path) -> None:
    assert make(machine, project, "demo") == [*install("lab"), "tembed demo"]
    assert make(machine, project, "demo") == ["tembed demo"]
    assert make(machine, project, "lint") == [*install("dev"), *LINT], "the tests need more, in the same environment"
    assert make(machine, project, "demo") == ["tembed demo"]
    assert make(machine, project, "lint") == LINT


def test_the_site_is_built_strictly(machine: Machine, project: Path) -> None:
    build = "sphinx-build -b html -W --keep-going -q docs docs/_build/html"
    assert make(machine, project, "docs") == [*install("docs"), build]
    assert make(machine, project, "docs") == [build]


def test_the_environment_of_the_tests_is_enough_for_the_demo(machine: Machine, project: Path) -> None:
    assert make(machine, project, "lint") == [*install("dev"), *LINT]
    assert make(machine, project, "demo") == ["tembed demo"]
    future = (project / ".venv" / ".dev").stat().st_mtime + 10
    os.utime(project / "pyproject.toml", (future, future))
    assert make(machine, project, "lint") == [*install("dev"), *LINT], "the requirements have changed"


UNMARKED = """
import subprocess, sys

def test_unmarked():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_other_programs_are_quick():
    subprocess.run(["true"], check=True)
"""


def test_an_unmarked_test_cannot_start_a_python_process(tmp_path: Path) -> None:
    """`make check` chooses by marks, so a missing mark must be noticed."""
    ended = run_tests(UNMARKED, tmp_path, os.environ["PATH"])
    assert "1 failed, 1 passed" in ended.stdout
    assert "mark it with @pytest.mark.process" in ended.stdout


def test_ci_runs_make_test_and_installs_nothing_itself() -> None:
    script = (PROJECT / ".ci" / "run").read_text()
    assert [line for line in script.splitlines() if line and not line.startswith("#")] == [
        "set -euo pipefail",
        'cd "$(dirname "$0")/.."',
        "make test",
    ]
