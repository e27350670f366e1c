"""Saved states stay readable whatever happens to the disk; damaged files are detected and never executed."""

import dataclasses
import json
import math
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
from safetensors.torch import save_file
from support.kills import fingerprint
from support.progress import Said

from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.training.checkpoint_files import Checkpoints
from tembed.lab.training.loop import train
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.trained.checksummed import checksum, checksummed_bytes, read_checksummed
from tembed.trained.weights_file import load

SUMS = {"images": 30, "head": 1.0, "patches": 0.0, "correct": 3, "seconds": 1.0}
DOTS = Recipe("rn20", "dots", epochs=2, batch_size=30)
TENSORS = {"model.weight": torch.arange(12.0).view(3, 4), "step": torch.tensor(7)}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """A folder with two checkpoints: position 1, then 2."""
    made = Checkpoints(tmp_path / "checkpoints")
    made.folder.mkdir()
    for position in (1, 2):
        made.save(TENSORS, {"position": position})
    return made


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Run:
    return train(DOTS, tmp_path_factory.mktemp("runs") / "alone", root=worlds)


def test_the_newest_checkpoint_is_loaded_and_the_previous_one_is_kept(checkpoints: Checkpoints) -> None:
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
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_malicious_file_is_refused_and_never_executed(tmp_path: Path) -> None:
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


def test_a_damaged_newest_checkpoint_is_skipped_and_never_overwrites_the_previous_one(
    checkpoints: Checkpoints,
) -> None:
    _flip(checkpoints.newest)
    _, record, wrong = checkpoints.load()
    assert record["position"] == 1
    assert "newest.safetensors" in wrong[0]
    checkpoints.save(TENSORS, {"position": 3})
    assert read_checksummed(checkpoints.previous, "a checkpoint")[1]["position"] == 1
    assert checkpoints.load()[1]["position"] == 3


def test_if_both_checkpoints_are_damaged_the_error_says_what_to_do(checkpoints: Checkpoints) -> None:
    _flip(checkpoints.newest)
    _flip(checkpoints.previous)
    with pytest.raises(TembedError, match="remove that folder to restart this run from the beginning"):
        checkpoints.load()


@pytest.mark.parametrize("call", range(1, 8))
def test_a_crash_at_any_call_leaves_a_complete_checkpoint(
    call: int, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the calls that change the disk during a save, each fails in turn."""
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
        with suppress(TembedError):  # not every save makes this many calls
            checkpoints.save(TENSORS, {"position": 3})
    assert left <= 0 or call > 4, "the save makes at least four calls that can fail"
    assert checkpoints.load()[1]["position"] in (2, 3)


def test_a_full_disk_does_not_damage_saved_checkpoints(tmp_path: Path) -> None:
    """On a file system of 800 kB there is no room for a third checkpoint of 300 kB."""
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
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_run_on_a_full_disk_stops_and_resumes_when_there_is_space(alone: Run, tmp_path: Path) -> None:
    """From the second epoch on, no file may be larger than a megabyte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Full(Progress):
        def epoch(self, metrics: dict[str, Any], epochs: int) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))

    try:
        with pytest.raises(TembedError, match=r"cannot write .*next.safetensors \(File too large\): free some space"):
            train(DOTS, tmp_path / "run", progress=Full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(Run.open(tmp_path / "run").metrics) == 1
    train(DOTS, tmp_path / "run")
    assert fingerprint(tmp_path / "run") == fingerprint(alone.folder)


@pytest.mark.slow
def test_a_run_whose_folder_disappears_resumes_when_it_is_back(alone: Run, tmp_path: Path) -> None:
    here, there = tmp_path / "run", tmp_path / "elsewhere"
    train(dataclasses.replace(DOTS, epochs=1), tmp_path / "other")
    with pytest.raises(TembedError, match="its folder is gone"):
        train(DOTS, here, progress=Said(lambda: here.rename(there)), checkpoint_seconds=0)
    assert not here.exists()
    there.rename(here)
    train(DOTS, here)
    assert fingerprint(here) == fingerprint(alone.folder)


def test_a_run_with_a_damaged_newest_checkpoint_warns_and_ends_with_the_same_bits(alone: Run, tmp_path: Path) -> None:
    shutil.copytree(alone.folder, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    _flip(Run.open(tmp_path / "run").checkpoints.newest)
    said = Said()
    train(DOTS, tmp_path / "run", progress=said)
    assert any("warning" in line and "newest.safetensors is damaged" in line for line in said.lines)
    assert fingerprint(tmp_path / "run") == fingerprint(alone.folder)


@pytest.mark.slow
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
        {"sums": 5},
        {"sums": SUMS | {"head": "x"}},
        {"sums": SUMS | {"head": math.nan}},
        {"sums": SUMS | {"seconds": -1.0}},
        {"sums": SUMS | {"correct": None}},
        {"step": 1, "sums": SUMS | {"images": 0}},
        {"metrics": [{"epoch": k, "val_accuracy": math.nan, "total_seconds": 1.0} for k in (1, 2)]},
        {"metrics": [{"epoch": k, "val_accuracy": 0.5, "total_seconds": math.inf} for k in (1, 2)]},
        {"metrics": [{"epoch": k, "val_accuracy": 0.5, "total_seconds": 1.0, "loss": "x"} for k in (1, 2)]},
        {"precision": 5},
    ],
)
def test_a_checkpoint_that_makes_no_sense_is_refused(change: dict[str, Any], alone: Run, tmp_path: Path) -> None:
    """Even with a correct checksum, which anyone who writes a file can compute."""
    shutil.copytree(alone.folder, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    run.result_path.unlink()
    tensors, record = read_checksummed(run.checkpoints.newest, "a checkpoint")
    text = json.dumps(record | change)  # with NaN, which `checksummed_bytes` does not write
    metadata = {"tembed": json.dumps({"record": text, "sha256": checksum(tensors, text)})}
    save_file(tensors, run.checkpoints.newest, metadata)
    run.checkpoints.previous.unlink()
    with pytest.raises(TembedError, match=r"can(not)? be used.*remove that folder"):
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
