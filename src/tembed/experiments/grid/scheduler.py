"""Runs a grid to its end: starts what is left, waits for what others do, notes what fails, stops when asked."""

import time
from collections import Counter, deque
from dataclasses import dataclass, field

from tembed.experiments.grid.engines import Ending, Engine
from tembed.experiments.grid.folders import Place
from tembed.files import explained
from tembed.reporting.progress import Progress
from tembed.training.stopping import StopRequest as Wish

POLL = 0.2
HIDDEN = ("share", "seconds_left")
"""Of a run's note: the bar shows them in its own way."""
LOSSES = 5
"""How often a run may lose its machine before it counts as failed."""


@dataclass
class Outcome:
    """What came of each run. ``stopped`` were begun and can be taken up again."""

    finished: list[Place] = field(default_factory=list)
    before: list[Place] = field(default_factory=list)
    """finished before this command, or meanwhile by another"""
    failed: dict[Place, str] = field(default_factory=dict)
    stopped: list[Place] = field(default_factory=list)
    left: list[Place] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not (self.failed or self.stopped or self.left)

    def text(self) -> str:
        """The outcome in words, with the error of each run that failed."""
        done = len(self.finished) + len(self.before)
        everything = done + len(self.failed) + len(self.stopped) + len(self.left)
        lines = [f"{done} of {everything} runs are finished, {len(self.finished)} of them by this command"]
        if self.failed:
            lines.append(f"{len(self.failed)} failed; the same command with --retry tries them again:")
            lines += [f"  {place.name}: {why}" for place, why in self.failed.items()]
        if unfinished := len(self.stopped) + len(self.left):
            lines.append(f"{unfinished} are left; the same command goes on with them")
        return "\n".join(lines)


def conduct(places: list[Place], engine: Engine, progress: Progress, wish: Wish, retry: bool = False) -> Outcome:
    """Bring every run to its end. Finished ones are left alone, and failed ones too unless ``retry``."""
    return _Conductor(places, engine, progress, wish, retry).go()


class _Conductor:
    def __init__(self, places: list[Place], engine: Engine, progress: Progress, wish: Wish, retry: bool):
        self.places, self.engine, self.progress, self.wish = places, engine, progress, wish
        self.outcome = Outcome()
        self.shown: set[str] = set()
        self.waiting: deque[Place] = deque()
        self.running: list[Place] = []
        self.elsewhere: list[Place] = []
        self.losses: Counter[Place] = Counter()
        for place in places:
            with explained(place.log):
                place.log.parent.mkdir(parents=True, exist_ok=True)
            if retry and place.state() == "failed":
                place.forget_failure()
            self._sort_in(place)

    def _sort_in(self, place: Place) -> None:
        state = place.state()
        if state == "finished":
            self.outcome.before.append(place)
        elif state == "failed":
            self.outcome.failed[place] = place.failure() or ""
        else:
            self.waiting.append(place)

    def go(self) -> Outcome:
        for place, why in self.outcome.failed.items():
            self.progress.say(f"{place.name} failed before, and waits for --retry: {why}")
        try:
            while (self.waiting or self.running or self.elsewhere) and self.wish.number is None:
                self._turn()
                time.sleep(POLL)
            if self.wish.number is not None:
                self._stop()
        finally:
            self.engine.close()
            self.progress.close()
        return self.outcome

    def _turn(self) -> None:
        for ending in self.engine.endings():
            self._ended(ending)
        for place in [place for place in self.elsewhere if not place.in_use()]:
            self.elsewhere.remove(place)
            self._sort_in(place)
        for _ in range(len(self.waiting)):
            if not self.engine.room():
                break
            place = self.waiting.popleft()
            if place.in_use():
                self._leave_to_other(place)
            elif place.state() in ("finished", "failed"):  # meanwhile, by another grid
                self._sort_in(place)
            else:
                self.engine.start(place)
                self.running.append(place)
        self._show()

    def _ended(self, ending: Ending) -> None:
        place = ending.place
        self.running.remove(place)
        if ending.how == "finished":
            self.outcome.finished.append(place)
            result = place.run.result
            score = "" if result is None else f": test accuracy {100 * result['test_accuracy']:.2f} %"
            self.progress.say(f"{place.name} finished{score}")
        elif ending.how == "busy":
            self._leave_to_other(place)
        elif ending.how == "stopped" and place.state() == "new":
            self.outcome.left.append(place)
        elif ending.how == "stopped":
            self.outcome.stopped.append(place)
            self.progress.say(f"{place.name} was stopped, and its state saved")
        elif ending.how == "lost" and self.losses[place] < LOSSES:
            self.losses[place] += 1
            self.progress.say(f"{place.name} lost its machine ({ending.why}); going on with it elsewhere")
            self.waiting.append(place)
        else:
            if ending.how == "lost":
                place.fail(f"lost its machine {LOSSES + 1} times, the last time: {ending.why}")
            self.outcome.failed[place] = ending.why
            self.progress.say(f"{place.name} failed: {ending.why}")

    def _leave_to_other(self, place: Place) -> None:
        self.elsewhere.append(place)
        self.progress.say(f"{place.name} is being trained by another process; waiting for it")

    def _stop(self) -> None:
        self.progress.say("stopping: the runs save their state")
        asked = self.wish.number
        self.engine.stop()
        try:
            while self.running:
                for ending in self.engine.endings():
                    self._ended(ending)
                time.sleep(POLL / 2)
        except KeyboardInterrupt:  # asked twice: at once
            self.engine.stop(at_once=True)
            self.outcome.stopped += self.running
        self.wish.number = asked
        self.outcome.left += [*self.waiting, *self.elsewhere]

    def _show(self) -> None:
        done = len(self.outcome.finished) + len(self.outcome.before)
        heard = {place.name: place.heard() for place in self.running}
        running = {name: note for name, note in heard.items() if note}
        share = sum(note["share"] for note in running.values())
        counts = {"finished": done, "running": len(running)}
        if self.outcome.failed:
            counts["failed"] = len(self.outcome.failed)
        self.progress.update("all runs", done + share, len(self.places), **counts)
        for name in self.shown - set(running):
            self.progress.drop(name)
        self.shown = set(running)
        for name, note in running.items():
            self.progress.update(name, note["share"], 1.0, **{k: v for k, v in note.items() if k not in HIDDEN})
