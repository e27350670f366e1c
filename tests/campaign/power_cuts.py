"""Fail every call that writes, and cut the power after every one; then do the work again and compare every bit.

    PYTHONPATH=tests python tests/campaign/power_cuts.py --only Import

Each piece of work (a run, a run that is continued, an import, ...; see support/power_cuts.py) is done once, and every
open, write, sync, rename, removal and new folder is recorded. Then each of these calls fails: with "no space" once,
with "no space" from there on, and with an I/O error. And the power is cut after each of them: what was not synced is
lost, all or in part, in every combination or in ``--states`` of them. After each disturbance nothing that was saved may
be missing, and the same work again must leave the same bits. The whole takes some minutes and is not resumed; the
counts go to ``results/power-cuts.md``. The test suite tries a share (tests/lab/test_power_cuts.py).
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from support.power_cuts import FAULTS, WORKS, Tried, Work, modelled

SUMMARY = Path(__file__).parents[2] / "results" / "power-cuts.md"


def try_all(kind: type[Work], home: Path, most: int) -> tuple[list[int], list[str]]:
    """The numbers of calls, failures and states of a piece of work, and what was lost."""
    tried, lost = Tried.of(kind, home), []

    def note(what: str, call: int, error: Exception) -> None:
        lost.append(f"{kind.__name__}: {what} {tried.disk.calls[call]}: {type(error).__name__}: {error}")
        print(lost[-1], flush=True)

    for call in range(tried.calls):
        for error, lasting in FAULTS:
            try:
                tried.failure(call, error, lasting)
            except Exception as wrong:  # whatever it is, the campaign counts it and goes on
                note(f"error {error}{' from there on' if lasting else ''} at", call, wrong)
    states = 0
    for calls in range(tried.calls + 1):
        for state in tried.states(calls, most):
            states += 1
            try:
                tried.power_cut(calls, state)
            except Exception as wrong:
                note(f"power cut {calls} after", max(0, calls - 1), wrong)
    return [tried.calls, len(FAULTS) * tried.calls, states, len(lost)], lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[kind.__name__ for kind in WORKS], action="append", help="repeatable")
    parser.add_argument("--states", type=int, default=64, help="the most states that are tried after each call")
    arguments = parser.parse_args()
    begin, rows, lost = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as folder, modelled():
        for kind in WORKS:
            if arguments.only and kind.__name__ not in arguments.only:
                continue
            numbers, wrong = try_all(kind, Path(folder), arguments.states)
            rows.append((kind.__doc__, numbers))
            lost += wrong
            print("{}: {} calls, {} failures, {} states, {} lost".format(kind.__doc__, *numbers), flush=True)
    calls, failures, states, count = (sum(numbers[column] for _, numbers in rows) for column in range(4))
    total = f"{calls} calls: {failures} failures, {states} states after a power cut, {count} lost"
    print(total)
    if not arguments.only:
        write_summary(total, time.monotonic() - begin, rows)
    return 1 if lost else 0


def write_summary(total: str, seconds: float, rows: list[tuple[str | None, list[int]]]) -> None:
    text = [
        "# Power cuts and full disks",
        "",
        f"`make campaign`: {total}, {seconds / 60:.0f} minutes.",
        "Each call that writes failed (no space once, no space from there on, I/O error), and after each call the",
        "power was cut, with what was not synced lost in every combination. After that nothing that was saved was",
        "missing, and the same work again left the same bits, unless it counts as lost.",
        "",
        "| work | calls | failures | states | lost |",
        "|---|---|---|---|---|",
        *(f"| {about} | {' | '.join(map(str, numbers))} |" for about, numbers in rows),
    ]
    SUMMARY.write_text("\n".join(text) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
