"""The bars of a grid on a terminal, and its lines elsewhere."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tembed.cli.grid_bars import GridBars
from tembed.experiments.places import Place
from tembed.experiments.progress import GridLines
from tembed.training.recipe import Recipe

TOLD = {"epoch": 2, "epochs": 4, "share": 0.25, "loss": 1.5, "images_per_second": 80.0, "seconds_left": 61.0}


def places() -> tuple[Place, Place]:
    recipe = Recipe("rn26", "cifar10")
    return Place(recipe, Path("runs"), "first"), Place(recipe, Path("runs"), "second")


def test_a_terminal_gets_a_bar_for_all_runs_and_one_for_each() -> None:
    written = io.StringIO()
    bars = GridBars(Console(file=written, force_terminal=True, width=160))
    first, second = places()
    bars.begin(3)
    bars.show(1, 1, {first: TOLD, second: {}})
    bars.end()
    said = written.getvalue()
    assert "1/3 finished, 1 running, 1 failed" in said
    assert "epoch 2/4, 25 %, loss 1.500, 80 images/s, about 1:01 left" in said
    assert "second" not in said  # nothing heard of it yet


def test_elsewhere_it_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    written, now = io.StringIO(), 0.0
    monkeypatch.setattr("tembed.experiments.progress.time.monotonic", lambda: now)
    lines = GridLines(written, every=60)
    first, second = places()
    lines.begin(3)
    lines.show(0, 0, {first: TOLD})
    assert written.getvalue() == ""
    now = 61.0
    lines.show(1, 0, {first: TOLD, second: {}})
    assert written.getvalue().splitlines() == [
        "1 of 3 runs finished",
        "  first: epoch 2/4, 25 %, loss 1.500, 80 images/s, about 1:01 left",
        "  second: starting, or waiting for a place",
    ]
