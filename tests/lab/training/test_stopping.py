"""A request to stop is never lost, and nothing but a request stops a run."""

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tembed.common.files import is_locked
from tembed.common.progress import Progress
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.stopping import listening

DOTS = Recipe("rn20", "dots", epochs=1, batch_size=30)


@pytest.fixture
def hangup() -> Iterator[None]:
    """Restores what SIGHUP does."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_ends_a_session_is_a_request_to_stop(number: int) -> None:
    with listening() as stop:
        os.kill(os.getpid(), number)
        assert stop.number == number


def test_an_ignored_signal_stays_ignored(hangup: None) -> None:
    """As under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with listening() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.number is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def no_locks(descriptor: int, operation: int) -> None:
    raise OSError(errno.ENOTSUP, "Operation not supported")


def test_without_locks_a_run_warns_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    lines: list[str] = []

    class Said(Progress):
        def say(self, line: str) -> None:
            lines.append(line)

    assert train(DOTS, tmp_path / "run", progress=Said()).result is not None
    assert sum("without locks" in line for line in lines) == 1
    assert not is_locked(tmp_path / "run" / "lock")
