"""Runs a grid to its end: starts runs, waits for runs of other processes, records failures, and stops on request."""

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Protocol

from tembed.common.errors import TembedError
from tembed.common.files import make_folder
from tembed.common.progress import Progress
from tembed.lab.grid.engines import Engine, RunExit
from tembed.lab.grid.jobs import GridRun

POLL_SECONDS = 0.2
MAX_LOSSES = 5
"""How often a run may lose its machine before it counts as failed."""


class StopRequest(Protocol):
    """``number``: the signal that asked to stop, or None."""

    number: int | None


@dataclass
class Outcome:
    """The runs of a grid, grouped by how they ended."""

    finished: list[GridRun] = field(default_factory=list)
    """finished by this command"""
    already_finished: list[GridRun] = field(default_factory=list)
    """finished before this command, or meanwhile by another one"""
    failed: dict[GridRun, str] = field(default_factory=dict)
    stopped: list[GridRun] = field(default_factory=list)
    """started, and stopped or killed; they resume from their last checkpoint"""
    not_started: list[GridRun] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not (self.failed or self.stopped or self.not_started)

    def text(self) -> str:
        """The outcome in words, with the error of each failed run."""
        done = len(self.finished) + len(self.already_finished)
        total = done + len(self.failed) + len(self.stopped) + len(self.not_started)
        lines = [f"{done} of {total} runs are finished, {len(self.finished)} of them by this command"]
        if self.failed:
            lines.append(f"{len(self.failed)} failed; run the same command with --retry to try them again:")
            lines += [f"  {run.name}: {reason}" for run, reason in self.failed.items()]
        if unfinished := len(self.stopped) + len(self.not_started):
            lines.append(f"{unfinished} are unfinished; run the same command again to continue")
        return "\n".join(lines)


class Scheduler:
    """Brings every run to its end. Finished runs are left alone, and so are failed ones unless ``retry``."""

    def __init__(
        self, runs: list[GridRun], engine: Engine, progress: Progress, stop_request: StopRequest, retry: bool = False
    ):
        self.runs, self.engine, self.progress, self.stop_request = runs, engine, progress, stop_request
        self.outcome = Outcome()
        self.shown: set[str] = set()
        self.waiting: deque[GridRun] = deque()
        self.running: list[GridRun] = []
        self.elsewhere: list[GridRun] = []
        self.losses: Counter[GridRun] = Counter()
        for run in runs:
            make_folder(run.log.parent)
            if retry and run.state() == "failed":
                run.clear_failure()
            self._enqueue(run)

    def run(self) -> Outcome:
        """Run until everything has ended or a stop is requested."""
        for run, reason in self.outcome.failed.items():
            self.progress.say(f"{run.name} failed before; --retry tries it again: {reason}")
        try:
            while (self.waiting or self.running or self.elsewhere) and self.stop_request.number is None:
                self._step()
                time.sleep(POLL_SECONDS)
            if self.stop_request.number is not None:
                self._stop()
        except KeyboardInterrupt:  # a second request, at any moment: do not wait
            self.engine.stop(kill=True)
        finally:
            self.engine.close()
            self.progress.close()
        self._add_unfinished()
        return self.outcome

    def _enqueue(self, run: GridRun) -> None:
        state = run.state()
        if state == "finished":
            self.outcome.already_finished.append(run)
        elif state == "failed":
            self.outcome.failed[run] = run.failure() or ""
        else:
            self.waiting.append(run)

    def _step(self) -> None:
        for ended in self.engine.poll():
            self._handle_exit(ended)
        for run in [run for run in self.elsewhere if not run.in_use()]:
            self.elsewhere.remove(run)
            self._enqueue(run)
        for _ in range(len(self.waiting)):
            if not self.engine.has_capacity():
                break
            run = self.waiting.popleft()
            if run.in_use():
                self._wait_for_other(run)
            elif run.state() in ("finished", "failed"):  # meanwhile, by another grid
                self._enqueue(run)
            else:
                self._start(run)
        self._show()

    def _start(self, run: GridRun) -> None:
        self.running.append(run)
        try:
            self.engine.start(run)
        except TembedError as error:
            self._handle_exit(RunExit(run, "failed", str(error)))

    def _handle_exit(self, ended: RunExit) -> None:
        run = ended.run
        self.running.remove(run)
        if ended.status == "finished":
            self.outcome.finished.append(run)
            result = run.run.result
            accuracy = "" if result is None else f": test accuracy {100 * result['test_accuracy']:.2f} %"
            self.progress.say(f"{run.name} finished{accuracy}")
        elif ended.status == "busy":
            self._wait_for_other(run)
        elif ended.status == "stopped" and run.state() == "new":
            self.outcome.not_started.append(run)
        elif ended.status == "stopped":
            self.outcome.stopped.append(run)
            self.progress.say(f"{run.name} was stopped, and its state was saved")
        elif ended.status == "lost" and self.losses[run] < MAX_LOSSES:
            self.losses[run] += 1
            self.progress.say(f"{run.name} lost its machine ({ended.reason}); resuming it elsewhere")
            self.waiting.append(run)
        else:
            lost = f"lost its machine {MAX_LOSSES + 1} times, the last time: " if ended.status == "lost" else ""
            reason = lost + ended.reason
            run.record_failure(reason)
            self.outcome.failed[run] = reason
            self.progress.say(f"{run.name} failed: {reason}")

    def _wait_for_other(self, run: GridRun) -> None:
        self.elsewhere.append(run)
        self.progress.say(f"another process is training {run.name}; waiting for it")

    def _stop(self) -> None:
        self.progress.say("stopping: the runs save their state")
        self.engine.stop()
        while self.running:
            for ended in self.engine.poll():
                self._handle_exit(ended)
            time.sleep(POLL_SECONDS / 2)

    def _add_unfinished(self) -> None:
        """Add the runs without an outcome. This does not rely on the queues: an interrupt can leave a run in none."""
        outcome = self.outcome
        ended = {*outcome.finished, *outcome.already_finished, *outcome.failed, *outcome.stopped, *outcome.not_started}
        for run in self.runs:
            if run not in ended:
                (outcome.stopped if run in self.running else outcome.not_started).append(run)

    def _show(self) -> None:
        done = len(self.outcome.finished) + len(self.outcome.already_finished)
        notes = {run.name: run.read_progress() for run in self.running}
        running = {name: note for name, note in notes.items() if note}
        share = sum(note["share"] for note in running.values())
        counts = {"finished": done, "running": len(running)}
        if self.outcome.failed:
            counts["failed"] = len(self.outcome.failed)
        self.progress.update("all runs", done + share, len(self.runs), **counts)
        for name in self.shown - set(running):
            self.progress.drop(name)
        self.shown = set(running)
        for name, note in running.items():
            self.progress.update(name, note.pop("share"), 1.0, **note)
