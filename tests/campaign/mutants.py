"""Plant small bugs in the sources, one at a time, and see whether the nearest tests notice.

    make mutants                                  # a hundred bugs of seed 1
    python tests/campaign/mutants.py --seed 2 --count 500

`--seed` draws the bugs (`campaign.bugs`) from all files of the package; one in five is in a script of the page. They
are planted in a copy of the sources. One line per case; an interrupted campaign continues where it was. The table goes
to ``results/mutants.md``. A survivor either asks for a test, or is equivalent to the original; `EQUIVALENT` says why.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest
from campaign.bugs import Bug, javascript_bugs, python_bugs

PROJECT = Path(__file__).parents[2]
SOURCES = PROJECT / "src" / "tembed"
NOTES = PROJECT / ".campaign"
SUMMARY = PROJECT / "results" / "mutants.md"
MOST = 12
"""Test files for a bug that import its file; a third as many others are tried."""
HANGS = 300
"""Seconds after which a test that does not end counts as failed."""
QUICK = "not process and not browser and not cluster and not slow"
SLOW = "slow and not browser and not cluster"
STARTS_PROCESSES = "process and not browser and not cluster and not slow"
PAGE_TESTS = [f"tests/lab/page/test_{name}.py" for name in ("units", "panels", "browser", "register_panel", "drop")]
MIRRORS = {
    "attachment/building.py": "tests/lab/training/attached/test_networks.py",
    "lab/analysis/explanation_figure.py": "tests/lab/analysis/test_explanation.py",
    "lab/analysis/score_gradients.py": "tests/lab/analysis/test_knock_outs.py",
    "lab/report/curves.py": "tests/lab/report/test_grid_report.py",
    "lab/report/tables.py": "tests/lab/report/test_grid_report.py",
    "lab/training/torchrun.py": "tests/lab/training/test_devices.py",
}
"""The tests of modules that no test imports."""

LARGE = (
    "hypothesis",
    "lightning_fabric",
    "matplotlib.pyplot",
    "numpy",
    "PIL.Image",
    "rich",
    "scipy.stats",
    "torch",
    "tyro",
)
"""Packages that are imported once, and not again for every bug."""

EQUIVALENT = {
    "lab/page/static/js/bytes.js: < -> <= in for (let k = 0; k < plain.length; k++) bytes[k] = plain.charCodeAt(k);": (
        "a write behind the end of a typed array does nothing"
    ),
    "lab/page/static/js/drawing.js: 4 -> 5 in const both = new Uint16Array(this.rows * WIDE * 4);": (
        "nobody reads the end of the array"
    ),
    "lab/page/static/js/app.js: this.map.width, this.map.height -> this.map.height, this.map.width "
    "in const fit = T.camera.fit(this.map.width, this.map.height);": "the smaller of the two counts",
    "lab/data/readers/decoding.py: True -> False in stack.callback(pool.shutdown, cancel_futures=True)": (
        "after an error, a few more batches are decoded, and nobody reads them"
    ),
    "lab/data/readers/decoding.py: 2000 -> 2001 in WORTH_PROCESSES = 2000  # images; below this, starting processes "
    "takes longer than decoding": "the pixels are the same, in this process or in others",
    "lab/training/torchrun.py: 75 -> 76 in LOST = 75": "the same number is written and read",
    "attachment/feature_maps.py: 1 -> 2 in candidates = [own_prefix or 0, 0, excess if excess <= MOST_PREFIX_TOKENS "
    "else -1]": "every negative number is skipped",
}
"""Survivors that compute the same as the original, as `str(bug)`, and why."""


@cache
def candidates(pattern: str, find: Callable[[str, str], list[Bug]]) -> list[Bug]:
    """The bugs of the files with this pattern, the first of those that read the same."""
    found: dict[str, Bug] = {}
    for path in sorted(SOURCES.glob(pattern)):
        for bug in find(path.relative_to(SOURCES).as_posix(), path.read_text("utf-8")):
            found.setdefault(str(bug), bug)
    return list(found.values())


def draw(seed: int, count: int) -> list[Bug]:
    """``count`` bugs, one in five in JavaScript. A change of one file changes only the bugs in that file."""

    def rank(bug: Bug) -> str:
        return hashlib.sha256(f"{seed} {bug}".encode()).hexdigest()

    scripts = sorted(candidates("lab/page/static/js/**/*.js", javascript_bugs), key=rank)
    modules = sorted(candidates("**/*.py", python_bugs), key=rank)
    return sorted(scripts[: count // 5] + modules[: count - count // 5], key=rank)


def imports(path: Path) -> set[str]:
    """The modules of the package whose full names a file mentions in its imports."""
    found = set()
    for module, names in re.findall(
        r"(?:from|import) (tembed[\w.]*)(?: import (\([^)]*\)|.*))?", path.read_text("utf-8")
    ):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return found


def nearest_tests(file: str) -> tuple[list[str], list[str]]:
    """The test files of a module and those that import it; and, if there are such, those of the modules that import it.

    In both lists the files that import the fewest modules come first: they test the fewest others.
    """
    if file.endswith(".js"):
        return PAGE_TESTS, []
    name = ".".join(("tembed", *Path(file).with_suffix("").parts)).removesuffix(".__init__")
    stem = name.rpartition(".")[2].removeprefix("cmd_")
    users = {
        ".".join(("tembed", *path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")
        for path in SOURCES.rglob("*.py")
        if name in imports(path)
    }
    own, near, far = [], [], []
    for path in sorted((PROJECT / "tests").rglob("test_*.py"), key=lambda path: len(imports(path))):
        used, same_folder = imports(path), path.parent == PROJECT / "tests" / Path(file).parent
        test = path.relative_to(PROJECT).as_posix()
        if test == MIRRORS.get(file) or path.stem == f"test_{stem}" or (stem in path.stem and same_folder):
            own.append(test)
        elif name in used:
            near.append(test)
        elif users & used or same_folder:
            far.append(test)
    return (own + near, far) if own or near else (far, [])


class Copy:
    """A copy of the sources in which bugs are planted, and a home folder for the tests that run with it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sources = Path(shutil.copytree(PROJECT / "src", folder / "src"))
        for name in ("benchmarks", "docs", "results", "tests"):  # beside the package, as tests expect them
            (folder / name).symlink_to(PROJECT / name)
        self.environment = {"PYTHONPATH": str(self.sources)}
        for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TEMBED_DATA"):
            (folder / name.lower()).mkdir()
            self.environment[name] = str(folder / name.lower())

    def failures(self, tests: list[str], marks: str, *more: str) -> list[str]:
        """The tests that fail. One that hangs or ends Python has no name."""
        line = ["-q", "-m", marks, "-o", f"cache_dir={self.folder / 'cache'}", *more, *tests]
        line += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of packages that are already imported
        line += ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true"]
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        if not (child := os.fork()):
            self.run_pytest(line)
        _, status = os.waitpid(child, 0)
        with suppress(ProcessLookupError):  # what the tests left running
            os.killpg(child, signal.SIGKILL)
        failed = self.folder / "cache" / "v" / "cache" / "lastfailed"
        if os.waitstatus_to_exitcode(status) in (0, 5):  # all passed, or there is none with these marks
            return []
        return list(json.loads(failed.read_text())) if failed.exists() else ["a test that hung or ended Python"]

    def run_pytest(self, line: list[str]) -> NoReturn:
        """Run pytest in this process, which has imported the large packages, and end."""
        os.setsid()
        os.environ.update(self.environment)
        tempfile.tempdir = None
        sys.path.insert(0, str(self.sources))
        del sys.modules["__main__"].__file__  # processes that the tests spawn would import it
        output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            code = pytest.main(line)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        os._exit(code)

    def killer(self, bug: Bug, skipped: Iterable[str]) -> str:
        """The first test that fails with this bug; empty if none does."""
        near, far = nearest_tests(bug.file)
        if bug.file.endswith(".js"):
            stages = [(near, "browser")]  # one browser for all
        else:
            each, others = [[test] for test in near[:MOST]], [[test] for test in far[: MOST // 3]]
            stages = [(tests, QUICK) for tests in each] + [(tests, STARTS_PROCESSES) for tests in each]
            stages += [(tests, QUICK) for tests in others] + [(tests, SLOW) for tests in each]
        path = self.sources / "tembed" / bug.file
        content = path.read_bytes()
        path.write_bytes(bug.plant(content))
        try:
            more = ["-x", *map("--deselect={}".format, skipped)]
            found = (self.failures(tests, marks, *more) for tests, marks in stages)
            return next(filter(None, found), [""])[0]
        finally:
            path.write_bytes(content)


class Campaign:
    """The killer of each bug. What an earlier start has found out is not repeated."""

    def __init__(self, seed: int, bugs: list[Bug], copy: Copy):
        self.bugs, self.copy, self.path = bugs, copy, NOTES / f"mutants-{seed}.json"
        self.killers: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.unsound: set[str] = set()

    def save(self) -> None:
        NOTES.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.killers, indent=1))

    def run(self) -> None:
        """Find a killer for each bug, and see that the killers pass without a bug."""
        while missing := [bug for bug in self.bugs if str(bug) not in self.killers]:
            for bug in missing:
                started = time.monotonic()
                self.killers[str(bug)] = killer = self.copy.killer(bug, self.unsound)
                self.save()
                done = len(set(self.killers) & set(map(str, self.bugs)))
                print(
                    f"{done}/{len(self.bugs)} {time.monotonic() - started:.0f} s {killer or 'SURVIVED'}: {bug}",
                    flush=True,
                )
            self.check_killers()

    def check_killers(self) -> None:
        """Forget the verdicts of tests that fail without a bug as well."""
        named = sorted({killer for killer in self.killers.values() if "::" in killer} - self.unsound)
        for failed in self.copy.failures(named, ""):
            print(f"fails without a bug: {failed}", flush=True)
            self.unsound.add(failed)
        self.killers = {key: killer for key, killer in self.killers.items() if killer not in self.unsound}
        self.save()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--again", action="store_true", help="judge the survivors of an earlier start again")
    arguments = parser.parse_args()
    bugs = draw(arguments.seed, arguments.count)
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for name in LARGE:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(arguments.seed, bugs, Copy(Path(folder)))
        if arguments.again:
            campaign.killers = {key: by for key, by in campaign.killers.items() if by or key in EQUIVALENT}
        if campaign.copy.failures(["tests/test_block.py"], QUICK):
            sys.exit("the tests of the block fail without a bug: nothing can be judged")
        campaign.run()
    killers = [(bug, campaign.killers[str(bug)]) for bug in bugs]
    equivalent = [bug for bug, killer in killers if not killer and str(bug) in EQUIVALENT]
    killed = sum(bool(killer) for _, killer in killers)
    survived = len(bugs) - killed - len(equivalent)
    total = (
        f"seed {arguments.seed}: {len(bugs)} bugs, {killed} killed, {survived} survived, {len(equivalent)} equivalent"
    )
    print(total)
    write_summary(total, killers)
    return 1 if survived else 0


def write_summary(total: str, killers: list[tuple[Bug, str]]) -> None:
    text = [
        "# Planted bugs",
        "",
        f"`make mutants` on this version: {total}.",
        "A bug is killed if one of the tests nearest to its file fails.",
        "",
    ]
    for bug, killer in sorted(killers, key=lambda pair: (pair[0].file, pair[0].start)):
        verdict = f"killed by `{killer.removeprefix('tests/').partition('[')[0]}`" if killer else "survived"
        if not killer and str(bug) in EQUIVALENT:
            verdict = f"equivalent: {EQUIVALENT[str(bug)]}"
        old, new = (" ".join(part.split()) for part in (bug.old, bug.new))
        text.append(f"- `{bug.file}`, line {bug.line}, `{old} -> {new}`: {verdict}")
    SUMMARY.write_text("\n".join(text) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
