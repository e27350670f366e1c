"""Plant small bugs in the mathematics, one at a time, and see whether the nearest tests notice.

    make mutants                                  # forty bugs of seed 0
    python tests/campaign/mutants.py --seed 1 --count 100

The bugs are drawn by ``--seed``: a flipped sign, operator or comparison, a number that is off by one, two arguments in
the wrong order, height in the place of width, the wrong branch. They are planted in a copy of the sources. One line per
case; an interrupted campaign continues where it was. The summary goes to ``results/mutants.md``. A survivor either asks
for a test, or is equivalent to the original; `EQUIVALENT` says why.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
NOTES = PROJECT / ".campaign"
SUMMARY = PROJECT / "results" / "mutants.md"
TIMEOUT = 900
QUICK = "not process and not browser and not cluster and not slow"

AREAS: dict[str, dict[str, str]] = {
    "maximizers": {
        "maximizers/entropic.py": "tests/maximizers/test_entropic.py tests/maximizers/test_all.py",
        "maximizers/perturbed.py": "tests/maximizers/test_perturbed.py tests/maximizers/test_all.py",
        "maximizers/one_hot.py": "tests/maximizers/test_one_hot.py tests/maximizers/test_all.py",
        "maximizers/bn_relu.py": "tests/maximizers/test_all.py tests/kernels/test_fused_bn_relu.py",
        "maximizers/margin.py": "tests/maximizers",
        "maximizers/calibrate.py": "tests/maximizers/test_calibrate.py",
    },
    "block": {"block.py": "tests/test_block.py"},
    "loss": {"loss.py": "tests/test_loss.py"},
    "models": {
        "models/resnet.py": "tests/models",
        "models/wide_resnet.py": "tests/models",
        "models/densenet.py": "tests/models",
        "models/network.py": "tests/models",
    },
    "training": {
        "lab/training/loop.py": "tests/lab/training/test_loop.py",
        "lab/training/inputs.py": "tests/lab/training/test_inputs.py tests/lab/training/test_loop.py",
        "lab/training/evaluation.py": "tests/lab/report/test_evaluation_report.py",
    },
    "schedule": {"lab/training/schedule.py": "tests/lab/training/test_schedule.py"},
    "optimizers": {
        "lab/training/muon.py": "tests/lab/training/test_optimizers.py",
        "lab/training/optimizers.py": "tests/lab/training/test_optimizers.py",
        "lab/training/averaging.py": "tests/lab/training/test_averaging.py",
    },
    "claims": {
        "lab/claims/hull.py": "tests/lab/claims",
        "lab/claims/look_alikes.py": "tests/lab/claims",
        "lab/claims/separation.py": "tests/lab/claims",
        "lab/claims/half_samples.py": "tests/lab/claims",
        "lab/claims/uncertainty.py": "tests/lab/claims",
        "lab/claims/mixed_words.py": "tests/lab/claims",
        "lab/claims/accuracies.py": "tests/lab/claims/test_accuracies.py",
    },
    "statistics": {"lab/claims/statistics.py": "tests/lab/claims"},
    "splits": {"lab/data/splits.py": "tests/lab/data/test_splits.py"},
    "batches": {
        "images/pixels.py": "tests/images/test_pixels.py",
        "lab/data/order.py": "tests/lab/data/test_order.py",
        "lab/data/batches.py": "tests/lab/data/test_batches.py",
    },
}
"""The files of each area, and the tests nearest to each file."""

EQUIVALENT = {
    "lab/training/optimizers.py: True -> False": "a step that is not fused computes the same, more slowly",
}
"""Survivors that compute the same as the original, as ``file: old -> new``, and why."""

OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
OPERATORS |= {ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*")}
COMPARISONS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
COMPARISONS |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")}
NAMES = {"height": "width", "width": "height", "rows": "columns", "columns": "rows", "mean": "std", "plus": "minus"}

SYMMETRIC = ("max", "min", "register", "register_model", "register_optimizer")
"""Calls whose arguments are not swapped: the order does not matter, or every test fails."""


@dataclass(frozen=True)
class Mutant:
    """``file`` with the text from ``start`` to ``stop`` replaced."""

    area: str
    file: str
    start: int
    stop: int
    line: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


class Finder(ast.NodeVisitor):
    """Collects the bugs that can be planted in a file. Messages, docstrings and annotations are left out."""

    def __init__(self, area: str, file: str, text: str):
        self.area, self.file, self.text = area, file, text
        lengths = [len(line.encode()) for line in text.splitlines(keepends=True)]
        self.starts = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
        self.content = text.encode()
        self.found: list[Mutant] = []

    def at(self, node: ast.expr, end: bool = False) -> int:
        line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
        assert line is not None
        assert column is not None
        return self.starts[line - 1] + column

    def source(self, node: ast.expr) -> str:
        return self.content[self.at(node) : self.at(node, True)].decode()

    def add(self, node: ast.expr, new: str) -> None:
        old = self.source(node)
        mutant = Mutant(self.area, self.file, self.at(node), self.at(node, True), node.lineno, old, new)
        if new != old:
            self.found.append(mutant)

    def between(self, node: ast.expr, left: ast.expr, right: ast.expr, symbols: tuple[str, str]) -> None:
        """Replace the operator between two operands."""
        first, last = self.at(left, True), self.at(right)
        gap = self.content[first:last].decode().replace(symbols[0], symbols[1], 1)
        before, after = self.content[self.at(node) : first], self.content[last : self.at(node, True)]
        self.add(node, before.decode() + gap + after.decode())

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for child in [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]:
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                self.visit(child)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS:
            self.between(node, node.left, node.right, OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if type(node.ops[0]) in COMPARISONS:
            self.between(node, node.left, node.comparators[0], COMPARISONS[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        symbols = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self.between(node, node.values[0], node.values[1], symbols)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub | ast.Not):
            self.add(node, f"({self.source(node.operand)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        body, test, other = map(self.source, (node.body, node.test, node.orelse))
        self.add(node, f"{other} if {test} else {body}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value))
        elif isinstance(node.value, int):
            self.add(node, str(node.value + 1))
        elif isinstance(node.value, float) and node.value:
            self.add(node, f"{node.value * 1.5!r}")

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in NAMES and NAMES[node.id] in self.text:
            self.add(node, NAMES[node.id])

    def visit_Call(self, node: ast.Call) -> None:
        symmetric = isinstance(node.func, ast.Name) and node.func.id in SYMMETRIC
        if len(node.args) >= 2 and not symmetric and not any(isinstance(each, ast.Starred) for each in node.args[:2]):
            first, second = node.args[:2]
            gap = self.content[self.at(first, True) : self.at(second)].decode()
            before = self.content[self.at(node) : self.at(first)].decode()
            after = self.content[self.at(second, True) : self.at(node, True)].decode()
            self.add(node, before + self.source(second) + gap + self.source(first) + after)
        self.generic_visit(node)


def candidates(area: str) -> list[Mutant]:
    """All bugs of an area."""
    found = []
    for file in AREAS[area]:
        text = (PROJECT / "src/tembed" / file).read_text("utf-8")
        finder = Finder(area, file, text)
        finder.visit(ast.parse(text))
        found += finder.found
    return found


def draw(seed: int, count: int) -> list[Mutant]:
    """``count`` bugs, drawn from the areas in turn."""
    dice = random.Random(seed)
    piles = {area: dice.sample(found := candidates(area), len(found)) for area in AREAS}
    drawn: list[Mutant] = []
    while len(drawn) < count and any(piles.values()):
        drawn += [pile.pop() for pile in piles.values() if pile]
    return drawn[:count]


def run_tests(sources: Path, tests: str) -> bool:
    """Whether these tests pass with these sources."""
    line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK, *tests.split()]
    paths = [str(sources), os.environ.get("PYTHONPATH", "")]
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = os.environ | environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(line, cwd=PROJECT, env=environment, capture_output=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def judge(mutant: Mutant) -> str:
    """``killed`` if the nearest tests fail with the bug, else ``survived`` or ``equivalent``."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(shutil.copytree(PROJECT / "src", Path(folder) / "src"))
        path = sources / "tembed" / mutant.file
        content = path.read_bytes()
        path.write_bytes(content[: mutant.start] + mutant.new.encode() + content[mutant.stop :])
        passed = run_tests(sources, AREAS[mutant.area][mutant.file])
    return "killed" if not passed else "equivalent" if str(mutant) in EQUIVALENT else "survived"


def judged(seed: int, mutants: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Judge each bug once; what an earlier start has judged is not judged again."""
    notes = NOTES / f"mutants-{seed}.jsonl"
    NOTES.mkdir(exist_ok=True)
    known = {}
    if notes.exists():
        known = {one["mutant"]: one["verdict"] for one in map(json.loads, notes.read_text().splitlines())}
    sound = set()
    for mutant in mutants:
        key, tests = f"{mutant} at {mutant.start}", AREAS[mutant.area][mutant.file]
        if key not in known and tests not in sound:
            sound.add(tests)
            if not run_tests(PROJECT / "src", tests):
                sys.exit(f"{tests} fails without a bug: nothing can be judged")
        if known.get(key) == "survived" and str(mutant) in EQUIVALENT:
            known[key] = "equivalent"
        if key not in known:
            known[key] = judge(mutant)
            with notes.open("a") as file:
                file.write(json.dumps({"mutant": key, "verdict": known[key]}) + "\n")
        yield mutant, known[key]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    arguments = parser.parse_args()
    mutants = draw(arguments.seed, arguments.count)
    lines, counts = [], {"killed": 0, "survived": 0, "equivalent": 0}
    for number, (mutant, verdict) in enumerate(judged(arguments.seed, mutants), 1):
        counts[verdict] += 1
        lines.append((mutant, verdict))
        print(
            f"{number}/{len(mutants)} {verdict:<10} {mutant.file}:{mutant.line} {str(mutant).partition(': ')[2]}",
            flush=True,
        )
    total = f"seed {arguments.seed}: {len(mutants)} bugs, " + ", ".join(f"{n} {what}" for what, n in counts.items())
    print(total)
    write_summary(total, lines)
    return 1 if counts["survived"] else 0


def write_summary(total: str, lines: list[tuple[Mutant, str]]) -> None:
    text = [
        "# Planted bugs",
        "",
        f"`make mutants` on this version: {total}. A bug is killed if the tests nearest to its file fail.",
        "",
    ]
    for mutant, verdict in lines:
        why = f": {EQUIVALENT[str(mutant)]}" if verdict == "equivalent" else ""
        text.append(f"- {verdict}{why}: `{mutant.file}`, line {mutant.line}, `{str(mutant).partition(': ')[2]}`")
    SUMMARY.write_text("\n".join(text) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
