"""Mutate files of every kind that the package reads, and read them as a command would.

    PYTHONPATH=tests python tests/campaign/mutated_files.py --files 5000 --seed 0 --only PNG

Each file is drawn by ``--seed`` and its number (support/mutations.py). It must be read as before, or as another legal
value, or be refused in one line that names it; anything else counts as a traceback, a hang or a death. The files are
read in a process of their own, which is started again if one of them ends it. An interrupted campaign continues where
it was, and the counts go to ``results/mutated-files.md``. The test suite tries a share (tests/test_mutated_files.py).
"""

import argparse
import faulthandler
import json
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from support.mutations import KINDS, Files, Hang
from support.power_cuts import modelled

PROJECT = Path(__file__).parents[2]
NOTES = PROJECT / ".campaign"
SUMMARY = PROJECT / "results" / "mutated-files.md"
OUTCOMES = ("refused", "other", "same", "traceback", "hang", "death")
"""The first three are right. A death is the end of the process, such as a crash in C."""
DEADLINE = 300.0
"""Seconds after which a file that no signal interrupts ends its process."""


def read_notes(path: Path) -> dict[int, dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {one["number"]: one for one in map(json.loads, lines)}


def note(path: Path, number: int, kind: str, outcome: str, error: str = "") -> None:
    with path.open("a") as file:
        file.write(json.dumps({"number": number, "kind": kind, "outcome": outcome, "error": error}) + "\n")


def work(numbers: list[int], kinds: list[str], seed: int, notes: Path) -> None:
    """Try these files, one after the other, and note what comes of each."""
    with tempfile.TemporaryDirectory() as folder, modelled():
        files = Files(Path(folder))
        for number in numbers:
            kind = kinds[number % len(kinds)]
            faulthandler.dump_traceback_later(DEADLINE, exit=True)
            outcome, error = "", ""
            try:
                outcome = files.try_file(kind, f"{seed} {number}")
            except Hang:
                outcome, error = "hang", traceback.format_exc(limit=-6)
            except Exception:
                outcome, error = "traceback", traceback.format_exc(limit=-6)
            note(notes, number, kind, outcome, error)
            if error:
                print(f"{number} {kind}: {error}", flush=True)
        faulthandler.cancel_dump_traceback_later()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(KINDS), action="append", help="only files of this kind; repeatable")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kinds = arguments.only or list(KINDS)
    NOTES.mkdir(exist_ok=True)
    notes = NOTES / f"mutated-{arguments.seed}{'-only' if arguments.only else ''}.jsonl"
    if arguments.only and not arguments.worker:
        notes.unlink(missing_ok=True)
    while left := sorted(set(range(arguments.files)) - set(read_notes(notes))):
        if arguments.worker:
            work(left, kinds, arguments.seed, notes)
            return 0
        ended = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--worker"])
        now = sorted(set(left) - set(read_notes(notes)))
        if ended.returncode and now:
            note(notes, now[0], kinds[now[0] % len(kinds)], "death", f"the process ended with {ended.returncode}")
        print(f"{arguments.files - len(now)} of {arguments.files} files", flush=True)
    found = [one for number, one in read_notes(notes).items() if number < arguments.files]
    counts = Counter(one["outcome"] for one in found)
    total = f"{len(found):,} files of {len(kinds)} kinds: " + ", ".join(f"{counts[each]} {each}" for each in OUTCOMES)
    print(total)
    if not arguments.only:
        write_summary(total, arguments.seed, found)
    return 1 if any(counts[each] for each in OUTCOMES[3:]) else 0


def write_summary(total: str, seed: int, found: list[dict[str, Any]]) -> None:
    rows = []
    for kind in KINDS:
        counts = Counter(one["outcome"] for one in found if one["kind"] == kind)
        rows.append(f"| {kind} | {' | '.join(str(counts[each]) for each in OUTCOMES)} |")
    text = [
        "# Mutated files",
        "",
        f"`make campaign`, seed {seed}: {total}.",
        "Refused: one line that names the file. Other: read as another legal value, of a format without a checksum.",
        "",
        f"| kind | {' | '.join(OUTCOMES)} |",
        f"|---|{'---|' * len(OUTCOMES)}",
        *rows,
    ]
    SUMMARY.write_text("\n".join(text) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
