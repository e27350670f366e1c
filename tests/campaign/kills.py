"""Kill real runs, ranks, grids and Ray workers at random moments, resume them, and compare every bit.

    make campaign                                       # 300 kills of seed 0
    PYTHONPATH=tests python tests/campaign/kills.py --kills 20 --seed 1 --only compile

Each case is drawn by ``--seed``, its kind and its number. It starts a real command in a folder of its own, sends
SIGKILL once or more, runs the same command to its end, and compares what the run left with an undisturbed run. No
process may outlive its case, and no temporary file may stay. One line per case; an interrupted campaign continues where
it was, and the counts go to ``results/campaign.md``. The test suite makes six such runs (tests/training/test_kill.py).
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cases import TIMEOUT, Case, References, children, compare, finish, kill, parent, wait_until
from support.datasets import store_all
from support.grids import left_by, runs_of
from support.kills import COMMANDS, fingerprint, starts

PROJECT = Path(__file__).parents[2]
NOTES = PROJECT / ".campaign"
SUMMARY = PROJECT / "results" / "campaign.md"
TWO = "rn26-embed --data dots --preset fast --epochs 3 --batch-size 9 --start-scale 1 --precision 64-true --devices 2"
SHARES = {"start": 4, "one": 9, "two": 5, "devices": 4, "compile": 4, "grid": 3, "ray": 1}
"""The kinds of cases, and how many of each thirty kills each kind gets."""


# --- the kinds of cases: each returns how often it killed


def killed_in_training(case: Case, command: str, threads: int, most: int, ranks: bool = False) -> int:
    """Kill up to ``most`` times at random moments of training; with ``ranks``, also one of several processes."""
    reference = case.references.of(command, threads)
    kills, seconds = 0, reference["seconds"]
    while kills < most:
        process, before = case.start(command, threads), starts(case.out)
        wait_until(lambda: starts(case.out) > before or process.poll() is not None, "no start")  # noqa: B023
        time.sleep(case.dice.uniform(0, seconds))
        victim = case.dice.choice([process.pid, *children(process.pid)]) if ranks else process.pid
        if victim != process.pid:  # one of the processes: the launcher ends the others
            with suppress(ProcessLookupError):  # it may have ended
                os.kill(victim, signal.SIGKILL)
            _, said = process.communicate(timeout=TIMEOUT)
            kills += process.returncode != 0
            assert process.returncode == 0 or "SIGKILL" in said or "cannot reach the others" in said, said[-2000:]
        elif kill(process):
            kills += 1
        elif kills:
            break
        else:  # it was over: start again, and kill earlier
            shutil.rmtree(case.out)
            seconds /= 2
        case.check_alone()
    finish(case.start(command, threads))
    compare(fingerprint(case.out), reference["left"])
    return kills


def start(case: Case) -> int:
    """Before the first start is recorded."""
    command = COMMANDS[["block", "paper", "sampled"][case.number % 3]]
    reference = case.references.of(command)
    seconds = reference["startup"]
    while True:
        process = case.start(command)
        time.sleep(case.dice.uniform(0, seconds))
        recorded = starts(case.out)
        if kill(process) and not recorded:
            break
        shutil.rmtree(case.out, ignore_errors=True)
        seconds *= 0.8
    case.check_alone()
    finish(case.start(command))
    compare(fingerprint(case.out), reference["left"])
    return 1


def one(case: Case) -> int:
    """During training with one thread."""
    return killed_in_training(case, COMMANDS[["block", "paper", "sampled"][case.number % 3]], 1, 3)


def two(case: Case) -> int:
    """During training with two threads."""
    return killed_in_training(case, COMMANDS[["block", "paper"][case.number % 2]], 2, 3)


def devices(case: Case) -> int:
    """During training with two processes: the launcher, or one of them."""
    return killed_in_training(case, TWO, 1, 2, ranks=True)


def compiling(case: Case) -> int:
    """While kernels compile."""
    command, cache = COMMANDS["block"], case.folder / "cache"
    reference = case.references.of(command)
    process = case.start(command, XDG_CACHE_HOME=str(cache))
    wait_until(lambda: list(cache.rglob("*.building")) or process.poll() is not None, "no kernel is compiled")
    time.sleep(case.dice.uniform(0, 1.5))
    killed = kill(process)
    case.check_alone()
    finish(case.start(command, XDG_CACHE_HOME=str(cache)))
    compare(fingerprint(case.out), reference["left"])
    return int(killed)


def grid(case: Case) -> int:
    """A grid of two runs."""
    reference = case.references.of_grid()
    process = case.start_grid("--jobs", "2", "--threads", "1")
    wait_until(lambda: any(map(starts, runs_of(case.out))) or process.poll() is not None, "no run starts")
    time.sleep(case.dice.uniform(0, reference["seconds"] / 2))
    killed = kill(process)
    case.check_alone()
    finish(case.start_grid("--jobs", "2", "--threads", "1"))
    compare(left_by(case.out), reference["left"])
    return int(killed)


def ray(case: Case) -> int:
    """A worker of a Ray cluster; the grid goes on with another one."""
    reference = case.references.of_grid()
    with ray_cluster(case) as address:
        process = case.start_grid("--engine", "ray", "--address", address, "--threads", "1")
        wait_until(lambda: any(map(starts, runs_of(case.out))) or process.poll() is not None, "no run starts")
        time.sleep(case.dice.uniform(0, 3))
        ours = [pid for pid in case.processes() if b".recipe.json" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        if ours:
            os.kill(parent(case.dice.choice(ours)), signal.SIGKILL)
        finish(process)
    case.check_alone()
    compare(left_by(case.out), reference["left"])
    return len(ours[:1])


KINDS: dict[str, Callable[[Case], int]] = {
    "start": start,
    "one": one,
    "two": two,
    "devices": devices,
    "compile": compiling,
    "grid": grid,
    "ray": ray,
}


@contextmanager
def ray_cluster(case: Case) -> Iterator[str]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    nodes = Cluster()
    try:
        for head in (True, False):
            settings = {"include_dashboard": False, "no_monitor": True} if head else {}
            nodes.add_node(num_cpus=1, object_store_memory=100 * 2**20, include_log_monitor=False, **settings)
        yield nodes.address
    finally:
        nodes.shutdown()


# --- the campaign


def drawn(kinds: list[str], seed: int) -> Iterator[tuple[str, int]]:
    """Kinds and numbers of cases without end, in the proportions of `SHARES`."""
    dice, numbers = random.Random(seed), dict.fromkeys(kinds, 0)
    while True:
        (kind,) = dice.choices(kinds, [SHARES[each] for each in kinds])
        yield kind, numbers[kind]
        numbers[kind] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(KINDS), action="append", help="only cases of this kind; repeatable")
    arguments = parser.parse_args()
    NOTES.mkdir(exist_ok=True)
    notes = NOTES / f"kills-{arguments.seed}.jsonl"
    known = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    done = {(one["kind"], one["number"]): one for one in known}
    kinds = arguments.only or list(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store_all(home / "datasets")
        references, total, cases = References(home, home / "datasets"), 0, []
        for kind, number in drawn(kinds, arguments.seed):
            if total >= arguments.kills:
                break
            found = done.get((kind, number)) or run_case(Case(kind, number, arguments.seed, home, references), notes)
            cases.append(found)
            total += found["kills"]
            failed = f", FAILED: {found['error']}" if found["error"] else ", every bit equal"
            print(
                f"{kind} {number}: {found['kills']} kills in {found['seconds']:.0f} s{failed}; {total} so far",
                flush=True,
            )
    write_summary(arguments.seed, cases)
    return 1 if any(one["error"] for one in cases) else 0


def run_case(case: Case, notes: Path) -> dict[str, Any]:
    begin, kills, error = time.monotonic(), 0, ""
    try:
        kills = KINDS[case.kind](case)
        case.check_alone()
        case.check_clean()
        shutil.rmtree(case.folder)
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        error = str(failure) or repr(failure)
    found = {"kind": case.kind, "number": case.number, "kills": kills, "seconds": time.monotonic() - begin}
    found["error"] = error
    with notes.open("a") as file:
        file.write(json.dumps(found) + "\n")
    return found


def write_summary(seed: int, cases: list[dict[str, Any]]) -> None:
    rows = []
    for kind, function in KINDS.items():
        mine = [one for one in cases if one["kind"] == kind]
        failed = sum(bool(one["error"]) for one in mine)
        about = " ".join((function.__doc__ or "").split()).rstrip(".").lower()
        rows.append(f"| {about} | {len(mine)} | {sum(one['kills'] for one in mine)} | {failed} |")
    total, seconds = sum(one["kills"] for one in cases), sum(one["seconds"] for one in cases)
    text = [
        "# Kills",
        "",
        f"`make campaign`, seed {seed}: {total} kills in {len(cases)} cases, {seconds / 3600:.1f} hours.",
        "After each case the run was resumed to its end and compared with an undisturbed one: weights, state,",
        "metrics and result, bit for bit. A case also fails if a process outlives it, or a temporary file stays.",
        "",
        "| killed | cases | kills | failed |",
        "|---|---|---|---|",
        *rows,
    ]
    SUMMARY.write_text("\n".join(text) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
