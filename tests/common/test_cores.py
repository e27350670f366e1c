"""Threads spin only on cores that no other process uses."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.fixtures import worlds as worlds
from support.kills import fingerprint

from tembed.common import cores as machine
from tembed.common.cores import ASLEEP, CROWDED, SPINNING, WINDOW, Crowd, WaitingPolicy, starved_seconds, waiting_policy

LINE = "rn26-embed --data dots --preset fast --epochs 6 --batch-size 9 --start-scale 1"


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


def test_a_run_restarts_only_if_a_command_chose_to_spin() -> None:
    assert WaitingPolicy.from_environment(SPINNING) == WaitingPolicy(restart=True)
    for environment in (ASLEEP, {}, {"OMP_WAIT_POLICY": "ACTIVE"}):
        assert WaitingPolicy.from_environment(environment) == WaitingPolicy(restart=False)


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


@pytest.mark.process
@pytest.mark.slow
def test_a_crowded_run_restarts_with_sleeping_threads_and_the_same_bits(tmp_path: Path, worlds: Path) -> None:
    """The real command; its two processes differ only in how their threads wait."""
    code = "import sys; from tembed import machine; machine.WINDOW = 0.2; from tembed.cli.main import main; "
    environment = os.environ | {"TEMBED_DATA": str(worlds), "OMP_NUM_THREADS": "2"}

    def run(out: Path, policy: dict[str, str]) -> str:
        line = [sys.executable, "-c", code + "sys.exit(main())", "train", *LINE.split(), "--out", str(out)]
        done = subprocess.run(line, env=environment | policy, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    with busy_cores():
        said = run(tmp_path / "crowded", SPINNING)
    assert said.count("sleep while they wait") == 1
    assert "resuming" in said
    assert "from epoch" in said
    assert "sleep" not in run(tmp_path / "calm", ASLEEP)
    assert fingerprint(tmp_path / "crowded") == fingerprint(tmp_path / "calm")
