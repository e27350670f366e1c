"""A second request to stop kills the workers, whatever the grid is doing when it arrives."""

import signal
from pathlib import Path

import pytest
from support.progress import Said

from tembed.lab.grid.engines import RunExit
from tembed.lab.grid.jobs import GridRun, locate_runs
from tembed.lab.grid.scheduler import Scheduler
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.stopping import listening

RECIPES = [Recipe("rn20", "dots", epochs=1, batch_size=30, seed=seed).complete() for seed in range(3)]


class Interrupted(Said):
    """Two workers at a time that never exit by themselves, and a signal at the call of each given name."""

    def __init__(self, *signals: str) -> None:
        super().__init__()
        self.signals = list(signals)
        self.started: list[GridRun] = []
        self.alive: list[GridRun] = []

    def _reach(self, call: str) -> None:
        if self.signals[:1] == [call]:
            self.signals.pop(0)
            signal.raise_signal(signal.SIGINT)

    def say(self, line: str) -> None:
        super().say(line)
        self._reach("say")

    def has_capacity(self) -> bool:
        return len(self.alive) < 2

    def start(self, run: GridRun) -> None:
        self.started.append(run)
        self.alive.append(run)
        self._reach("start")

    def poll(self) -> list[RunExit]:
        self._reach("poll")
        return []

    def stop(self, kill: bool = False) -> None:
        if kill:
            self.alive.clear()
        else:
            self._reach("stop")

    def close(self) -> None:
        assert not self.alive, "the grid would wait for a worker that does not exit"


@pytest.mark.parametrize(
    ("first", "second"), [("poll", "start"), ("start", "start"), ("start", "say"), ("start", "stop"), ("start", "poll")]
)
def test_the_second_signal_kills_the_workers(first: str, second: str, tmp_path: Path) -> None:
    runs = locate_runs(tuple(RECIPES), tmp_path)
    engine = Interrupted(first, second)
    with listening() as request:
        outcome = Scheduler(runs, engine, engine, request).run()
    assert not engine.signals
    assert request.number == signal.SIGINT
    assert len(engine.started) in (1, 2)
    assert outcome.finished == [] == list(outcome.failed)
    assert sorted(run.name for run in outcome.stopped + outcome.not_started) == sorted(run.name for run in runs)


class Stopped(Interrupted):
    """Workers that exit when they are asked to stop. Only the first one has come as far as its recipe."""

    def __init__(self, *signals: str) -> None:
        super().__init__(*signals)
        self.exits: list[RunExit] = []

    def start(self, run: GridRun) -> None:
        if not self.started:
            run.run.folder.mkdir(parents=True)
            run.run.assign(run.recipe)
        super().start(run)

    def stop(self, kill: bool = False) -> None:
        self.exits, self.alive = [RunExit(run, "stopped", "") for run in self.alive], []

    def poll(self) -> list[RunExit]:
        exits, self.exits = self.exits, []
        return exits or super().poll()


def test_a_run_that_was_stopped_before_its_folder_existed_has_not_started(tmp_path: Path) -> None:
    first, second, third = locate_runs(tuple(RECIPES), tmp_path)
    engine = Stopped("poll")
    with listening() as request:
        outcome = Scheduler([first, second, third], engine, engine, request).run()
    assert engine.started == [first, second]
    assert (outcome.stopped, outcome.not_started) == ([first], [second, third])
    assert [line for line in engine.lines if "was stopped" in line] == [
        f"{first.name} was stopped, and its state was saved"
    ]
