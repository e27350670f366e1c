"""What this process may use of the machine."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


POLICIES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Each of these says how to wait; the runtimes read them once, when torch is loaded."""
CHOICE = "TEMBED_WAITING"
"""Set if the policy is ours, so that it may change."""
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", CHOICE: "asleep"}
SPINNING = {"OMP_WAIT_POLICY": "ACTIVE", CHOICE: "spinning"}
LOOK = 0.1
"""Seconds to look at the other processes."""
WINDOW = 20.0
"""Seconds to watch the own threads; a short visitor does not matter."""
CROWDED = 0.25
"""Seconds in a second that threads could have worked but had no core; alone it is 0.01."""


class Crowded(Exception):
    """Another process has one of the cores, and the threads spin by our choice; the run is saved."""


def waiting_policy(environment: Mapping[str, str]) -> dict[str, str]:
    """What to set before torch is loaded: spinning if every core is idle now; nothing if the user has decided."""
    if any(name in environment for name in POLICIES):
        return {}
    return SPINNING if _all_idle() else ASLEEP


def _all_idle() -> bool:
    before = _idle_seconds()
    time.sleep(LOOK)
    after = _idle_seconds()
    return bool(before) and all(b - a > 0.7 * LOOK for a, b in zip(before, after, strict=True))


def _idle_seconds() -> list[float]:
    """Of each core that this process may use, so far; nothing where the system does not tell."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        ticks = os.sysconf("SC_CLK_TCK")
        return [(int(f[4]) + int(f[5])) / ticks for line in lines if (f := line.split()) and f[0] in cores]
    except (OSError, AttributeError, ValueError, IndexError):
        return []


def starved_seconds() -> float | None:
    """How long the threads of this process had no core while they had work, so far; None where nothing tells."""
    try:
        threads = Path("/proc/self/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[1]) for thread in threads) / 1e9
    except (OSError, ValueError, IndexError):
        return None


class Crowd:
    """Notices that the threads have to share their cores."""

    def __init__(self, starved: Callable[[], float | None] = starved_seconds) -> None:
        self.starved = starved
        self.start, self.before = time.monotonic(), starved()

    def noticed(self, now: float) -> bool:
        """Whether the last `WINDOW` was crowded; asked after every step with the time, it answers once a window."""
        if now - self.start < WINDOW or self.before is None:
            return False
        span, before = now - self.start, self.before
        self.start, self.before = now, self.starved()
        return self.before is not None and (self.before - before) / span > CROWDED
