"""The cores of this machine: how many this process may use, and how its threads wait for each other on them.

Threads that spin while they wait are fast on idle cores and very slow on shared ones; threads that sleep are a little
slower but tolerate other load. A command chooses once, with `waiting_policy`, before torch is loaded. A run watches its
cores with `Crowd`, and warns when another process takes them.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

POLICIES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Each of these sets how threads wait. The OpenMP runtimes read them once, when torch is loaded."""
CHOICE = "TEMBED_WAITING"
"""Set if a tembed command chose the policy, so that the processes it starts may have another one."""
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", CHOICE: "asleep"}
SPINNING = {"OMP_WAIT_POLICY": "ACTIVE", CHOICE: "spinning"}
LOOK = 0.1
"""Seconds to watch the other processes at the start."""
WINDOW = 20.0
"""Seconds for which a run watches its own threads; a shorter disturbance does not matter."""
CROWDED = 0.25
"""Cores are crowded if threads wait for a core for more than this many seconds per second; on idle cores it is 0.01."""


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wanted_threads(environment: Mapping[str, str]) -> int | None:
    """The number of threads that ``OMP_NUM_THREADS`` asks for; None if it does not say."""
    first = environment.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # further numbers are for nested regions
    return int(first) if first.isdigit() and int(first) > 0 else None


def waiting_policy(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to set before torch is loaded: spinning if every core is idle now; none if the user has set one."""
    if any(name in environment for name in POLICIES):
        return {}
    return SPINNING if _all_idle() else ASLEEP


def threads_sleep(environment: Mapping[str, str]) -> bool:
    """Whether threads sleep while they wait, so that other load costs little."""
    return environment.get("OMP_WAIT_POLICY", "").upper() == ASLEEP["OMP_WAIT_POLICY"]


def starved_seconds() -> float | None:
    """How long the threads of this process have had work but no core, so far; None if the system does not report it."""
    try:
        threads = Path("/proc/self/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[1]) for thread in threads) / 1e9
    except (OSError, ValueError, IndexError):
        return None


class Crowd:
    """Detects that the threads have to share their cores."""

    def __init__(self, starved: Callable[[], float | None] = starved_seconds) -> None:
        self.starved = starved
        self.start, self.before = time.monotonic(), starved()

    def noticed(self, now: float) -> bool:
        """Whether the last `WINDOW` was crowded. Call it after every step; it decides once per window."""
        if now - self.start < WINDOW or self.before is None:
            return False
        span, before = now - self.start, self.before
        self.start, self.before = now, self.starved()
        return self.before is not None and (self.before - before) / span > CROWDED


def _all_idle() -> bool:
    before = _idle_seconds()
    time.sleep(LOOK)
    after = _idle_seconds()
    return bool(before) and all(b - a > 0.7 * LOOK for a, b in zip(before, after, strict=True))


def _idle_seconds() -> list[float]:
    """Idle time so far of each core that this process may use; empty if the system does not report it."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        usable = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        ticks = os.sysconf("SC_CLK_TCK")
        return [(int(f[4]) + int(f[5])) / ticks for line in lines if (f := line.split()) and f[0] in usable]
    except (OSError, AttributeError, ValueError, IndexError):
        return []
