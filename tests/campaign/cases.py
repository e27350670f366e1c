"""A case of the campaign of kills: its folder and commands, and the undisturbed runs to compare with."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.grids import MINE, left_by
from support.kills import fingerprint, starts

TIMEOUT = 1800
MARK = "TEMBED_CAMPAIGN"
"""An environment variable by which the processes of a case are found."""


class Case:
    """One case in its own folder: the commands of the case, their temporary files and their cache."""

    def __init__(self, kind: str, number: int, seed: int, home: Path, references: "References"):
        self.kind, self.number, self.references = kind, number, references
        self.dice = random.Random(f"{seed} {kind} {number}")
        self.folder, self.root = home / f"{kind}-{number}", references.root
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("temporary", "cache"):
            (self.folder / name).mkdir(parents=True)
        self.out = self.folder / "run"

    def environment(self, threads: int, **more: str) -> dict[str, str]:
        ours = {"TEMBED_DATA": str(self.root), "OMP_NUM_THREADS": str(threads), "RAY_USAGE_STATS_ENABLED": "0"}
        ours |= {"TMPDIR": str(self.folder / "temporary"), MARK: str(self.folder)}
        return os.environ | {"OMP_WAIT_POLICY": "PASSIVE"} | ours | more

    def start(self, command: str, threads: int = 1, code: str = "", **more: str) -> subprocess.Popen[str]:
        """Start `tembed train` in this case's folder; ``code`` starts it in another way."""
        first = ["-c", code] if code else ["-m", "tembed"]
        line = [
            sys.executable,
            *first,
            "train",
            *command.split(),
            "--out",
            str(self.out),
            "--checkpoint-seconds",
            "0.1",
        ]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.Popen(line, env=self.environment(threads, **more), text=True, **pipes)

    def start_grid(self, *options: str) -> subprocess.Popen[str]:
        (self.folder / "mine.toml").write_text(MINE)
        line = [sys.executable, "-m", "tembed", "grid", str(self.folder / "mine.toml"), "--out", str(self.out)]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        line += ["--checkpoint-seconds", "0.1", *options]
        return subprocess.Popen(line, env=self.environment(1), text=True, **pipes)

    def processes(self) -> list[int]:
        """The processes of this case that live."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                marked = f"{MARK}={self.folder}".encode() in (entry / "environ").read_bytes().split(b"\0")
                if marked or os.readlink(entry / "fd" / "1").startswith(str(self.folder)):
                    found.append(int(entry.name))
            except (OSError, ValueError):
                continue
        return found

    def check_alone(self) -> None:
        """Wait until no process of this case is left."""
        wait_until(lambda: not self.processes(), f"processes {self.processes()} outlive their case", 120)

    def check_clean(self) -> None:
        """No temporary file is left, in the run folders or elsewhere."""
        left = [path for name in ("temporary", "run") for path in (self.folder / name).rglob("*")]
        left = [path for path in left if path.name.startswith("tembed-") or path.suffix in (".part", ".next")]
        left += list((self.folder / "cache").rglob("*.building"))
        assert not left, f"left behind: {left}"


def wait_until(true: Callable[[], Any], message: str, seconds: float = TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, message
        time.sleep(0.005)


def finish(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, said[-2000:]


def kill(process: subprocess.Popen[str]) -> bool:
    """Send SIGKILL; False if the process had ended before."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


@dataclass
class References:
    """What undisturbed runs leave, by command and number of threads; made when first needed, and noted."""

    home: Path
    root: Path

    def of(self, command: str, threads: int = 1) -> dict[str, Any]:
        """``left``: fingerprint of the run. ``seconds``: of training. ``startup``: until the first step."""

        def make(case: Case) -> dict[str, Any]:
            begin = time.monotonic()
            process = case.start(command, threads)
            wait_until(lambda: starts(case.out) or process.poll() is not None, "no start")
            startup = time.monotonic() - begin
            finish(process)
            seconds = json.loads((case.out / "result.json").read_text())["total_seconds"]
            return {"left": fingerprint(case.out), "seconds": seconds, "startup": startup}

        return self._noted(f"{threads} {command}", make)

    def of_grid(self) -> dict[str, Any]:
        def make(case: Case) -> dict[str, Any]:
            begin = time.monotonic()
            finish(case.start_grid("--jobs", "2", "--threads", "1"))
            return {"left": left_by(case.out), "seconds": time.monotonic() - begin}

        return self._noted("grid", make)

    def _noted(self, key: str, make: Callable[[Case], dict[str, Any]]) -> dict[str, Any]:
        path = self.home / "references.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        if key not in known:
            known[key] = make(Case("reference", len(known), 0, self.home, self))
            path.write_text(json.dumps(known))
        return known[key]


def compare(left: dict[str, Any], expected: dict[str, Any]) -> None:
    assert left == expected, f"{left} is not {expected}"


def children(pid: int) -> list[int]:
    """The processes that this one has started; none if it has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
