"""Pieces of work that change files, and what must hold if one of their calls fails or the power is cut.

`failure` and `power_cut` try one disturbance each. The test suite tries a share of them (tests/lab/test_power_cuts.py),
and tests/campaign/power_cuts.py tries all.
"""

import errno
import hashlib
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image
from torch import nn

from support.clocks import without_clock
from support.datasets import entries, store_world
from support.disk import Disk, Journal, lay_out, snapshot
from support.kills import fingerprint
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.data import pool_writer
from tembed.lab.data.importing import import_images
from tembed.lab.data.store import is_stored, open_stored, remove_dataset, rename_dataset
from tembed.lab.data.verification import verify
from tembed.lab.training.checkpoint_files import KIND, Checkpoints
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run, save_summary
from tembed.models import registry
from tembed.models.network import Network
from tembed.trained.checksummed import read_checksummed
from tembed.trained.weights_file import load

FAULTS = ((errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EIO, False))
"""Errors of a call, and whether all later writing fails with the same error."""
Promise = Callable[[Any], None]
DONE = "done"
"""What every piece of work promises at its end."""


class Work:
    """One piece of work on the files below a folder; the same call again finishes what was interrupted."""

    def __init__(self, home: Path):
        """``home``: a folder for what the work needs besides the files that it changes."""
        self.home = home

    def prepare(self, folder: Path) -> None:
        """Make the files that are there before the work."""

    def do(self, folder: Path, promise: Promise) -> None:
        """Do the work, and promise each thing that is saved."""
        raise NotImplementedError

    def check(self, folder: Path, promised: list[Any]) -> None:
        """Raise `AssertionError` if something that was promised, or there before, is lost."""

    def left(self, folder: Path) -> Any:
        """What the finished work leaves, without clocks."""
        raise NotImplementedError


# --- the pieces of work


def speck(num_classes: int, input_size: int) -> Network:
    """A network of one convolution."""
    stem = nn.Conv2d(3, 4, 3, 2, 1)
    return Network(stem, [nn.Identity(), nn.Identity(), nn.Identity()], None, nn.Identity(), 4, num_classes)


@contextmanager
def modelled() -> Iterator[None]:
    """Recipes may name the network ``speck`` meanwhile, and nothing waits for the real disk."""
    registry.register_model("speck", speck, block=None)
    try:
        with mock.patch.object(os, "fsync", return_value=None):
            yield
    finally:
        del registry._ENTRIES["speck"]


class Training(Work):
    """a new run of two epochs, saved after each step"""

    RECIPE = Recipe("speck", "dots", epochs=2, batch_size=33)
    DATA = "datasets"

    def __init__(self, home: Path):
        super().__init__(home)
        if not (home / self.DATA).exists():
            store_world(home / self.DATA, "dots", 100, 8)
        self.before: dict[str, Any] | None = None
        self.after: dict[str, Any] | None = None

    def run(self, folder: Path) -> Run:
        return Run(folder / "runs" / "run")

    def do(self, folder: Path, promise: Promise) -> None:
        self._train(self.RECIPE, folder, promise)
        promise(DONE)

    def _train(self, recipe: Recipe, folder: Path, promise: Promise) -> None:
        save = Checkpoints.save

        def watch(checkpoints: Checkpoints, tensors: Any, record: dict[str, Any]) -> None:
            save(checkpoints, tensors, record)
            promise((record["epoch"], record["step"]))

        class Epochs(Progress):
            def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
                promise(metrics["epoch"])

        with mock.patch.object(Checkpoints, "save", watch):
            run = self.run(folder).folder
            train(recipe, run, root=self.home / self.DATA, checkpoint_seconds=0, progress=Epochs())

    def check(self, folder: Path, promised: list[Any]) -> None:
        run = self.run(folder)
        positions = [each for each in promised if isinstance(each, tuple)]
        if positions:
            found = []
            for path in (run.checkpoints.newest, run.checkpoints.previous):
                try:
                    record = read_checksummed(path, KIND)[1]
                except TembedError:
                    continue
                found.append((record["epoch"], record["step"]))
            assert max(found, default=(0, 0)) >= max(positions), f"of the checkpoint {max(positions)}, {found} is left"
        epochs = max((each for each in promised if isinstance(each, int)), default=0)
        if epochs:
            assert len(run.metrics) >= epochs, "epochs are lost from the metrics"
            assert load(run.best_path).description.epoch >= 1
        if run.recipe_path.exists():
            result = run.result
            known = [self.before, self.after] if self.before else [self.after]
            assert result is None or without_clock(result) in known, f"the result is {result}"
            assert result is None or result["epochs"] == run.recipe.epochs
        assert DONE not in promised or run.result is not None, "the result is lost"

    def left(self, folder: Path) -> Any:
        run = self.run(folder)
        assert run.result is not None
        self.after = without_clock(run.result)
        return fingerprint(run.folder)


class Continuing(Training):
    """a finished run of one epoch continued to two"""

    def prepare(self, folder: Path) -> None:
        self._train(Recipe("speck", "dots", epochs=1, batch_size=33), folder, lambda _: None)
        run = self.run(folder)
        assert run.result is not None
        self.before = without_clock(run.result)

    def check(self, folder: Path, promised: list[Any]) -> None:
        super().check(folder, [(1, 0), 1, *promised])


class Import(Work):
    """pictures imported into a new folder of datasets"""

    NAME = "pets"

    def __init__(self, home: Path):
        super().__init__(home)
        self.pictures = home / "pictures"
        if not self.pictures.exists():
            for number, name in enumerate(("cat", "cat", "dog")):
                path = self.pictures / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = np.random.default_rng(number).integers(0, 256, (4, 4, 3), np.uint8)
                Image.fromarray(pixels).save(path)
        self.needed: tuple[str, ...] = ()

    def root(self, folder: Path) -> Path:
        return folder / "data"

    def do(self, folder: Path, promise: Promise) -> None:
        import_images(self.pictures, self.NAME, root=self.root(folder))
        promise(DONE)

    def check(self, folder: Path, promised: list[Any]) -> None:
        for name in (self.NAME, *self.needed):
            if is_stored(self.root(folder), name):
                verified(self.root(folder), name)
            else:
                assert name not in self.needed, f"{name} is lost"
                assert DONE not in promised, f"{name} is lost"

    def left(self, folder: Path) -> Any:
        root = self.root(folder)
        return entries(root), {name: verified(root, name) for name in entries(root)}


def verified(root: Path, name: str) -> tuple[str, str]:
    """The checksum and the name in the manifest of a stored dataset whose every byte is right."""
    stored = open_stored(root, name)
    assert stored.files() is not None
    verify(stored, again=True)
    (stored.folder / "verified.json").unlink(missing_ok=True)
    return stored.sha256, stored.manifest["name"]


class SavedImport(Import):
    """pictures imported, with the state saved after every chunk"""

    def do(self, folder: Path, promise: Promise) -> None:
        with mock.patch.object(pool_writer, "SAVE_SECONDS", 0.0):
            super().do(folder, promise)


class Repair(Import):
    """pictures imported again over a damaged dataset"""

    def prepare(self, folder: Path) -> None:
        for name in (self.NAME, "other"):
            import_images(self.pictures, name, root=self.root(folder))
        path = self.root(folder) / self.NAME / "images.npy"
        path.write_bytes(path.read_bytes()[:-1])
        self.needed = ("other",)

    def check(self, folder: Path, promised: list[Any]) -> None:
        assert is_stored(self.root(folder), self.NAME), "the dataset is lost"
        verified(self.root(folder), "other")
        if DONE in promised:
            verified(self.root(folder), self.NAME)


class Rename(Import):
    """a dataset renamed"""

    NEW = "animals"

    def prepare(self, folder: Path) -> None:
        for name in (self.NAME, "other"):
            import_images(self.pictures, name, root=self.root(folder))

    def do(self, folder: Path, promise: Promise) -> None:
        try:
            rename_dataset(self.NAME, self.NEW, self.root(folder))
        except TembedError as error:  # it was renamed before
            if not (f"'{self.NAME}' is not in" in str(error) and self.NEW in str(error)):
                raise
        promise(DONE)

    def check(self, folder: Path, promised: list[Any]) -> None:
        root = self.root(folder)
        verified(root, "other")
        there = [name for name in (self.NAME, self.NEW) if is_stored(root, name)]
        assert len(there) == 1, f"there is {there}"
        verified(root, there[0])
        assert DONE not in promised or there == [self.NEW], "the new name is lost"


class Remove(Rename):
    """a dataset removed"""

    def do(self, folder: Path, promise: Promise) -> None:
        try:
            remove_dataset(self.NAME, self.root(folder))
        except TembedError as error:  # it was removed before
            if f"'{self.NAME}' is not in" not in str(error):
                raise
        promise(DONE)

    def check(self, folder: Path, promised: list[Any]) -> None:
        root = self.root(folder)
        verified(root, "other")
        if is_stored(root, self.NAME):
            verified(root, self.NAME)
            assert DONE not in promised, "it is there again"

    def left(self, folder: Path) -> Any:
        names = [name for name in entries(self.root(folder)) if not name.startswith(".")]
        return {name: verified(self.root(folder), name) for name in names}


class Saving(Training):
    """the summary of a run saved in a new folder"""

    def do(self, folder: Path, promise: Promise) -> None:
        save_summary(self.run(self.home), folder / "results" / "saved")
        promise(DONE)

    def prepare(self, folder: Path) -> None:
        if not self.run(self.home).folder.exists():
            self._train(self.RECIPE, self.home, lambda _: None)

    def check(self, folder: Path, promised: list[Any]) -> None:
        found = [path.read_bytes() for path in folder.rglob("*.json")]
        assert found in ([], [self.content]) or not hasattr(self, "content"), "a torn file"
        assert found or DONE not in promised, "the summary is lost"

    def left(self, folder: Path) -> Any:
        (self.content,) = (path.read_bytes() for path in folder.rglob("*.json"))
        return self.content


WORKS: tuple[type[Work], ...] = (Training, Continuing, Saving, Import, SavedImport, Repair, Rename, Remove)


# --- disturbing them


@dataclass
class Tried:
    """A piece of work that was done once without a disturbance, and then with many."""

    work: Work
    folder: Path
    disk: Disk
    before: dict[str, bytes | None]
    expected: Any
    journal: Journal
    seen: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, kind: type[Work], home: Path) -> "Tried":
        work, folder, copy = kind(home), home / "disk", home / "before"
        for each in (folder, copy):
            shutil.rmtree(each, ignore_errors=True)
        folder.mkdir()
        work.prepare(folder)
        shutil.copytree(folder, copy)
        disk = Disk(folder)
        with disk.watched():
            work.do(folder, disk.mark)
        return cls(work, folder, disk, snapshot(copy), work.left(folder), Journal(copy, disk.calls))

    @property
    def calls(self) -> int:
        return len(self.disk.calls)

    def failure(self, call: int, error: int, lasting: bool = False) -> None:
        """Let one call fail, or with ``lasting`` all writing from there on, and do the work again."""
        lay_out(self.before, self.folder)
        disk = Disk(self.folder, call, error, lasting)
        try:
            with disk.watched():
                self.work.do(self.folder, disk.mark)
        except TembedError as wrong:
            said = str(wrong)
        else:
            said = f"{self.folder}: it went on, and may be done again"
        assert "\n" not in said, said
        assert str(self.folder) in said, f"no file is named: {said}"
        assert {"again", "another"} & set(re.findall(r"\w+", said)), f"no way out is named: {said}"
        assert disk.count > call, "the call was not reached"
        self._recover(disk.promised())

    def states(self, calls: int, most: int) -> Iterator[dict[str, bytes | None]]:
        """The states that a power cut after this many calls can leave, without those that were seen before."""
        promised = repr(self.disk.promised(calls))
        for state in self.journal.states(calls, most, random.Random(calls)):
            digest = hashlib.sha256(promised.encode())
            for name, content in sorted(state.items()):
                digest.update(f"\n{name} {content is None} ".encode() + (content or b""))
            if digest.hexdigest() not in self.seen:
                self.seen.add(digest.hexdigest())
                yield state

    def power_cut(self, calls: int, state: dict[str, bytes | None]) -> None:
        """Do the work again after a power cut."""
        lay_out(state, self.folder)
        self._recover(self.disk.promised(calls))

    def _recover(self, promised: list[Any]) -> None:
        self.work.check(self.folder, promised)
        self.work.do(self.folder, lambda _: None)
        left = self.work.left(self.folder)
        assert left == self.expected, f"{left} is not {self.expected}"
