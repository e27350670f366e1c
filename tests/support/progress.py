"""Observers of progress for tests."""

from collections.abc import Callable

from tembed.common.progress import Progress


class Said(Progress):
    """Records the lines, and calls ``act`` once, at the first validation or test."""

    def __init__(self, act: Callable[[], object] | None = None) -> None:
        self.lines: list[str] = []
        self.act = act

    def say(self, line: str) -> None:
        self.lines.append(line)

    def update(self, task: str, done: float, total: float, **numbers: object) -> None:
        if task != "training" and self.act is not None:
            act, self.act = self.act, None
            act()


class Crash(Exception):
    """Ends a run as a power cut would."""


class CrashAfter(Progress):
    """Ends a run once it has trained on this many images."""

    def __init__(self, images: float) -> None:
        self.images = images

    def update(self, task: str, done: float, total: float, **numbers: object) -> None:
        if task == "training" and done >= self.images:
            raise Crash
