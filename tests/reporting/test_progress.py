"""One observer for all long work: bars on a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from tembed.reporting import Bars, Lines

NUMBERS = {"epoch": 2, "epochs": 4, "loss": 1.5}


def test_a_terminal_gets_a_bar_for_each_running_task() -> None:
    written = io.StringIO()
    bars = Bars(Console(file=written, force_terminal=True, width=160))
    bars.update("all runs", 1.25, 3, finished=1, running=1, failed=1)
    bars.update("first", 0.25, 1.0, **NUMBERS)
    bars.update("done already", 5, 5)
    bars.close()
    said = written.getvalue()
    assert "1 finished  1 running  1 failed" in said
    assert "epoch 2/4" in said
    assert "loss 1.500" in said
    assert not bars.tasks


def test_lines_come_now_and_then_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    written, now = io.StringIO(), 0.0
    monkeypatch.setattr("tembed.reporting.progress.time.monotonic", lambda: now)
    lines = Lines(written, every=60)
    lines.update("training", 100, 1000, **NUMBERS)  # resumed: these 100 were not done just now
    assert written.getvalue() == ""
    now = 61.0
    lines.update("training", 222, 1000, **NUMBERS)
    lines.update("reading", 3, 0)
    now = 70.0
    lines.update("training", 240, 1000, **NUMBERS)
    assert written.getvalue().splitlines() == ["training: epoch 2/4, 22 %, loss 1.500, about 6:29 left"]
