"""What was saved stays readable, whatever happens to the disk, and a damaged file is noticed and never run."""

import dataclasses
import os
import pickle
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from support.kills import fingerprint

from tembed.errors import TembedError
from tembed.reporting.progress import Progress
from tembed.training import Recipe, Run, load, train
from tembed.training.checkpoints.files import Checkpoints
from tembed.training.checksummed import checksummed_bytes, read_checksummed

DOTS = Recipe("rn20", "dots", epochs=2, batch_size=30)
TENSORS = {"model.weight": torch.arange(12.0).view(3, 4), "step": torch.tensor(7)}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """One with two saved: position 1, and then 2."""
    made = Checkpoints(tmp_path / "checkpoints")
    made.folder.mkdir()
    for position in (1, 2):
        made.save(TENSORS, {"position": position})
    return made


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(DOTS, tmp_path_factory.mktemp("runs") / "alone", root=worlds)


class Said(Progress):
    """Remembers what it was told, and does something at the first measurement."""

    def __init__(self, act: Any = None) -> None:
        self.lines: list[str] = []
        self.act = act

    def say(self, line: str) -> None:
        self.lines.append(line)

    def update(self, task: str, done: float, total: float, **numbers: Any) -> None:
        if task != "training" and self.act is not None:
            self.act()
            self.act = None


def test_the_newest_is_loaded_and_the_one_before_is_kept(checkpoints: Checkpoints) -> None:
    tensors, record, wrong = checkpoints.load()
    assert (record["position"], wrong) == (2, [])
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert read_checksummed(checkpoints.previous, "a checkpoint")[1]["position"] == 1
    assert sorted(os.listdir(checkpoints.folder)) == ["newest.safetensors", "previous.safetensors"]


def test_equal_content_gives_equal_bytes() -> None:
    record = {"kind": "weights", "b": [1.5], "a": None}
    assert checksummed_bytes(TENSORS, record) == checksummed_bytes(
        dict(reversed(TENSORS.items())), dict(reversed(record.items()))
    )


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    content, path = checksummed_bytes(TENSORS, {"kind": "a checkpoint", "position": 1}), tmp_path / "file.safetensors"
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(TembedError, match=str(path)):
            read_checksummed(path, "a checkpoint")


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    content, path = checksummed_bytes(TENSORS, {"kind": "a checkpoint"}), tmp_path / "file.safetensors"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(TembedError, match=str(path)):
            read_checksummed(path, "a checkpoint")


class Hostile:
    """Pickled, it makes a file wherever it is read."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_hostile_file_is_refused_and_never_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    files = {"pickle": pickle.dumps(Hostile(made))}
    torch.save({"model": Hostile(made)}, tmp_path / "torch")
    files["torch"] = (tmp_path / "torch").read_bytes()
    files["huge header"] = (2**62).to_bytes(8, "little") + b"{}"
    files["deep"] = checksummed_bytes(TENSORS, {"kind": "a checkpoint"}).replace(b"kind", b"[[[[")
    files["empty"] = b""
    for content in files.values():
        path = tmp_path / "file.safetensors"
        path.write_bytes(content)
        with pytest.raises(TembedError, match=str(path)):
            read_checksummed(path, "a checkpoint")
        with pytest.raises(TembedError, match=str(path)):
            load(path)
    assert not made.exists()


def test_a_damaged_newest_gives_way_to_the_previous_and_never_takes_its_place(checkpoints: Checkpoints) -> None:
    _flip(checkpoints.newest)
    _, record, wrong = checkpoints.load()
    assert record["position"] == 1
    assert "newest.safetensors" in wrong[0]
    checkpoints.save(TENSORS, {"position": 3})
    assert read_checksummed(checkpoints.previous, "a checkpoint")[1]["position"] == 1
    assert checkpoints.load()[1]["position"] == 3


def test_when_both_are_damaged_the_way_out_is_named(checkpoints: Checkpoints) -> None:
    _flip(checkpoints.newest)
    _flip(checkpoints.previous)
    with pytest.raises(TembedError, match="remove that folder to start this run again"):
        checkpoints.load()


@pytest.mark.parametrize("call", range(1, 8))
def test_a_crash_at_any_call_leaves_a_whole_checkpoint(
    call: int, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls of a save that change the disk, each failing in turn."""
    left = call

    def failing(real: Any) -> Any:
        def wrapped(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(5, "Input/output error")
            return real(*arguments)

        return wrapped

    with monkeypatch.context() as patched:
        for name in ("replace", "fsync", "open"):
            patched.setattr(os, name, failing(getattr(os, name)))
        with suppress(TembedError):  # not every save makes as many calls
            checkpoints.save(TENSORS, {"position": 3})
    assert checkpoints.load()[1]["position"] in (2, 3)


def test_a_full_disk_does_not_harm_what_was_saved(tmp_path: Path) -> None:
    """On a file system of 1 MB, where the third checkpoint of 300 kB finds no room beside the two that are kept."""
    made = Checkpoints(tmp_path / "checkpoints")
    made.folder.mkdir()
    tensors = {"model.weight": torch.rand(75_000)}
    with small_disk(made.folder, 800):
        for position in (1, 2):
            made.save(tensors, {"position": position})
        with pytest.raises(TembedError, match=r"No space left on device.*free some space"):
            made.save(tensors, {"position": 3})
        assert made.load()[1]["position"] == 2
        assert read_checksummed(made.previous, "a checkpoint")[1]["position"] == 1
        assert not list(made.folder.glob("*.part"))


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system needs the right to mount one")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_run_on_a_full_disk_stops_and_goes_on_when_there_is_room(alone: Run, tmp_path: Path) -> None:
    """The room ends in the second epoch: no file may be longer than a megabyte then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Full(Progress):
        def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))

    try:
        with pytest.raises(TembedError, match=r"cannot write .*newest.safetensors \(File too large\): free some space"):
            train(DOTS, tmp_path / "run", progress=Full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(Run.open(tmp_path / "run").metrics) == 1
    train(DOTS, tmp_path / "run")
    assert fingerprint(tmp_path / "run") == fingerprint(alone.folder)


def test_a_run_whose_folder_is_lost_goes_on_when_it_is_back(alone: Run, tmp_path: Path) -> None:
    here, there = tmp_path / "run", tmp_path / "elsewhere"
    train(dataclasses.replace(DOTS, epochs=1), tmp_path / "other")
    with pytest.raises(TembedError, match="its folder is gone"):
        train(DOTS, here, progress=Said(lambda: here.rename(there)), checkpoint_seconds=0)
    assert not here.exists()
    there.rename(here)
    train(DOTS, here)
    assert fingerprint(here) == fingerprint(alone.folder)


def test_a_run_with_a_damaged_newest_checkpoint_warns_and_comes_to_the_same_end(alone: Run, tmp_path: Path) -> None:
    shutil.copytree(alone.folder, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    _flip(Run.open(tmp_path / "run").checkpoints.newest)
    said = Said()
    train(DOTS, tmp_path / "run", progress=said)
    assert any("warning" in line and "newest.safetensors is damaged" in line for line in said.lines)
    assert fingerprint(tmp_path / "run") == fingerprint(alone.folder)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": 99},
        {"step": "1"},
        {"metrics": None},
        {"sums": {"images": 1, "surprise": 2}},
        {"best_epoch": "x"},
        {"best_epoch": 2},
        {"best_epoch": None},
        {"metrics": [{}, {}]},
        {"metrics": ["a", 1]},
    ],
)
def test_a_checkpoint_that_makes_no_sense_is_refused(change: dict[str, Any], alone: Run, tmp_path: Path) -> None:
    """With a right checksum: whoever can write a file can write that too."""
    shutil.copytree(alone.folder, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    run.result_path.unlink()
    tensors, record = read_checksummed(run.checkpoints.newest, "a checkpoint")
    run.checkpoints.newest.write_bytes(checksummed_bytes(tensors, record | change))
    with pytest.raises(TembedError, match=r"cannot be used: .*remove that folder"):
        train(DOTS, tmp_path / "run")


def test_a_checkpoint_of_another_model_is_refused(alone: Run, tmp_path: Path) -> None:
    shutil.copytree(alone.folder, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    run.result_path.unlink()
    _, record = read_checksummed(run.checkpoints.newest, "a checkpoint")
    run.checkpoints.newest.write_bytes(checksummed_bytes({"model.stem.0.weight": torch.zeros(3)}, record))
    with pytest.raises(TembedError, match="cannot be used"):
        train(DOTS, tmp_path / "run")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 16
    path.write_bytes(content)
