"""Runs grid commands in their own processes, and fingerprints the files of their runs."""

import os
import subprocess
import sys
import time
from pathlib import Path

from support.kills import fingerprint, starts

MINE = """
preset = "fast"
seeds = 2
data = "tiny"
model = "rn26-embed"
epochs = 3
batch_size = 10
"""
ONE = """
preset = "fast"
data = "dots"
model = "rn20"
epochs = 1
batch_size = 10
train_images = 10
"""
"""A grid of a single run, of one step."""
TIMEOUT = 600


def start_grid(file: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """Start `tembed grid` in its own process, with frequent checkpoints and one thread."""
    line = [
        sys.executable,
        "-m",
        "tembed",
        "grid",
        str(file),
        "--out",
        str(out),
        "--checkpoint-seconds",
        "0.1",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*line, *options], env=environment, text=True, **pipes)


def run_grid(file: Path, out: Path, *options: str) -> tuple[int, str, str]:
    """Exit code, output and error output of a grid command that is not interrupted."""
    process = start_grid(file, out, *options)
    output, errors = process.communicate(timeout=TIMEOUT)
    return process.returncode, output, errors


def runs_of(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.glob("*/recipe.json"))


def wait_until_training(process: subprocess.Popen[str], out: Path, runs: int, count: int) -> None:
    """Wait until ``runs`` runs have been started ``count`` times each."""
    deadline = time.monotonic() + TIMEOUT
    while [starts(run) for run in runs_of(out)] != [count] * runs:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def left_by(out: Path) -> dict[str, dict[str, str]]:
    """A fingerprint of every run by its name."""
    return {run.name: fingerprint(run) for run in runs_of(out)}
