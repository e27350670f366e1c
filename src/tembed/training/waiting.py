"""How torch's threads wait for each other: asleep, or spinning on a core that another process may need.

Torch splits an operation among its threads (OpenMP; GNU's in the Linux wheels), and those that are done first wait. By
default they spin, each on a core. When another process takes one of the cores, all wait, spinning, for the one that
lost it, and a step costs many times its work. docs/training.md has the measurement.
"""

from collections.abc import Mapping

POLICIES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Each of these says how to wait; the runtimes read them once, when torch is loaded."""
WINDOW = 20
"""Steps to compare."""
COLLAPSE = 4.0
"""Times the processor time of a step; shared cores and caches alone cost far less."""


def yield_while_waiting(environment: Mapping[str, str]) -> dict[str, str]:
    """What to set, before torch is loaded, so that waiting threads sleep: nothing if the user has decided."""
    return {} if any(name in environment for name in POLICIES) else {"OMP_WAIT_POLICY": "PASSIVE"}


class Spinning:
    """Notices that steps begin to cost many times the processor time that they did.

    Sharing a core makes a step take longer, but not more processor time; only waiting by spinning does that.
    """

    def __init__(self) -> None:
        self.side = 0
        self.start: float | None = None
        self.steps = 0
        self.least = float("inf")
        self.told = False

    def noticed(self, side: int, processor_seconds: float) -> float | None:
        """After a step with images of ``side``: how many times as much it costs now, once, if that is many.

        ``processor_seconds`` is the processor time of all threads so far.
        """
        if side != self.side or self.start is None:
            self.side, self.start, self.steps, self.least = side, processor_seconds, 0, float("inf")
            return None
        self.steps += 1
        if self.steps < WINDOW:
            return None
        cost, self.start, self.steps = processor_seconds - self.start, processor_seconds, 0
        times, self.least = cost / self.least, min(cost, self.least)
        if self.told or times < COLLAPSE:
            return None
        self.told = True
        return times
