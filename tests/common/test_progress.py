"""One observer for all long work, and its views: bars, plain lines, notebooks, TensorBoard."""

import builtins
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import tembed.lab
from tembed.common.errors import TembedError
from tembed.common.progress import Lines, Progress, Several
from tembed.lab.notebook import Notebook
from tembed.lab.tensorboard import TensorBoard
from tembed.lab.terminal import Bars

NUMBERS = {"epoch": 2, "epochs": 4, "loss": 1.5}
METRICS = {
    "epoch": 2,
    "loss": 1.25,
    "head": 1.0,
    "patches": 1.5,
    "accuracy": 0.5,
    "val_accuracy": 0.625,
    "val_patches": None,
    "variance_share": None,
    "lr": 0.001,
    "images_per_second": 400.0,
}


class Clock:
    """Replaces the clock of the views; tests set ``now``."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for view in ("common.progress", "lab.notebook", "lab.tensorboard"):
        monkeypatch.setattr(f"tembed.{view}.time", clock)
    return clock


def test_every_view_is_exported() -> None:
    views = {"Bars", "Lines", "Notebook", "Progress", "SILENT", "Several", "TensorBoard"}
    assert views <= set(tembed.lab.__all__)
    assert all(hasattr(tembed.lab, name) for name in tembed.lab.__all__)


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


def test_lines_are_printed_at_intervals_with_the_time_left(clock: Clock) -> None:
    written = io.StringIO()
    lines = Lines(written, every=60)
    lines.update("training", 100, 1000, **NUMBERS)  # a resumed run: these 100 were done earlier
    assert written.getvalue() == ""
    clock.now = 61.0
    lines.update("training", 222, 1000, **NUMBERS)
    lines.update("reading", 3, 0)
    clock.now = 70.0
    lines.update("training", 240, 1000, **NUMBERS)
    assert written.getvalue().splitlines() == ["training: epoch 2/4, 22 %, loss 1.500, about 6:29 left"]


class Screen:
    """A notebook that keeps its outputs: each is the list of the versions that it showed."""

    def __init__(self) -> None:
        self.outputs: list[list[dict[str, str]]] = []

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> "Output":
        assert raw
        assert display_id
        self.outputs.append([data])
        return Output(self.outputs[-1])

    def html(self) -> str:
        return self.outputs[-1][-1]["text/html"]

    def text(self) -> str:
        return self.outputs[-1][-1]["text/plain"]


class Output:
    def __init__(self, versions: list[dict[str, str]]):
        self.versions = versions

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.versions.append(data)


def test_a_notebook_updates_one_output_in_place(clock: Clock) -> None:
    screen = Screen()
    notebook = Notebook(screen.display)
    notebook.update("training", 100, 1000, **NUMBERS)
    clock.now = 10.0
    notebook.update("training", 200, 1000, **NUMBERS)
    notebook.say("a <line> & more")
    assert len(screen.outputs) == 1
    assert screen.text() == "a <line> & more\ntraining: epoch 2/4, 20 %, loss 1.500, about 1:20 left"
    assert 'value="0.2000"' in screen.html()
    assert "a &lt;line&gt; &amp; more" in screen.html()


def test_a_notebook_shows_only_some_updates_but_every_line(clock: Clock) -> None:
    screen = Screen()
    notebook = Notebook(screen.display, every=1.0)
    for step in range(100):
        clock.now = 0.1 * step
        notebook.update("training", step, 100, **NUMBERS)
    assert len(screen.outputs[0]) == 10
    for number in range(20):
        notebook.say(f"line {number}")
    assert len(screen.outputs[0]) == 30
    assert all(f"line {number}\n" in screen.html() for number in range(19))


def test_a_finished_or_dropped_task_leaves_the_notebook(clock: Clock) -> None:
    screen = Screen()
    notebook = Notebook(screen.display)
    notebook.update("reading", 1, 0)
    notebook.update("decoding", 1, 2)
    clock.now = 1.0
    notebook.update("reading", 2, 0)
    assert screen.text() == "reading: 2\ndecoding: 1 of 2"
    notebook.update("decoding", 2, 2)
    notebook.drop("reading")
    assert screen.text() == ""


def test_a_closed_notebook_keeps_its_lines_and_starts_a_new_output(clock: Clock) -> None:
    screen = Screen()
    with Notebook(screen.display) as notebook:
        notebook.epoch(METRICS, 4)
        notebook.update("training", 100, 1000, **NUMBERS)
    assert screen.text().startswith("epoch 2/4: loss head 1.000 patches 1.500, accuracy train 50.00 val 62.50 %")
    assert "<progress" not in screen.html()
    notebook.say("next")
    assert len(screen.outputs) == 2
    assert screen.text() == "next"


def test_tensorboard_gets_every_epoch_and_the_loss_at_intervals(tmp_path: Path, clock: Clock) -> None:
    with TensorBoard(tmp_path / "board", every=5.0) as board:
        for step in range(20):
            clock.now = float(step)
            board.update("training", 32 * step, 640, epoch=1, epochs=2, loss=2.0 - step / 10)
        board.update("validation", 5, 10)
        board.epoch({**METRICS, "epoch": 1}, 2)
        board.epoch(METRICS, 2)
    read = scalars(tmp_path / "board")
    assert read["training/loss"] == [(0, 2.0), (160, 1.5), (320, 1.0), (480, 0.5)]
    assert read["epoch/val_accuracy"] == [(1, 0.625), (2, 0.625)]
    assert "epoch/val_patches" not in read
    assert "epoch/epoch" not in read


def test_a_resumed_run_replaces_the_losses_after_its_checkpoint(tmp_path: Path, clock: Clock) -> None:
    for steps, loss in ((range(10), 2.0), (range(5, 10), 1.0)):
        with TensorBoard(tmp_path, every=0.0) as board:
            for step in steps:
                board.update("training", 32 * step, 640, epoch=1, epochs=2, loss=loss)
    assert scalars(tmp_path)["training/loss"] == [(32 * step, 2.0 if step < 5 else 1.0) for step in range(10)]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from a folder: the points of each curve."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder))
    reader.Reload()
    return {
        tag: [(event.step, pytest.approx(event.value, abs=1e-6)) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make importing this package fail."""
    real = builtins.__import__

    def importing(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_a_missing_tensorboard_is_named_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "torch.utils.tensorboard", raising=False)
    without(monkeypatch, "tensorboard")
    with pytest.raises(TembedError, match=r"pip install 'tembed\[tensorboard\]'"):
        TensorBoard(tmp_path)


def test_a_notebook_view_without_ipython_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "IPython")
    with pytest.raises(TembedError, match="needs IPython"):
        Notebook()


class Noted(Progress):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def say(self, line: str) -> None:
        self.events.append(line)

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        self.events.append((task, done, total, numbers))

    def drop(self, task: str) -> None:
        self.events.append(("drop", task))

    def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
        self.events.append((metrics, epochs))

    def close(self) -> None:
        self.events.append("closed")


def test_several_observers_get_every_event() -> None:
    first, second = Noted(), Noted()
    with Several(first, second) as both:
        both.say("line")
        both.update("training", 1, 2, loss=0.5)
        both.drop("training")
        both.epoch(METRICS, 4)
    assert first.events == ["line", ("training", 1, 2, {"loss": 0.5}), ("drop", "training"), (METRICS, 4), "closed"]
    assert second.events == first.events


def test_several_closes_every_observer_even_if_one_fails() -> None:
    class Broken(Progress):
        def close(self) -> None:
            raise OSError("disk full")

    last = Noted()
    with pytest.raises(OSError, match="disk full"):
        Several(Broken(), last).close()
    assert last.events == ["closed"]


def test_every_view_overrides_only_events_of_progress() -> None:
    """A renamed event would silently never be shown."""
    events = {"say", "update", "drop", "epoch", "close"}
    for view in (Several, Lines, Bars, Notebook, TensorBoard):
        assert {name for name in vars(view) if not name.startswith("_")} <= events, view
