"""Threads spin only on cores that no other process uses."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.fixtures import worlds as worlds

from tembed.common import cores as machine
from tembed.common.cores import ASLEEP, CROWDED, SPINNING, WINDOW, Crowd, starved_seconds, waiting_policy


@contextmanager
def busy_cores() -> Iterator[None]:
    """Two busy processes per core."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_the_users_choice_is_kept() -> None:
    assert waiting_policy({"GOMP_SPINCOUNT": "0"}) == {}
    assert waiting_policy({"OMP_WAIT_POLICY": "ACTIVE"}) == {}


@pytest.mark.parametrize(
    ("before", "after", "policy"),
    [
        ([5.0, 7.0], [5.1, 7.1], SPINNING),
        ([5.0, 7.0], [5.1, 7.0], ASLEEP),  # the second core is busy
        ([], [], ASLEEP),  # the system does not report idle times
    ],
)
def test_threads_spin_if_all_cores_are_idle(
    before: list[float], after: list[float], policy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([before, after])
    monkeypatch.setattr(machine, "_idle_seconds", lambda: next(seen))
    assert waiting_policy({}) == policy


@pytest.mark.process
def test_busy_cores_are_noticed_at_the_start() -> None:
    with busy_cores():
        assert waiting_policy({}) == ASLEEP


def test_crowded_cores_are_noticed_after_a_window() -> None:
    total = 0.0
    crowd = Crowd(lambda: total)
    start = crowd.start
    total += WINDOW
    assert not crowd.noticed(start + WINDOW / 2)
    assert crowd.noticed(start + WINDOW)
    total += WINDOW * CROWDED / 2
    assert not crowd.noticed(start + 2 * WINDOW)
    unknown = Crowd(lambda: None)
    assert not unknown.noticed(unknown.start + 2 * WINDOW)


@pytest.mark.process
def test_the_system_reports_how_long_threads_had_no_core() -> None:
    before = starved_seconds()
    assert before is not None
    with busy_cores():
        sum(range(20_000_000))
    after = starved_seconds()
    assert after is not None
    assert after > before + 0.05
