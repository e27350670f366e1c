"""Kill real runs at random moments, resume them, and compare their files with those of an undisturbed run.

The test suite makes a few such runs; tests/campaign/kills.py makes hundreds.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.clocks import without_clock
from tembed.lab.training.run import Run
from tembed.trained.checksummed import checksum, read_checksummed

COMMANDS = {
    "block": "rn26-embed --data tiny --preset fast --epochs 3 --batch-size 10 --seed 1",
    "paper": "rn26-aux --data tiny --epochs 2 --train-images 90 --batch-size 9",
    "sampled": "rn20 --data dots --epochs 2 --train-images 12 --batch-size 6 --maximizer perturbed-sampled",
}
TIMEOUT = 900


def start(command: str, out: Path, root: Path) -> subprocess.Popen[str]:
    """Start a run that saves often, in its own process."""
    line = [sys.executable, "-m", "tembed", "train", *command.split(), "--out", str(out)]
    environment = os.environ | {"TEMBED_DATA": str(root), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.Popen(
        [*line, "--checkpoint-seconds", "0.1"],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a run and check that it succeeds."""
    _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, said


def starts(out: Path) -> int:
    """How many starts of a run have reached their first step."""
    try:
        return len(json.loads((out / "environment.json").read_text())["starts"])
    except (OSError, ValueError):
        return 0


def kill_after(process: subprocess.Popen[str], out: Path, seconds: float) -> bool:
    """Send SIGKILL this long after the run reached its first step; False if it had finished by then."""
    before, deadline = starts(out), time.monotonic() + TIMEOUT
    while starts(out) == before and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def fingerprint(out: Path) -> dict[str, str]:
    """Hashes of everything that a run leaves, except clock readings."""
    run = Run.open(out)
    assert run.result is not None
    tensors, _ = read_checksummed(run.checkpoints.newest, "a checkpoint")
    return {
        "weights": hashlib.sha256(run.best_path.read_bytes()).hexdigest(),
        "state": checksum(tensors),
        "metrics": _hash([without_clock(record) for record in run.metrics]),
        "result": _hash(without_clock(run.result)),
    }


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Reference:
    """An undisturbed run: the hashes of its files, and how long it takes."""

    def __init__(self, command: str, out: Path, root: Path):
        finish(start(command, out, root))
        self.command, self.root = command, root
        self.left = fingerprint(out)
        record = Run.open(out).result
        assert record is not None
        self.seconds = record["total_seconds"]

    def killed(self, out: Path, dice: random.Random, most: int) -> int:
        """Kill the same run up to ``most`` times, then let it finish. Returns the kills; fails if a bit differs."""
        kills, seconds = 0, self.seconds
        while kills < most:
            if kill_after(start(self.command, out, self.root), out, dice.uniform(0, seconds)):
                kills += 1
            elif kills or seconds < 0.01:
                break
            else:  # the machine was busier when the reference ran: start again, and kill earlier
                shutil.rmtree(out)
                seconds /= 2
        finish(start(self.command, out, self.root))
        left = fingerprint(out)
        assert left == self.left, f"{out} after {kills} kills: {left} is not {self.left}"
        return kills
